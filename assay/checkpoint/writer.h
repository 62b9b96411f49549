#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/checkpoint/safetensors_layout.h"
#include "assay/checkpoint/tensor_writer.h"

namespace assay {

/// One file of a sharded model.
struct ShardPlan {
  std::string file_name;
  std::vector<TensorSpec> tensors;
  std::map<std::string, std::string> metadata;  ///< `__metadata__`; left out when empty
};

/// Spreads tensors over shards in the order given, each as full as `max_shard_bytes` allows (a
/// larger tensor gets its own). One shard is called "model.safetensors", several
/// "model-00001-of-00005.safetensors". Requires max_shard_bytes > 0.
std::vector<ShardPlan> PlanShards(std::vector<TensorSpec> tensors, int64_t max_shard_bytes,
                                  const std::map<std::string, std::string>& metadata = {});

/// "model.safetensors.index.json" of a folder that is written.
struct IndexOptions {
  /// Also for a single shard.
  bool always = false;
  /// The "metadata" object as it shall be; null: {"total_size": bytes of all tensors}, and
  /// "total_parameters" when given.
  nlohmann::json metadata = nullptr;
  std::optional<int64_t> total_parameters;
  int indent = 2;
};

/// Writes safetensors files whose tensors are known before their bytes: one file, or a folder of
/// shards with an index and side files. See TensorWriter.
class SafetensorsWriter final : public TensorWriter {
 public:
  /// One file. Errors: input.
  static std::unique_ptr<SafetensorsWriter> ToFile(
      const std::string& path, std::vector<TensorSpec> tensors,
      const std::map<std::string, std::string>& metadata = {}, const SafetensorsStyle& style = {});

  /// A folder. Errors: usage when something but an empty folder stands at `path`; input.
  static std::unique_ptr<SafetensorsWriter> ToFolder(const std::string& path,
                                                     std::vector<ShardPlan> shards,
                                                     const IndexOptions& index = {},
                                                     const SafetensorsStyle& style = {});
  ~SafetensorsWriter() override;

  void Write(std::string_view tensor, std::span<const std::byte> bytes,
             int64_t offset = 0) override;

  /// Further files of the folder ("config.json"). Requires: made by ToFolder, a plain file name
  /// that is not used yet. Errors: internal; input.
  void AddFile(const std::string& name, std::string_view content);
  /// The same from another file, links followed.
  void CopyFile(const std::string& name, const std::string& source_path);

  void Commit() override;

 private:
  struct State;
  explicit SafetensorsWriter(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace assay

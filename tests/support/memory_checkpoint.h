#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "assay/formats/checkpoint_form.h"

namespace assay::test {

/// A checkpoint that is not a file: what a recogniser sees of a directory.
class MemoryCheckpoint final : public CheckpointSource {
 public:
  /// `block_type`: what U8 bytes are blocks of.
  void Add(const std::string& name, Tensor tensor, const GgmlType* block_type = nullptr);
  /// "config.json", "turboquant_config.json", …
  void AddConfig(const std::string& file_name, nlohmann::json config);

  const std::vector<StoredTensor>& Tensors() const override { return list_; }
  const StoredTensor* Find(std::string_view name) const override;
  Tensor Load(std::string_view name) const override;
  const nlohmann::json* Config(std::string_view file_name) const override;
  const nlohmann::json* ConfigKey(std::string_view key) const override;
  std::string Path() const override { return "memory"; }

 private:
  std::vector<StoredTensor> list_;
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::map<std::string, nlohmann::json, std::less<>> configs_;
};

}  // namespace assay::test

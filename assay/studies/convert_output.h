#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/checkpoint/model.h"
#include "assay/checkpoint/writer.h"
#include "assay/studies/convert.h"
#include "assay/studies/convert_plan.h"

namespace assay {

/// A folder becomes a folder, unless the output is the one file that holds everything.
bool WritesFolder(const Model& model, std::string_view output);

/// The files of a conversion: those the tensors go to, configs, and what a folder holds besides.
/// Nothing stands under its name before Commit. Keeps references to all it is given.
class ConvertOutput {
 public:
  /// Lays out the files of the plan. Notes and the number of files go to `report`.
  /// Errors: as those of the writers.
  ConvertOutput(const Model& model, const ConvertPlan& plan, std::string output,
                std::optional<int64_t> shard_bytes, ConvertReport& report);

  TensorWriter& writer() noexcept { return *writer_; }

  /// Call when every tensor was written.
  void Commit();

 private:
  bool IsFolder() const { return WritesFolder(model_, output_); }
  std::map<std::string, std::string> SourceMetadata() const;
  std::vector<WrittenWeight> WrittenWeights() const;
  std::vector<TensorSpec> PlannedTensors() const;
  nlohmann::json ConfigFrom(nlohmann::json config) const;
  std::map<std::string, std::string> SideFiles() const;
  std::vector<ShardPlan> PlanFolder() const;
  void OpenGguf();
  void OpenFile(const SafetensorsStyle& style);
  void OpenFolder(const SafetensorsStyle& style);
  void WriteSideFiles();
  bool IsSourceFile(const std::string& path) const;

  const Model& model_;
  const ConvertPlan& plan_;
  const std::string output_;
  const std::optional<int64_t> shard_bytes_;
  ConvertReport& report_;
  CheckpointStyle style_;
  std::unique_ptr<TensorWriter> writer_;
  SafetensorsWriter* folder_ = nullptr;  ///< the writer, when it writes a folder
};

}  // namespace assay

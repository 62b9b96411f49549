#include "assay/studies/convert_output.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "assay/checkpoint/gguf_writer.h"
#include "assay/studies/convert_config.h"
#include "assay/studies/convert_gguf.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kConfigName = "config.json";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

}  // namespace

bool WritesFolder(const Model& model, std::string_view output) {
  return !model.Directory().empty() && !IsGgufPath(output);
}

ConvertOutput::ConvertOutput(const Model& model, const ConvertPlan& plan, std::string output,
                             std::optional<int64_t> shard_bytes, ConvertReport& report)
    : model_(model),
      plan_(plan),
      output_(std::move(output)),
      shard_bytes_(shard_bytes),
      report_(report) {
  if (plan_.form != nullptr) style_ = plan_.form->Style();
  const SafetensorsStyle style{TensorOrder::kReference, style_.data_alignment};
  if (plan_.gguf) {
    OpenGguf();
  } else if (IsFolder()) {
    OpenFolder(style);
  } else {
    OpenFile(style);
  }
}

void ConvertOutput::Commit() {
  if (IsFolder()) WriteSideFiles();
  writer_->Commit();
}

/// Free text of the source's files, without what told how to decode it.
std::map<std::string, std::string> ConvertOutput::SourceMetadata() const {
  std::map<std::string, std::string> metadata;
  for (const ContainerPtr& file : model_.Files()) {
    for (const auto& [key, value] : PortableMetadata(*file)) {
      if (TellsOfQuantisation(key)) continue;
      if (key == kConfigName) continue;
      metadata.emplace(key, value);
    }
  }
  return metadata;
}

std::vector<WrittenWeight> ConvertOutput::WrittenWeights() const {
  std::vector<WrittenWeight> written;
  for (const ConvertStep& step : plan_.steps) {
    const Shape& shape = step.tensor.shape;
    if (shape.rank() < 2 && !step.tensor.encoded) continue;
    const size_t rank = shape.rank();
    WrittenWeight weight{step.tensor.name, step.tensor.encoded ? step.format : nullptr,
                         rank < 2 ? 1 : shape[rank - 2], rank < 1 ? 1 : shape[rank - 1]};
    written.push_back(std::move(weight));
  }
  return written;
}

/// The config of the output, given that of the source.
Json ConvertOutput::ConfigFrom(Json config) const {
  config = WithoutQuantisation(std::move(config));
  if (plan_.form != nullptr) plan_.form->WriteConfig(config, *plan_.format, WrittenWeights());
  return config;
}

std::map<std::string, std::string> ConvertOutput::SideFiles() const {
  if (plan_.form == nullptr) return {};
  return plan_.form->SideFiles(*plan_.format, WrittenWeights());
}

void ConvertOutput::OpenGguf() {
  const std::vector<TensorSpec> tensors = GgufTensors(model_, plan_);
  const GgufMetadata metadata = GgufMetadataFor(model_, tensors);
  if (metadata.Find("general.architecture") == nullptr) {
    report_.notes.push_back(
        fmt::format("{}: {} names no architecture: programs that run models will not load it",
                    output_, model_.Path()));
  }
  writer_ = std::make_unique<GgufWriter>(output_, tensors, metadata);
  report_.num_files = 1;
}

void ConvertOutput::OpenFile(const SafetensorsStyle& style) {
  std::map<std::string, std::string> metadata = SourceMetadata();
  if (plan_.form != nullptr) {
    for (auto& [key, value] : plan_.form->ShardMetadata()) metadata[key] = value;
  }
  const Json config = ConfigFrom(Json::object());
  for (const auto& [key, value] : config.items()) metadata[key] = value.dump();
  for (auto& [name, content] : SideFiles()) metadata[name] = content;
  writer_ = SafetensorsWriter::ToFile(output_, PlannedTensors(), metadata, style);
  report_.num_files = 1;
}

void ConvertOutput::OpenFolder(const SafetensorsStyle& style) {
  std::vector<ShardPlan> shards = PlanFolder();
  report_.num_files = static_cast<int64_t>(shards.size());
  IndexOptions index;
  index.always = style_.always_index || model_.Config(kIndexName) != nullptr;
  index.indent = style_.json_indent;
  if (style_.counts_parameters) {
    int64_t parameters = 0;
    for (const ConvertStep& step : plan_.steps) parameters += step.tensor.num_values;
    index.total_parameters = parameters;
  }
  if (style_.keeps_index_metadata) {
    if (const Json* source = model_.Config(kIndexName)) {
      if (const auto found = source->find("metadata"); found != source->end()) {
        index.metadata = *found;
      }
    }
  }
  auto folder = SafetensorsWriter::ToFolder(output_, std::move(shards), index, style);
  folder_ = folder.get();
  writer_ = std::move(folder);
}

std::vector<TensorSpec> ConvertOutput::PlannedTensors() const {
  std::vector<TensorSpec> tensors;
  for (const ConvertStep& step : plan_.steps) {
    tensors.insert(tensors.end(), step.outputs.begin(), step.outputs.end());
  }
  return tensors;
}

std::vector<ShardPlan> ConvertOutput::PlanFolder() const {
  std::map<std::string, std::string> metadata;
  if (plan_.form != nullptr) {
    metadata = plan_.form->ShardMetadata();
  } else {
    metadata = {{"format", "pt"}};
  }
  if (style_.keeps_shards && !shard_bytes_) {
    std::vector<ShardPlan> shards(model_.Files().size());
    for (size_t file = 0; file < shards.size(); ++file) {
      shards[file].file_name = fs::path(model_.Files()[file]->path()).filename().string();
      shards[file].metadata = metadata;
    }
    for (const ConvertStep& step : plan_.steps) {
      auto& tensors = shards[step.file].tensors;
      tensors.insert(tensors.end(), step.outputs.begin(), step.outputs.end());
    }
    std::erase_if(shards, [](const ShardPlan& shard) { return shard.tensors.empty(); });
    return shards;
  }
  return PlanShards(PlannedTensors(), shard_bytes_.value_or(kDefaultShardBytes), metadata);
}

/// config.json, the family's own files, and everything else of the folder that holds no weights.
void ConvertOutput::WriteSideFiles() {
  const Json* source = model_.Config(kConfigName);
  std::map<std::string, std::string> own = SideFiles();
  const Json config = ConfigFrom(source != nullptr ? *source : Json::object());
  // An unchanged config is copied below, byte for byte.
  if (source != nullptr ? config != *source : !config.empty()) {
    own[std::string(kConfigName)] = config.dump(style_.json_indent) + "\n";
  }
  for (const auto& [name, content] : own) folder_->AddFile(name, content);
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(model_.Directory())) {
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  for (const fs::path& path : paths) {
    const std::string name = path.filename().string();
    if (own.contains(name) || name.ends_with(".index.json") || name.starts_with(".")) continue;
    if (TellsOfQuantisation(name)) continue;
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) {
      report_.notes.push_back(fmt::format("{}: not a file, not copied", name));
      continue;
    }
    if (HoldsWeights(name)) {
      if (!IsSourceFile(path.string())) {
        report_.notes.push_back(fmt::format("{}: holds other weights, not copied", name));
      }
      continue;
    }
    folder_->CopyFile(name, path.string());
    report_.copied_files.push_back(name);
  }
}

bool ConvertOutput::IsSourceFile(const std::string& path) const {
  return std::ranges::any_of(model_.Files(), [&](const ContainerPtr& file) {
    std::error_code ignored;
    return fs::equivalent(file->path(), path, ignored);
  });
}

}  // namespace assay

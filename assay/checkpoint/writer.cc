#include "assay/checkpoint/writer.h"

#include <set>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/output_file.h"
#include "assay/base/output_folder.h"
#include "assay/base/text.h"
#include "assay/checkpoint/mapped_file.h"
#include "assay/checkpoint/output_slots.h"

namespace assay {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";

int64_t NumBytes(const TensorSpec& tensor) {
  return tensor.shape.CheckedNumBytes(tensor.dtype).value_or(0);
}

}  // namespace

struct SafetensorsWriter::State {
  explicit State(const std::string& output) : path(output), slots(output) {}

  std::string path;
  std::unique_ptr<OutputFolder> folder;  // null for one file
  std::vector<std::unique_ptr<OutputFile>> files;
  OutputSlots slots;
  std::set<std::string> file_names;
  std::string index_text;  // empty when there is none

  void AddShard(const std::string& file_path, const std::vector<TensorSpec>& tensors,
                const std::map<std::string, std::string>& metadata, const SafetensorsStyle& style) {
    const SafetensorsLayout layout = LayOutSafetensors(tensors, metadata, style, path);
    auto file = std::make_unique<OutputFile>(file_path);
    file->Reserve(layout.num_file_bytes);
    file->WriteAt(0, AsBytes(layout.head));
    for (size_t i = 0; i < tensors.size(); ++i) {
      slots.Add(tensors[i].name, *file, layout.offsets[i], NumBytes(tensors[i]));
    }
    files.push_back(std::move(file));
  }

  // The path to write a side file to; its name is taken from then on.
  std::string Claim(const std::string& name) {
    if (!folder) ThrowInternal("{}: a single file has no side files ({})", path, Quoted(name));
    const std::string file_path = folder->FilePath(name);
    if (!file_names.insert(name).second) {
      ThrowInternal("{}: file {} is written twice", path, Quoted(name));
    }
    return file_path;
  }
};

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
SafetensorsWriter::~SafetensorsWriter() = default;

std::unique_ptr<SafetensorsWriter> SafetensorsWriter::ToFile(
    const std::string& path, std::vector<TensorSpec> tensors,
    const std::map<std::string, std::string>& metadata, const SafetensorsStyle& style) {
  auto state = std::make_unique<State>(path);
  state->AddShard(path, tensors, metadata, style);
  return std::unique_ptr<SafetensorsWriter>(new SafetensorsWriter(std::move(state)));
}

std::unique_ptr<SafetensorsWriter> SafetensorsWriter::ToFolder(const std::string& path,
                                                               std::vector<ShardPlan> shards,
                                                               const IndexOptions& index,
                                                               const SafetensorsStyle& style) {
  auto state = std::make_unique<State>(path);
  state->folder = std::make_unique<OutputFolder>(path);
  nlohmann::json weight_map = nlohmann::json::object();
  int64_t total_size = 0;
  for (const ShardPlan& shard : shards) {
    state->AddShard(state->Claim(shard.file_name), shard.tensors, shard.metadata, style);
    for (const TensorSpec& tensor : shard.tensors) {
      weight_map[tensor.name] = shard.file_name;
      total_size += NumBytes(tensor);
    }
  }
  if (shards.size() > 1 || index.always) {
    nlohmann::json metadata = index.metadata;
    if (metadata.is_null()) {
      metadata = {{"total_size", total_size}};
      if (index.total_parameters) metadata["total_parameters"] = *index.total_parameters;
    }
    const nlohmann::json json = {{"metadata", metadata}, {"weight_map", weight_map}};
    state->index_text = json.dump(index.indent);
    state->file_names.insert(kIndexName);
  }
  return std::unique_ptr<SafetensorsWriter>(new SafetensorsWriter(std::move(state)));
}

void SafetensorsWriter::Write(std::string_view tensor, std::span<const std::byte> bytes,
                              int64_t offset) {
  state_->slots.Write(tensor, bytes, offset);
}

void SafetensorsWriter::AddFile(const std::string& name, std::string_view content) {
  WriteFile(state_->Claim(name), content);
}

void SafetensorsWriter::CopyFile(const std::string& name, const std::string& source_path) {
  const auto source = MappedFile::Open(source_path);
  OutputFile file(state_->Claim(name));
  file.Append(source->bytes());
  source->Verify();
  file.Commit();
}

void SafetensorsWriter::Commit() {
  state_->slots.RequireComplete();
  for (const auto& file : state_->files) file->Commit();
  if (!state_->folder) return;
  if (!state_->index_text.empty()) {
    WriteFile(state_->folder->FilePath(kIndexName), state_->index_text);
  }
  state_->folder->Commit();
}

std::vector<ShardPlan> PlanShards(std::vector<TensorSpec> tensors, int64_t max_shard_bytes,
                                  const std::map<std::string, std::string>& metadata) {
  if (max_shard_bytes <= 0) ThrowUsage("shard size: expected above 0, found {}", max_shard_bytes);
  std::vector<ShardPlan> shards(1);
  int64_t filled = 0;
  for (TensorSpec& tensor : tensors) {
    const int64_t num_bytes = NumBytes(tensor);
    const auto next = CheckedAdd(filled, num_bytes);
    if (!shards.back().tensors.empty() && (!next || *next > max_shard_bytes)) {
      shards.emplace_back();
      filled = 0;
    }
    filled += num_bytes;
    shards.back().tensors.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].metadata = metadata;
    shards[i].file_name =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

}  // namespace assay

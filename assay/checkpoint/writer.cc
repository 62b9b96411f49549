#include "assay/checkpoint/writer.h"

#include <atomic>
#include <deque>
#include <set>
#include <unordered_map>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/output_file.h"
#include "assay/base/output_folder.h"
#include "assay/base/text.h"
#include "assay/checkpoint/mapped_file.h"

namespace assay {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";

int64_t NumBytes(const TensorSpec& tensor) {
  return tensor.shape.CheckedNumBytes(tensor.dtype).value_or(0);
}

// A tensor's place, and how much of it has arrived.
struct Slot {
  const OutputFile* file;
  int64_t offset;
  int64_t num_bytes;
  std::atomic<int64_t> written{0};

  Slot(const OutputFile* out, int64_t begin, int64_t size)
      : file(out), offset(begin), num_bytes(size) {}
};

}  // namespace

struct SafetensorsWriter::State {
  std::string path;
  std::unique_ptr<OutputFolder> folder;  // null for one file
  std::vector<std::unique_ptr<OutputFile>> files;
  std::deque<Slot> slots;  // stays in place: slots hold atomics
  std::unordered_map<std::string, Slot*> by_name;
  std::set<std::string> file_names;
  std::string index_text;  // empty when there is none

  void AddShard(const std::string& file_path, const std::vector<TensorSpec>& tensors,
                const std::map<std::string, std::string>& metadata, const SafetensorsStyle& style) {
    const SafetensorsLayout layout = LayOutSafetensors(tensors, metadata, style, path);
    auto file = std::make_unique<OutputFile>(file_path);
    file->Reserve(layout.num_file_bytes);
    file->WriteAt(0, AsBytes(layout.head));
    for (size_t i = 0; i < tensors.size(); ++i) {
      Slot& slot = slots.emplace_back(file.get(), layout.offsets[i], NumBytes(tensors[i]));
      if (!by_name.emplace(tensors[i].name, &slot).second) {
        ThrowInput("{}: tensor {} is given to two shards", path, Quoted(tensors[i].name));
      }
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
  auto state = std::make_unique<State>();
  state->path = path;
  state->AddShard(path, tensors, metadata, style);
  return std::unique_ptr<SafetensorsWriter>(new SafetensorsWriter(std::move(state)));
}

std::unique_ptr<SafetensorsWriter> SafetensorsWriter::ToFolder(const std::string& path,
                                                               std::vector<ShardPlan> shards,
                                                               const IndexOptions& index,
                                                               const SafetensorsStyle& style) {
  auto state = std::make_unique<State>();
  state->path = path;
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
  const auto found = state_->by_name.find(std::string(tensor));
  if (found == state_->by_name.end()) {
    ThrowInternal("{}: tensor {} was not announced", state_->path, Quoted(tensor));
  }
  Slot& slot = *found->second;
  const auto num_bytes = static_cast<int64_t>(bytes.size());
  if (offset < 0 || num_bytes > slot.num_bytes || offset > slot.num_bytes - num_bytes) {
    ThrowInternal("{}: tensor {}: bytes {} + {} of {}", state_->path, Quoted(tensor), offset,
                  num_bytes, slot.num_bytes);
  }
  slot.file->WriteAt(slot.offset + offset, bytes);
  slot.written += num_bytes;
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
  for (const auto& [name, slot] : state_->by_name) {
    if (slot->written != slot->num_bytes) {
      ThrowInternal("{}: tensor {}: {} of {} bytes were written", state_->path, Quoted(name),
                    slot->written.load(), slot->num_bytes);
    }
  }
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

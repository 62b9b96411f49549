#include "assay/checkpoint/model_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/gguf_split.h"
#include "assay/checkpoint/mapped_file.h"
#include "assay/checkpoint/shard_index.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kDefaultIndex = "model.safetensors.index.json";
constexpr std::string_view kSingleFile = "model.safetensors";

std::string Join(const std::string& directory, const std::string& name) {
  return directory.ends_with('/') ? directory + name : directory + "/" + name;
}

// Names of the folder's entries that end in `suffix`, sorted.
std::vector<std::string> NamesWith(const std::string& directory, std::string_view suffix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.ends_with(suffix)) names.push_back(std::move(name));
  }
  if (error) ThrowInput("{}: {}", directory, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

void AddTensors(ModelFiles& model, size_t file, const std::vector<bool>& wanted) {
  const std::vector<StoredTensor>& tensors = model.files[file]->Tensors();
  for (size_t index = 0; index < tensors.size(); ++index) {
    if (!wanted.empty() && !wanted[index]) continue;
    model.tensors.push_back(tensors[index]);
    model.places.push_back({file, index});
  }
}

// Sorts by name and refuses a name that two files hold.
void SortTensors(ModelFiles& model) {
  std::vector<size_t> order(model.tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return model.tensors[a].name < model.tensors[b].name; });
  std::vector<StoredTensor> tensors;
  std::vector<ModelFiles::Place> places;
  for (const size_t i : order) {
    if (!tensors.empty() && tensors.back().name == model.tensors[i].name) {
      ThrowInput("{}: duplicate tensor {}: also in {}; without an index nothing says which counts",
                 model.files[model.places[i].file]->path(), Quoted(tensors.back().name),
                 model.files[places.back().file]->path());
    }
    tensors.push_back(std::move(model.tensors[i]));
    places.push_back(model.places[i]);
  }
  model.tensors = std::move(tensors);
  model.places = std::move(places);
}

// At most three names, then how many more.
std::string Some(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) shown.push_back(Quoted(names[i]));
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

ContainerPtr OpenShard(const ModelFiles& model, const std::string& shard,
                       const std::vector<std::string>& tensors) {
  const std::string path = Join(model.directory, shard);
  std::error_code ignored;
  if (fs::symlink_status(path, ignored).type() == fs::file_type::not_found) {
    ThrowInput(
        "{}: the index needs this file for {}, but it does not exist; is the download "
        "complete?",
        path, Some(tensors));
  }
  return OpenContainer(path);
}

// The TurboQuant encoder lists planes of weights that it could not quantise and left as they were:
// BASE.tq_packed in the index, BASE.weight (unlisted) in the file.
bool IsPlaneOfPlainWeight(const Container& file, const ShardIndex& index, const std::string& name) {
  const std::string plain = name.substr(0, name.rfind('.')) + ".weight";
  return plain != name && !index.weight_map.contains(plain) && file.Find(plain);
}

// Adds one shard: the tensors the map gives to it, and those the map does not know at all.
void AddShard(ModelFiles& model, const ShardIndex& index, const std::string& shard,
              const std::vector<std::string>& mapped) {
  const ContainerPtr file = OpenShard(model, shard, mapped);
  std::vector<std::string> planes_of_plain;
  for (const std::string& name : mapped) {
    if (file->Find(name)) continue;
    if (!IsPlaneOfPlainWeight(*file, index, name)) {
      ThrowInput("{}: tensor {}: the index places it here, but the file does not hold it",
                 file->path(), Quoted(name));
    }
    planes_of_plain.push_back(name);
  }
  if (!planes_of_plain.empty()) {
    model.notes.push_back(
        fmt::format("{}: the index lists planes of weights that the file holds plain: {}",
                    file->path(), Some(planes_of_plain)));
  }
  const std::vector<StoredTensor>& tensors = file->Tensors();
  std::vector<bool> wanted(tensors.size(), true);
  std::vector<std::string> unmapped;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto found = index.weight_map.find(tensors[i].name);
    if (found == index.weight_map.end()) {
      unmapped.push_back(tensors[i].name);
    } else if (found->second != shard) {
      wanted[i] = false;
      model.notes.push_back(
          fmt::format("{}: tensor {} is a stale duplicate: the index reads it from {}",
                      file->path(), Quoted(tensors[i].name), found->second));
    }
  }
  if (!unmapped.empty()) {
    model.notes.push_back(
        fmt::format("{}: not in the index, read all the same: {}", file->path(), Some(unmapped)));
  }
  model.files.push_back(file);
  AddTensors(model, model.files.size() - 1, wanted);
}

void NoteTotalSize(ModelFiles& model, const ShardIndex& index, const std::string& index_path) {
  if (!index.total_size) return;
  uint64_t sum = 0;
  for (const StoredTensor& tensor : model.tensors) {
    if (!index.weight_map.contains(tensor.name)) continue;
    sum += static_cast<uint64_t>(tensor.shape.CheckedNumBytes(tensor.dtype).value_or(0));
  }
  if (sum != *index.total_size) {
    model.notes.push_back(fmt::format("{}: total_size is {}, the tensors add up to {}", index_path,
                                      Grouped(*index.total_size), Grouped(sum)));
  }
}

ModelFiles OpenIndexed(const std::string& path, const std::string& directory,
                       const std::string& index_name) {
  ModelFiles model;
  model.path = path;
  model.directory = directory;
  const std::string index_path = Join(directory, index_name);
  const auto index_file = MappedFile::Open(index_path);
  const ShardIndex index = ParseShardIndex(AsText(index_file->bytes()), index_path);
  index_file->Verify();
  model.notes = index.notes;

  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, shard] : index.weight_map) shards[shard].push_back(tensor);
  for (const auto& [shard, tensors] : shards) AddShard(model, index, shard, tensors);
  SortTensors(model);
  NoteTotalSize(model, index, index_path);

  std::vector<std::string> stray;
  for (std::string& name : NamesWith(directory, ".safetensors")) {
    if (!shards.contains(name)) stray.push_back(std::move(name));
  }
  if (!stray.empty()) {
    model.notes.push_back(fmt::format("{}: not in the index, ignored: {}", directory, Some(stray)));
  }
  return model;
}

constexpr std::string_view kGgufHead = "token_embd.weight";
constexpr std::string_view kGgufTail = "output.weight";

// A GGUF model stands alone, whatever lies beside it: its folder counts for nothing.
ModelFiles OpenGguf(const std::string& path) {
  ModelFiles model;
  model.path = path;
  for (auto& file : OpenGgufModel(path)) {
    model.files.push_back(std::move(file));
    AddTensors(model, model.files.size() - 1, {});
  }
  SortTensors(model);
  const auto holds = [&](std::string_view name) {
    return std::ranges::binary_search(model.tensors, name, {}, &StoredTensor::name);
  };
  if (holds(kGgufHead) && !holds(kGgufTail)) {
    model.notes.push_back(
        fmt::format("{}: there is no {}: a head, where one is needed, is tied to {}", path,
                    kGgufTail, kGgufHead));
  }
  return model;
}

// A folder without safetensors.
ModelFiles OpenGgufFolder(const std::string& path) {
  const std::vector<std::string> models = GgufModelsAmong(NamesWith(path, ".gguf"));
  if (models.empty()) {
    ThrowInput("{}: expected a model folder, found no *.safetensors and no *.gguf file in it",
               path);
  }
  if (models.size() > 1) {
    ThrowInput("{}: {} GGUF models: {}; open one of them by its path", path, models.size(),
               Some(models));
  }
  ModelFiles model = OpenGguf(Join(path, models.front()));
  model.path = path;
  return model;
}

ModelFiles OpenUnindexed(const std::string& path) {
  ModelFiles model;
  model.path = path;
  model.directory = path;
  std::vector<std::string> names = NamesWith(path, ".safetensors");
  if (names.empty()) return OpenGgufFolder(path);
  if (std::find(names.begin(), names.end(), kSingleFile) != names.end() && names.size() > 1) {
    std::erase(names, kSingleFile);
    model.notes.push_back(
        fmt::format("{}: {} is read; ignored beside it: {}", path, kSingleFile, Some(names)));
    names = {std::string(kSingleFile)};
  }
  if (names.size() > 1) {
    model.notes.push_back(
        fmt::format("{}: there is no index; all {} files are read", path, names.size()));
  }
  for (const std::string& name : names) {
    model.files.push_back(OpenContainer(Join(path, name)));
    AddTensors(model, model.files.size() - 1, {});
  }
  SortTensors(model);
  return model;
}

ModelFiles OpenFolder(const std::string& path) {
  const std::vector<std::string> indices = NamesWith(path, kIndexSuffix);
  if (indices.empty()) return OpenUnindexed(path);
  if (std::find(indices.begin(), indices.end(), kDefaultIndex) != indices.end()) {
    return OpenIndexed(path, path, std::string(kDefaultIndex));
  }
  if (indices.size() > 1) {
    ThrowInput("{}: several indices: {}; open one of them by its path", path, Some(indices));
  }
  return OpenIndexed(path, path, indices.front());
}

ModelFiles OpenFile(const std::string& path) {
  if (path.ends_with(".gguf")) return OpenGguf(path);
  ModelFiles model;
  model.path = path;
  model.files.push_back(OpenContainer(path));
  if (model.files.front()->kind() == "gguf") return OpenGguf(path);
  AddTensors(model, 0, {});
  return model;
}

}  // namespace

ModelFiles OpenModelFiles(const std::string& path) {
  std::error_code ignored;
  ModelFiles model;
  if (fs::is_directory(path, ignored)) {
    model = OpenFolder(path);
  } else if (path.ends_with(kIndexSuffix)) {
    const fs::path file(path);
    const std::string parent = file.parent_path().string();
    model = OpenIndexed(path, parent.empty() ? "." : parent, file.filename().string());
  } else {
    model = OpenFile(path);
  }
  for (const ContainerPtr& file : model.files) {
    model.notes.insert(model.notes.end(), file->Notes().begin(), file->Notes().end());
  }
  return model;
}

}  // namespace assay

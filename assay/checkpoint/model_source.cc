#include "assay/checkpoint/model_source.h"

#include <algorithm>
#include <filesystem>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/json_text.h"
#include "assay/checkpoint/mapped_file.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

bool Exists(const std::string& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

}  // namespace

std::optional<size_t> ModelSource::IndexOf(std::string_view name) const {
  const auto found = std::lower_bound(
      files_.tensors.begin(), files_.tensors.end(), name,
      [](const StoredTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  if (found == files_.tensors.end() || found->name != name) return std::nullopt;
  return static_cast<size_t>(found - files_.tensors.begin());
}

const StoredTensor* ModelSource::Find(std::string_view name) const {
  const auto index = IndexOf(name);
  return index ? &files_.tensors[*index] : nullptr;
}

Tensor ModelSource::Load(std::string_view name) const {
  const auto index = IndexOf(name);
  if (!index) ThrowInput("{}: there is no tensor {}", files_.path, Quoted(name));
  const ModelFiles::Place place = files_.places[*index];
  return files_.files[place.file]->Load(place.index);
}

const Container& ModelSource::FileOf(std::string_view name) const {
  const auto index = IndexOf(name);
  if (!index) ThrowInput("{}: there is no tensor {}", files_.path, Quoted(name));
  return *files_.files[files_.places[*index].file];
}

const nlohmann::json* ModelSource::Cached(
    const std::string& key, const std::function<std::optional<nlohmann::json>()>& read) const {
  const std::lock_guard lock(mutex_);
  auto found = configs_.find(key);
  if (found == configs_.end()) found = configs_.emplace(key, read()).first;
  return found->second ? &*found->second : nullptr;
}

std::optional<nlohmann::json> ModelSource::ReadConfigFile(const std::string& file_name) const {
  const std::string path = (fs::path(files_.directory) / file_name).string();
  if (!Exists(path)) return std::nullopt;
  const auto file = MappedFile::Open(path);
  nlohmann::json json = ParseJsonObject(AsText(file->bytes()), path);
  file->Verify();
  return json;
}

std::optional<nlohmann::json> ModelSource::ReadMetadata(const std::string& key) const {
  for (const ContainerPtr& file : files_.files) {
    if (file->kind() == "gguf") continue;  // shows short texts of typed values, and holds no config
    const auto found = file->Metadata().find(key);
    if (found == file->Metadata().end()) continue;
    // Other tools store plain words under such keys ("quantization": "int8"): no config of ours.
    if (!found->second.starts_with('{')) continue;
    return ParseJsonObject(found->second,
                           fmt::format("{}: metadata {}", file->path(), Quoted(key)));
  }
  return std::nullopt;
}

const nlohmann::json* ModelSource::Config(std::string_view file_name) const {
  const std::string name(file_name);
  return Cached(name, [&]() -> std::optional<nlohmann::json> {
    if (!files_.directory.empty()) {
      if (auto json = ReadConfigFile(name)) return json;
    }
    return ReadMetadata(name);
  });
}

const nlohmann::json* ModelSource::ConfigKey(std::string_view key) const {
  if (const nlohmann::json* config = Config("config.json")) {
    if (const auto found = config->find(key); found != config->end()) return &*found;
  }
  const std::string name(key);
  // '/' keeps these apart from the file names, which share the cache.
  return Cached("metadata/" + name, [&] { return ReadMetadata(name); });
}

}  // namespace assay

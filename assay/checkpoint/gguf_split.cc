#include "assay/checkpoint/gguf_split.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "assay/base/error.h"
#include "assay/base/text.h"

namespace assay {
namespace {

constexpr std::string_view kExtension = ".gguf";
constexpr size_t kDigits = 5;

constexpr std::string_view kNumberKey = "split.no";
constexpr std::string_view kCountKey = "split.count";
constexpr std::string_view kTensorsKey = "split.tensors.count";

// Takes five digits off the end.
std::optional<int64_t> TakeNumber(std::string_view& text) {
  if (text.size() < kDigits) return std::nullopt;
  int64_t number = 0;
  for (const char digit : text.substr(text.size() - kDigits)) {
    if (digit < '0' || digit > '9') return std::nullopt;
    number = number * 10 + (digit - '0');
  }
  text.remove_suffix(kDigits);
  return number;
}

bool TakeSuffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// An entry of the split's own, which has one type. Errors: input when it is missing or another.
int64_t Required(const GgufFile& file, std::string_view key, GgufType type) {
  const GgufValue* value = file.header().metadata.Find(key);
  if (value == nullptr) {
    ThrowInput("{}: {} is missing: expected a {} in every part", file.path(), key, NameOf(type));
  }
  if (value->type() != type) {
    ThrowInput("{}: {}: expected a {}, found {}", file.path(), key, NameOf(type),
               NameOf(value->type()));
  }
  return value->AsInteger().value_or(0);
}

void CheckPart(const GgufFile& file, int64_t index, int64_t count) {
  const int64_t found_count = Required(file, kCountKey, GgufType::kU16);
  if (found_count != count) {
    ThrowInput("{}: {}: expected {}, as the names of the files say, found {}", file.path(),
               kCountKey, count, found_count);
  }
  const int64_t found = Required(file, kNumberKey, GgufType::kU16);
  if (found != index) {
    ThrowInput("{}: {}: expected {} in part {} of {} (it counts from 0), found {}", file.path(),
               kNumberKey, index, index + 1, count, found);
  }
}

// The parts' tensors as one list.
void CheckTensors(const std::vector<std::shared_ptr<const GgufFile>>& files) {
  std::set<std::string_view> names;
  for (const auto& file : files) {
    for (const StoredTensor& tensor : file->Tensors()) {
      if (names.insert(tensor.name).second) continue;
      ThrowInput("{}: duplicate tensor {}: an earlier part holds it too", file->path(),
                 Quoted(tensor.name));
    }
  }
  const auto found = static_cast<int64_t>(names.size());
  for (const auto& file : files) {
    if (file != files.front() && file->header().metadata.Find(kTensorsKey) == nullptr) continue;
    const int64_t stated = Required(*file, kTensorsKey, GgufType::kI32);
    if (stated == found) continue;
    ThrowInput("{}: {}: it says {}, but the {} parts hold {} tensors", file->path(), kTensorsKey,
               stated, files.size(), found);
  }
}

}  // namespace

std::optional<GgufPartName> GgufPartName::Parse(std::string_view path) {
  std::string_view rest = path;
  if (!TakeSuffix(rest, kExtension)) return std::nullopt;
  const auto count = TakeNumber(rest);
  if (!count || !TakeSuffix(rest, "-of-")) return std::nullopt;
  const auto number = TakeNumber(rest);
  if (!number || !TakeSuffix(rest, "-")) return std::nullopt;
  if (*number < 1 || *number > *count) return std::nullopt;
  return GgufPartName{std::string(rest), *number, *count};
}

std::string GgufPartName::PathOf(int64_t part) const {
  return fmt::format("{}-{:05}-of-{:05}{}", prefix, part, count, kExtension);
}

std::vector<std::shared_ptr<const GgufFile>> OpenGgufModel(const std::string& path) {
  const auto name = GgufPartName::Parse(path);
  if (!name || name->count == 1) {
    auto file = GgufFile::Open(path);
    const auto count = file->header().metadata.Integer(kCountKey);
    if (count && *count > 1) {
      ThrowInput(
          "{}: {} is {}: a part of a split model, whose other parts are found by its name; "
          "expected "
          "one like model-00001-of-{:05}.gguf",
          path, kCountKey, *count, *count);
    }
    return {std::move(file)};
  }
  std::vector<std::shared_ptr<const GgufFile>> files;
  for (int64_t part = 1; part <= name->count; ++part) {
    const std::string part_path = name->PathOf(part);
    std::error_code ignored;
    const auto status = std::filesystem::symlink_status(part_path, ignored);
    if (part != name->number && status.type() == std::filesystem::file_type::not_found) {
      ThrowInput("{}: part {} of {} is missing: there is no {}; is the download complete?", path,
                 part, name->count, part_path);
    }
    files.push_back(GgufFile::Open(part_path));
    CheckPart(*files.back(), part - 1, name->count);
  }
  CheckTensors(files);
  return files;
}

std::vector<std::string> GgufModelsAmong(const std::vector<std::string>& names) {
  std::vector<std::string> models;
  std::set<std::string> sets;
  for (const std::string& name : names) {
    const auto part = GgufPartName::Parse(name);
    if (part && !sets.insert(part->PathOf(part->count)).second) continue;
    models.push_back(name);
  }
  std::ranges::sort(models);
  return models;
}

}  // namespace assay

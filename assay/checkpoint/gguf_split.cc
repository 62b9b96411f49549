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
int64_t Required(const GgufPart& part, std::string_view key, GgufType type) {
  const GgufValue* value = part.header->metadata.Find(key);
  if (value == nullptr) {
    ThrowInput("{}: {} is missing: expected a {} in every part", part.path, key, NameOf(type));
  }
  if (value->type() != type) {
    ThrowInput("{}: {}: expected a {}, found {}", part.path, key, NameOf(type),
               NameOf(value->type()));
  }
  return value->AsInteger().value_or(0);
}

void CheckNumbers(const GgufPart& part, int64_t index, int64_t count) {
  const int64_t found_count = Required(part, kCountKey, GgufType::kU16);
  if (found_count != count) {
    ThrowInput("{}: {}: expected {}, as the names of the files say, found {}", part.path, kCountKey,
               count, found_count);
  }
  const int64_t found = Required(part, kNumberKey, GgufType::kU16);
  if (found != index) {
    ThrowInput("{}: {}: expected {} in part {} of {} (it counts from 0), found {}", part.path,
               kNumberKey, index, index + 1, count, found);
  }
}

// The parts' tensors as one list.
void CheckTensors(std::span<const GgufPart> parts) {
  std::set<std::string_view> names;
  for (const GgufPart& part : parts) {
    for (const GgufTensorInfo& info : part.header->tensors) {
      if (names.insert(info.name).second) continue;
      ThrowInput("{}: duplicate tensor {}: an earlier part holds it too", part.path,
                 Quoted(info.name));
    }
  }
  const auto found = static_cast<int64_t>(names.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && parts[i].header->metadata.Find(kTensorsKey) == nullptr) continue;
    const int64_t stated = Required(parts[i], kTensorsKey, GgufType::kI32);
    if (stated == found) continue;
    ThrowInput("{}: {}: it says {}, but the {} parts hold {} tensors", parts[i].path, kTensorsKey,
               stated, parts.size(), found);
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

void CheckGgufParts(std::span<const GgufPart> parts) {
  const auto count = static_cast<int64_t>(parts.size());
  for (int64_t i = 0; i < count; ++i) CheckNumbers(parts[static_cast<size_t>(i)], i, count);
  CheckTensors(parts);
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
  }
  std::vector<GgufPart> parts;
  for (const auto& file : files) parts.push_back({file->path(), &file->header()});
  CheckGgufParts(parts);
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

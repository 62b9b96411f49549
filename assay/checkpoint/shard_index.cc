#include "assay/checkpoint/shard_index.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/json_text.h"

namespace assay {
namespace {

// mlx-lm and transformers write an integer; some tools a float, some a string.
void ReadTotalSize(const nlohmann::json& metadata, std::string_view path, ShardIndex& index) {
  if (!metadata.is_object()) {
    index.notes.push_back(fmt::format("{}: metadata is no object: ignored", path));
    return;
  }
  const auto found = metadata.find("total_size");
  if (found == metadata.end()) return;
  constexpr double kMaxExact = 9007199254740992.0;  // 2^53
  if (found->is_number_unsigned()) {
    index.total_size = found->get<uint64_t>();
  } else if (found->is_number_float() && found->get<double>() >= 0 &&
             found->get<double>() <= kMaxExact) {
    index.total_size = static_cast<uint64_t>(found->get<double>());
  } else {
    index.notes.push_back(
        fmt::format("{}: total_size: expected a number, found {}: ignored", path,
                    found->is_number() ? "one out of range" : found->type_name()));
  }
}

}  // namespace

std::optional<std::string> WhyNotShardName(std::string_view name) {
  if (name.empty()) return "it is empty";
  if (name == "." || name == "..") return "it names a folder";
  const auto is_separator = [](char c) { return c == '/' || c == '\\'; };
  if (std::any_of(name.begin(), name.end(), is_separator)) return "it holds a path separator";
  if (name.find(':') != std::string_view::npos) return "it holds a colon (drive or URL)";
  const auto is_control = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) == 0x7F;
  };
  if (std::any_of(name.begin(), name.end(), is_control)) return "it holds a control character";
  return std::nullopt;
}

ShardIndex ParseShardIndex(std::string_view text, std::string_view path) {
  const nlohmann::json json = ParseJsonObject(text, path);
  const auto map = json.find("weight_map");
  if (map == json.end()) ThrowInput("{}: \"weight_map\" is missing", path);
  if (!map->is_object()) {
    ThrowInput("{}: weight_map: expected an object, found {}", path, map->type_name());
  }
  ShardIndex index;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      ThrowInput("{}: weight_map: tensor {}: expected a file name, found {}", path, Quoted(tensor),
                 shard.type_name());
    }
    const auto& name = shard.get_ref<const std::string&>();
    if (const auto reason = WhyNotShardName(name)) {
      ThrowInput("{}: weight_map: tensor {}: shard {} is not a plain file name: {}", path,
                 Quoted(tensor), Quoted(name), *reason);
    }
    index.weight_map.emplace(tensor, name);
  }
  if (index.weight_map.empty()) {
    index.notes.push_back(fmt::format("{}: weight_map is empty: no tensors", path));
  }
  if (const auto metadata = json.find("metadata"); metadata != json.end()) {
    ReadTotalSize(*metadata, path, index);
  }
  return index;
}

}  // namespace assay

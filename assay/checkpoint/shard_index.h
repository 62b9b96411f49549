#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

/// "model.safetensors.index.json": which file of the folder holds which tensor.
struct ShardIndex {
  std::map<std::string, std::string> weight_map;  ///< tensor → file name, every name safe to join
  std::optional<uint64_t> total_size;  ///< as stated, for a note only: nothing is sized by it
  std::vector<std::string> notes;
};

/// Parses the text of an index. `path` starts every message.
/// Errors: input, for JSON faults, a weight_map that is missing or no object of strings, duplicate
/// tensors, and for every shard name that WhyNotShardName refuses.
ShardIndex ParseShardIndex(std::string_view text, std::string_view path);

/// Why a shard name could lead out of the model's folder, in words; nothing when it is a plain file
/// name. Path separators of any system, drive letters, URLs, "." and "..", control characters and
/// the empty name are refused.
std::optional<std::string> WhyNotShardName(std::string_view name);

}  // namespace assay

#include "assay/formats/compressed_tensors_config.h"

#include <algorithm>

#include <set>

#include "assay/base/error.h"
#include "assay/base/text.h"

namespace assay {
namespace {

using nlohmann::json;

// Longer patterns and names than any model has; matching cost grows with their product.
constexpr size_t kMaxPattern = 1000;
constexpr size_t kMaxName = 4096;

/// A member that is there and not null; null-valued keys count as left out.
const json* MemberOf(const json& object, const char* key) {
  const auto member = object.find(key);
  return member == object.end() || member->is_null() ? nullptr : &*member;
}

[[noreturn]] void ThrowKind(const std::string& where, const char* key, const char* expected,
                            const json& found) {
  ThrowInput("{}: \"{}\": expected {}, found {}", where, key, expected,
             Quoted(found.dump(-1, ' ', true, json::error_handler_t::replace)));
}

std::string TextOf(const json& object, const char* key, const std::string& where) {
  const json* member = MemberOf(object, key);
  if (member == nullptr) return {};
  if (!member->is_string()) ThrowKind(where, key, "a string", *member);
  return member->get<std::string>();
}

int64_t LengthOf(const json& value, const char* key, const std::string& where) {
  const int64_t length = value.is_number_integer() ? value.get<int64_t>() : 0;
  // −1 stands for "the whole row".
  if (length == -1) return 0;
  if (length < 1 || length > int64_t{1} << 31) ThrowKind(where, key, "a positive integer", value);
  return length;
}

CompressedTensorsWeights WeightsFrom(const json& object, const std::string& where) {
  CompressedTensorsWeights weights;
  if (const json* bits = MemberOf(object, "num_bits")) {
    weights.num_bits = LengthOf(*bits, "num_bits", where);
  }
  if (MemberOf(object, "type") != nullptr) weights.type = TextOf(object, "type", where);
  if (const json* symmetric = MemberOf(object, "symmetric")) {
    if (!symmetric->is_boolean()) ThrowKind(where, "symmetric", "true or false", *symmetric);
    weights.symmetric = symmetric->get<bool>();
  }
  weights.strategy = TextOf(object, "strategy", where);
  if (const json* size = MemberOf(object, "group_size")) {
    weights.group_size = LengthOf(*size, "group_size", where);
  }
  if (const json* block = MemberOf(object, "block_structure")) {
    if (!block->is_array() || block->size() != 2) {
      ThrowKind(where, "block_structure", "two positive integers", *block);
    }
    weights.block_rows = LengthOf((*block)[0], "block_structure", where);
    weights.block_cols = LengthOf((*block)[1], "block_structure", where);
  }
  return weights;
}

/// No file says which module is of which class; embeddings are called so in their last part
/// (embed_tokens, word_embeddings), while vision.patch_embed.proj is a projection.
bool IsEmbedding(std::string_view module) {
  const size_t dot = module.rfind('.');
  return module.substr(dot == std::string_view::npos ? 0 : dot + 1).find("embed") !=
         std::string_view::npos;
}

}  // namespace

CompressedTensorsConfig::Entry CompressedTensorsConfig::EntryFrom(const json& value,
                                                                  const std::string& where) {
  if (!value.is_string()) ThrowKind(where, "targets", "strings", value);
  Entry entry{value.get<std::string>(), std::nullopt};
  if (!entry.text.starts_with("re:")) return entry;
  const std::string pattern = entry.text.substr(3);
  if (pattern.size() > kMaxPattern) {
    ThrowInput("{}: a regular expression of {} characters; at most {} are read", where,
               pattern.size(), kMaxPattern);
  }
  auto flags = std::regex::ECMAScript | std::regex::optimize;
#ifdef __GLIBCXX__
  // Breadth first: no pattern makes matching exponential. Back-references are refused.
  flags |= std::regex_constants::__polynomial;
#endif
  try {
    entry.pattern.emplace(pattern, flags);
  } catch (const std::regex_error&) {
    ThrowInput("{}: {} is not a regular expression", where, Quoted(pattern));
  }
  return entry;
}

bool CompressedTensorsConfig::Names(const Entry& entry, std::string_view module) {
  if (!entry.pattern) return entry.text == module;
  if (module.size() > kMaxName) return false;
  return std::regex_search(module.begin(), module.end(), *entry.pattern,
                           std::regex_constants::match_continuous);
}

bool CompressedTensorsConfig::IsClassOf(const Entry& entry, std::string_view module) {
  // A class is written like "Linear"; a module's path, where it has no dot, in lower case.
  if (entry.pattern || entry.text.empty() || entry.text[0] < 'A' || entry.text[0] > 'Z' ||
      entry.text.find('.') != std::string::npos) {
    return false;
  }
  return IsEmbedding(module) == (entry.text.find("Embedding") != std::string::npos);
}

json CompressedTensorsQuantization(std::string_view format, json settings,
                                   const std::vector<WrittenWeight>& weights) {
  std::set<std::string> classes;
  json ignore = json::array();
  for (const WrittenWeight& weight : weights) {
    std::string module = weight.name;
    if (module.ends_with(kWeightSuffix)) module.resize(module.size() - kWeightSuffix.size());
    if (weight.format != nullptr) {
      classes.insert(IsEmbedding(module) ? "Embedding" : "Linear");
    } else {
      ignore.push_back(std::move(module));
    }
  }
  if (classes.empty()) classes.insert("Linear");
  json group = {{"format", format},
                {"input_activations", nullptr},
                {"output_activations", nullptr},
                {"targets", classes},
                {"weights", std::move(settings)}};
  return {{"config_groups", {{"group_0", std::move(group)}}},
          {"format", format},
          {"global_compression_ratio", nullptr},
          {"ignore", std::move(ignore)},
          {"kv_cache_scheme", nullptr},
          {"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"},
          {"version", "0.20.1"}};
}

std::optional<CompressedTensorsConfig> CompressedTensorsConfig::Read(
    const CheckpointSource& source) {
  const json* root = source.ConfigKey("quantization_config");
  // The key of versions before 0.8.
  if (root == nullptr) root = source.ConfigKey("compression_config");
  if (root == nullptr || !root->is_object()) return std::nullopt;
  const json* method = MemberOf(*root, "quant_method");
  if (method == nullptr || *method != "compressed-tensors") return std::nullopt;

  const std::string where = source.Path() + ": config.json: \"quantization_config\"";
  CompressedTensorsConfig config;
  config.version_ = TextOf(*root, "version", where);
  const std::string top_format = TextOf(*root, "format", where);
  if (const json* ignore = MemberOf(*root, "ignore")) {
    if (!ignore->is_array()) ThrowKind(where, "ignore", "a list", *ignore);
    for (const json& value : *ignore) config.ignore_.push_back(EntryFrom(value, where));
  }
  const json* groups = MemberOf(*root, "config_groups");
  if (groups == nullptr) return config;
  if (!groups->is_object()) ThrowKind(where, "config_groups", "an object", *groups);
  for (const auto& [name, value] : groups->items()) {
    const std::string group_where = fmt::format("{}: {}", where, Quoted(name));
    if (!value.is_object()) ThrowKind(where, "config_groups", "objects", value);
    const json* weights = MemberOf(value, "weights");
    if (weights == nullptr) continue;  // activations only
    if (!weights->is_object()) ThrowKind(group_where, "weights", "an object", *weights);
    Member member;
    member.group.name = name;
    member.group.format = TextOf(value, "format", group_where);
    if (member.group.format.empty()) member.group.format = top_format;
    member.group.weights = WeightsFrom(*weights, group_where);
    if (const json* targets = MemberOf(value, "targets")) {
      if (!targets->is_array()) ThrowKind(group_where, "targets", "a list", *targets);
      for (const json& target : *targets) {
        member.targets.push_back(EntryFrom(target, group_where));
      }
    }
    config.groups_.push_back(std::move(member));
  }
  return config;
}

const CompressedTensorsGroup* CompressedTensorsConfig::GroupOf(std::string_view module) const {
  for (const Entry& entry : ignore_) {
    if (Names(entry, module)) return nullptr;
  }
  // Names come before classes, whatever the order of the groups.
  for (const auto& test : {Names, IsClassOf}) {
    for (const Member& member : groups_) {
      for (const Entry& target : member.targets) {
        if (test(target, module)) return &member.group;
      }
    }
  }
  return nullptr;
}

}  // namespace assay

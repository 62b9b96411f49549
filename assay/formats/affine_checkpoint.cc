#include "assay/formats/affine_checkpoint.h"

#include <fmt/ranges.h>

#include <set>
#include <string>
#include <vector>

#include "assay/base/checked.h"
#include "assay/formats/affine.h"
#include "assay/formats/mlx_config.h"

namespace assay {
namespace {

/// Widths that config.json gives the layers of the model: what a row of a weight may be as long as.
std::set<int64_t> WidthsOf(const CheckpointSource& source) {
  std::set<int64_t> widths;
  const auto collect = [&widths](const nlohmann::json* config) {
    if (config == nullptr || !config->is_object()) return;
    const auto number = [config](const char* key) -> int64_t {
      const auto member = config->find(key);
      if (member == config->end() || !member->is_number_integer()) return 0;
      const auto value = member->get<int64_t>();
      return value > 0 && value < int64_t{1} << 31 ? value : 0;
    };
    for (const char* key : {"hidden_size", "intermediate_size", "moe_intermediate_size",
                            "shared_expert_intermediate_size", "q_lora_rank", "kv_lora_rank"}) {
      widths.insert(number(key));
    }
    widths.insert(number("num_attention_heads") * number("head_dim"));
    widths.erase(0);
  };
  const nlohmann::json* config = source.Config("config.json");
  collect(config);
  if (config != nullptr && config->contains("text_config")) collect(&config->at("text_config"));
  return widths;
}

/// What the planes of `module` hold. They give only bits · group size (256 = 4 · 64 = 8 · 32 =
/// 2 · 128): the config decides when it agrees, else there must be one reading only, at need the
/// one that gives a row a width of the model. Null, with a note, when there are several.
FormatPtr ReadingOf(const MlxModule& module, const std::set<int64_t>& widths,
                    std::vector<std::string>& weight_notes, std::vector<std::string>& notes) {
  const int64_t held = module.words * 32 / module.groups;
  const MlxSettings& said = module.settings;
  std::vector<std::shared_ptr<const AffineFormat>> readings;
  for (const int bits : AffineFormat::kBits) {
    for (const int group_size : AffineFormat::kGroupSizes) {
      if (bits * group_size != held) continue;
      if (bits == said.bits && group_size == said.group_size) {
        return AffineFormat::Make(bits, group_size);
      }
      readings.push_back(AffineFormat::Make(bits, group_size));
    }
  }
  const auto describe = [](int64_t bits, int64_t group_size) {
    return fmt::format("{} bits in groups of {}", bits, group_size);
  };
  if (readings.empty()) {
    notes.push_back(fmt::format("{}: not read: {} bits of codes per scale are no affine format",
                                module.path, held));
    return nullptr;
  }
  if (readings.size() > 1) {
    std::vector<std::shared_ptr<const AffineFormat>> fitting;
    for (const auto& reading : readings) {
      const auto width = CheckedMul(module.groups, int64_t{reading->group_size()});
      if (width && widths.contains(*width)) fitting.push_back(reading);
    }
    if (fitting.size() != 1) {
      std::vector<std::string> choices;
      for (const auto& reading : readings) {
        choices.push_back(describe(reading->bits(), reading->group_size()));
      }
      notes.push_back(fmt::format("{}: not read: config says {}, planes hold {}", module.path,
                                  describe(said.bits, said.group_size),
                                  fmt::join(choices, " or ")));
      return nullptr;
    }
    readings = std::move(fitting);
  }
  const AffineFormat& read = *readings.front();
  weight_notes.push_back(read.group_size() == said.group_size
                             ? fmt::format("config says {} bits, planes hold {}: read as {}",
                                           said.bits, read.bits(), read.bits())
                             : fmt::format("config says {}, planes hold {}: read as held",
                                           describe(said.bits, said.group_size),
                                           describe(read.bits(), read.group_size())));
  return readings.front();
}

void NotePlanesWithoutConfig(const CheckpointSource& source, Recognition& found) {
  int64_t num_alike = 0;
  for (const StoredTensor& biases : source.Tensors()) {
    if (!biases.name.ends_with(".biases")) continue;
    const std::string path = biases.name.substr(0, biases.name.size() - 7);
    const StoredTensor* weight = source.Find(path + ".weight");
    num_alike += weight != nullptr && weight->dtype == DType::kU32 &&
                 source.Find(path + ".scales") != nullptr;
  }
  if (num_alike == 0) return;
  found.notes.push_back(
      fmt::format("{} weights look like MLX affine planes, but no config.json or metadata has "
                  "\"quantization\": "
                  "not read",
                  num_alike));
}

}  // namespace

void RecogniseAffine(const CheckpointSource& source, Recognition& found) {
  const std::optional<MlxConfig> config = MlxConfig::Read(source);
  if (!config) {
    NotePlanesWithoutConfig(source, found);
    return;
  }
  const std::set<int64_t> widths = WidthsOf(source);
  for (const MlxModule& module : MlxModulesOf("affine", source, *config, found.notes)) {
    if (module.biases == nullptr || !IsWeightFloat(module.scales->dtype)) {
      found.notes.push_back(
          fmt::format("{}: not read: affine needs biases, and scales of a float "
                      "type; found {}{}",
                      module.path, NameOf(module.scales->dtype),
                      module.biases == nullptr ? ", no biases" : ""));
      continue;
    }
    std::vector<std::string> weight_notes;
    FormatPtr format = ReadingOf(module, widths, weight_notes, found.notes);
    if (format == nullptr) continue;
    const auto& affine = static_cast<const AffineFormat&>(*format);
    const auto cols = CheckedMul(module.groups, int64_t{affine.group_size()});
    if (!cols) continue;
    FoundWeight weight = MlxWeight(module, source, std::move(format), *cols, module.scales->dtype);
    weight.notes = std::move(weight_notes);
    found.weights.push_back(std::move(weight));
  }
}

}  // namespace assay

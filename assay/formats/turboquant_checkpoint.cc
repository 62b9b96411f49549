// How TurboQuant stands in checkpoints, and its line in the catalogue.

#include <array>
#include <charconv>
#include <utility>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/formats/checkpoint_form.h"
#include "assay/formats/turboquant.h"

namespace assay {
namespace {

constexpr std::string_view kPackedSuffix = ".tq_packed";
constexpr std::string_view kConfigFile = "turboquant_config.json";
// What the loader takes when a key is missing.
constexpr int64_t kDefaultBits = 3;
constexpr int64_t kDefaultGroupSize = 128;

std::string TurboQuantTensor(std::string_view base, std::string_view plane) {
  return fmt::format("{}.tq_{}", base, plane);
}

/// A float widened to f64 as Python's json writes it: the shortest decimal, always with a point.
/// Requires 0 or 1e-4 ≤ |x| < 1e16, where Python uses no exponent; codebooks are.
std::string PythonDecimal(float x) {
  std::array<char, 64> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                    static_cast<double>(x), std::chars_format::fixed);
  std::string text(buffer.data(), result.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

/// A JSON array as json.dump(…, indent=2) writes it one level deep.
std::string PythonArray(std::span<const float> values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    text += fmt::format("{}\n    {}", i == 0 ? "" : ",", PythonDecimal(values[i]));
  }
  return text + "\n  ]";
}

class TurboQuantForm final : public CheckpointForm {
 public:
  std::string TensorName(std::string_view weight_name, std::string_view plane) const override {
    if (weight_name.ends_with(kWeightSuffix)) weight_name.remove_suffix(kWeightSuffix.size());
    return TurboQuantTensor(weight_name, plane);
  }

  // The loader asks only its linear layers for planes.
  std::vector<std::string> DefaultPatterns() const override {
    return {"*.q_proj.weight",    "*.k_proj.weight",  "*.v_proj.weight",   "*.o_proj.weight",
            "*.gate_proj.weight", "*.up_proj.weight", "*.down_proj.weight"};
  }

  // Upstream fails on stacks, and no loader looks for them.
  Shape StoredShape(const PlaneSpec& plane, const Shape& plain_shape) const override {
    if (plain_shape.rank() != 2) {
      ThrowUsage("TurboQuant files hold matrices only, found a weight of shape {}",
                 plain_shape.ToString());
    }
    return plane.shape;
  }

  // Shard for shard, byte for byte as upstream's encoder writes them.
  CheckpointStyle Style() const override {
    CheckpointStyle style;
    style.data_alignment = 8;
    style.keeps_shards = true;
    style.keeps_index_metadata = true;
    return style;
  }

  // Upstream leaves config.json alone.
  void WriteConfig(nlohmann::json& /*config*/, const Format& /*model_format*/,
                   const std::vector<WrittenWeight>& /*weights*/) const override {}

  std::map<std::string, std::string> SideFiles(
      const Format& model_format, const std::vector<WrittenWeight>& /*weights*/) const override {
    const auto& format = dynamic_cast<const TurboQuantFormat&>(model_format);
    const Codebook& codebook = format.EncoderCodebook();
    return {{std::string(kConfigFile),
             fmt::format("{{\n  \"quant_type\": \"turboquant\",\n  \"bits\": {},\n"
                         "  \"group_size\": {},\n  \"rotation\": \"hadamard\",\n"
                         "  \"centroids\": {},\n  \"boundaries\": {}\n}}",
                         format.bits(), format.group_size(), PythonArray(codebook.centroids),
                         PythonArray(codebook.boundaries))}};
  }
};

/// The integer behind a key, or the loader's default. Errors: input.
int64_t IntegerOr(const nlohmann::json& config, const char* key, int64_t fallback,
                  const std::string& where) {
  const auto found = config.find(key);
  if (found == config.end()) return fallback;
  if (!found->is_number_integer()) {
    ThrowInput("{}: {}: expected a whole number, found {}", where, key, found->dump());
  }
  // An unsigned number beyond int64 wraps to a negative one, which no parameter is.
  return found->get<int64_t>();
}

std::shared_ptr<const TurboQuantFormat> FormatOf(const nlohmann::json& config,
                                                 const std::string& where) {
  const int64_t bits = IntegerOr(config, "bits", kDefaultBits, where);
  const int64_t group_size = IntegerOr(config, "group_size", kDefaultGroupSize, where);
  if (bits < 2 || bits > 4) {
    ThrowInput("{}: bits: TurboQuant has 2, 3 or 4, found {}", where, bits);
  }
  if (!TurboQuantFormat::Supports(bits, group_size)) {
    ThrowInput("{}: group_size: TurboQuant has groups of 32, 64 or 128, found {}", where,
               group_size);
  }
  return TurboQuantFormat::Make(static_cast<int>(bits), static_cast<int>(group_size));
}

bool IsTurboQuant(const nlohmann::json& config) {
  const auto type = config.find("quant_type");
  return type != config.end() && type->is_string() && (*type == "turboquant" || *type == "tq");
}

/// The format the configs name; null when they name none. turboquant_config.json wins.
std::shared_ptr<const TurboQuantFormat> ConfiguredFormat(const CheckpointSource& source) {
  if (const nlohmann::json* config = source.Config(kConfigFile)) {
    const std::string where = fmt::format("{}: {}", source.Path(), kConfigFile);
    if (config->contains("quant_type") && !IsTurboQuant(*config)) {
      ThrowInput("{}: quant_type: expected \"turboquant\", found {}", where,
                 config->at("quant_type").dump());
    }
    return FormatOf(*config, where);
  }
  const nlohmann::json* config = source.ConfigKey("quantization_config");
  if (config == nullptr || !config->is_object() || !IsTurboQuant(*config)) return nullptr;
  return FormatOf(*config, fmt::format("{}: config.json: quantization_config", source.Path()));
}

Tensor LoadPlane(const CheckpointSource& source, const std::string& base, std::string_view plane,
                 const std::string& weight) {
  const std::string name = TurboQuantTensor(base, plane);
  if (source.Find(name) == nullptr) {
    ThrowInput("{}: {}: tensor \"{}\" is missing", source.Path(), weight, name);
  }
  return source.Load(name);
}

void RecogniseTurboQuant(const CheckpointSource& source, Recognition& found) {
  std::shared_ptr<const TurboQuantFormat> format;
  for (const StoredTensor& packed : source.Tensors()) {
    if (!packed.name.ends_with(kPackedSuffix)) continue;
    if (format == nullptr) format = ConfiguredFormat(source);
    if (format == nullptr) {
      found.notes.push_back(fmt::format(
          "{}: not read: neither turboquant_config.json nor config.json says how many bits and "
          "which groups the tq_ tensors have",
          packed.name));
      return;
    }
    const std::string base = packed.name.substr(0, packed.name.size() - kPackedSuffix.size());
    FoundWeight weight;
    weight.name = base + std::string(kWeightSuffix);
    const bool is_plane = packed.dtype == DType::kU8 && packed.shape.rank() == 2;
    const auto cols =
        is_plane ? CheckedMul<int64_t>(packed.shape[1], 8 / format->stored_bits()) : std::nullopt;
    if (!cols) {
      found.notes.push_back(fmt::format("{}: not read: expected U8 with 2 axes, found {} {}",
                                        packed.name, NameOf(packed.dtype),
                                        packed.shape.ToString()));
      continue;
    }
    weight.format = format;
    weight.rows = packed.shape[0];
    weight.cols = *cols;
    weight.dtype = DType::kBF16;
    for (const std::string_view plane : {"packed", "scales", "signs"}) {
      if (source.Find(TurboQuantTensor(base, plane)) != nullptr) {
        weight.tensor_names.push_back(TurboQuantTensor(base, plane));
      }
    }
    const StoredTensor* plain = source.Find(weight.name);
    if (plain != nullptr && IsWeightFloat(plain->dtype)) {
      weight.tensor_names.push_back(weight.name);
      weight.notes.emplace_back(
          "a plain tensor of the same name stands beside its planes: ignored");
    }
    weight.load = [&source, format, base, name = weight.name](int64_t /*index*/) {
      Tensor loaded_packed = LoadPlane(source, base, "packed", name);
      Tensor scales = LoadPlane(source, base, "scales", name);
      Tensor signs = LoadPlane(source, base, "signs", name);
      return TurboQuantFromPlanes(format, std::move(loaded_packed), std::move(scales),
                                  std::move(signs), fmt::format("{}: {}", source.Path(), name));
    };
    found.weights.push_back(std::move(weight));
  }
}

FormatPtr ParseTurboQuant(std::string_view name) {
  for (const int bits : TurboQuantFormat::kBits) {
    for (const int group_size : TurboQuantFormat::kGroupSizes) {
      if (name == fmt::format("tq{}g{}", bits, group_size)) {
        return TurboQuantFormat::Make(bits, group_size);
      }
    }
  }
  return nullptr;
}

std::vector<std::string> TurboQuantNames() {
  std::vector<std::string> names;
  for (const int bits : TurboQuantFormat::kBits) {
    for (const int group_size : TurboQuantFormat::kGroupSizes) {
      names.push_back(fmt::format("tq{}g{}", bits, group_size));
    }
  }
  return names;
}

}  // namespace

const CheckpointForm* TurboQuantFormat::Form() const {
  static const TurboQuantForm form;
  return &form;
}

const FormatFamily kTurboQuantFamily = {
    .name = "turboquant",
    .grammar = "tq{2,3,4}g{32,64,128}",
    .summary = "TurboQuant weights: rotated groups, Lloyd-Max codebook, f16 norm per group",
    .details =
        "value = sign · H(centroid[index] · norm) / √g, rounded to bf16; H is the Walsh-Hadamard "
        "transform of a group.\n"
        "Encoding flips signs per column, rotates each group of 32, 64 or 128 values of a row, "
        "divides by its norm and takes the nearest of 2^bits centroids of the codebook for a "
        "coordinate of a random unit vector.\n"
        "tq_packed  U8 [rows, cols · 2 or 4 / 8]  indices, 3-bit ones in nibbles\n"
        "tq_scales  F16 [rows, cols / group]      norms\n"
        "tq_signs   I8 [cols]                     +1 or -1, shared by all rows\n"
        "Written and read by agent-infer (turboquant_config.json). Its signs come from a salted "
        "hash and cannot be drawn again: they are taken from a file, or drawn by a stated "
        "generator from the tensor's name. Refuses NaN, infinity, and norms above 65504.",
    .parse = ParseTurboQuant,
    .names = TurboQuantNames,
    .recognise = RecogniseTurboQuant,
};

}  // namespace assay

#include "assay/formats/mlx_config.h"

#include <algorithm>
#include <array>

#include "assay/base/checked.h"
#include "assay/base/error.h"

namespace assay {
namespace {

using nlohmann::json;

constexpr std::string_view kScalesSuffix = ".scales";

/// What a mode stands for when the config leaves bits and group size out.
constexpr struct {
  std::string_view mode;
  int64_t bits;
  int64_t group_size;
} kModes[] = {{"affine", 4, 64}, {"mxfp4", 4, 32}, {"nvfp4", 4, 16}, {"mxfp8", 8, 32}};

bool IsMode(std::string_view name) {
  return std::ranges::any_of(kModes, [name](const auto& known) { return known.mode == name; });
}

bool IsSettings(const json* entry) {
  return entry != nullptr && entry->is_object() &&
         (entry->contains("bits") || entry->contains("group_size") || entry->contains("mode"));
}

int64_t IntegerMember(const json& object, const char* key, int64_t missing,
                      const std::string& where) {
  const auto member = object.find(key);
  if (member == object.end() || member->is_null()) return missing;
  // What exceeds int64 reads as a negative number.
  const int64_t value = member->is_number_integer() ? member->get<int64_t>() : 0;
  if (value < 1 || value > int64_t{1} << 31) {
    ThrowInput("{}: \"{}\": expected a positive integer, found {}", where, key,
               member->is_primitive() ? member->dump(-1, ' ', true, json::error_handler_t::replace)
                                      : std::string(member->type_name()));
  }
  return value;
}

MlxSettings SettingsFrom(const json& object, const std::string& where) {
  MlxSettings settings;
  if (const auto mode = object.find("mode"); mode != object.end() && !mode->is_null()) {
    if (!mode->is_string()) ThrowInput("{}: \"mode\": expected a string", where);
    settings.mode = mode->get<std::string>();
  }
  for (const auto& known : kModes) {
    if (known.mode != settings.mode) continue;
    settings.bits = known.bits;
    settings.group_size = known.group_size;
  }
  settings.bits = IntegerMember(object, "bits", settings.bits, where);
  settings.group_size = IntegerMember(object, "group_size", settings.group_size, where);
  const auto global = object.find("global_scale");
  settings.global_scale = global != object.end() && global->is_boolean() && global->get<bool>();
  return settings;
}

/// Names that a plane of another module may have: no tensor must belong to two.
bool IsPlaneName(std::string_view name) {
  return name.ends_with(kWeightSuffix) || name.ends_with(kScalesSuffix) ||
         name.ends_with(".biases") || name.ends_with(".global_scale");
}

/// The mode that planes without a config entry of their own are in; nothing when no mode fits.
std::optional<std::string> ModeOfPlanes(const MlxModule& module, const MlxSettings& top) {
  if (IsWeightFloat(module.scales->dtype)) return "affine";
  if (module.scales->dtype != DType::kU8) return std::nullopt;
  if (top.mode != "affine") return top.mode;
  const int64_t bits_per_group = module.words * 32 / module.groups;
  for (const auto& known : kModes) {
    if (known.mode != "affine" && known.bits * known.group_size == bits_per_group) {
      return std::string(known.mode);
    }
  }
  return std::nullopt;
}

/// Why the planes cannot belong together; empty when they can.
std::string Measure(MlxModule& module) {
  const Shape& codes = module.weight->shape;
  const Shape& scales = module.scales->shape;
  const size_t rank = codes.rank();
  if (rank < 2 || scales.rank() != rank ||
      !std::equal(codes.dims().begin(), codes.dims().end() - 1, scales.dims().begin())) {
    return fmt::format("weight {} and scales {} do not fit each other", codes.ToString(),
                       scales.ToString());
  }
  if (module.biases != nullptr &&
      (module.biases->shape != scales || module.biases->dtype != module.scales->dtype)) {
    return fmt::format("scales {} {} and biases {} {} differ", NameOf(module.scales->dtype),
                       scales.ToString(), NameOf(module.biases->dtype),
                       module.biases->shape.ToString());
  }
  module.rows = codes[rank - 2];
  module.words = codes[rank - 1];
  module.groups = scales[rank - 1];
  for (size_t axis = 0; axis + 2 < rank; ++axis) {
    const std::optional<int64_t> product = CheckedMul(module.stack, codes[axis]);
    if (!product) return fmt::format("weight {} is no stack of matrices", codes.ToString());
    module.stack = *product;
  }
  if (module.global_scale != nullptr &&
      module.global_scale->shape.CheckedNumElements() != module.stack) {
    return fmt::format("global_scale {} is not one value for each of {} matrices",
                       module.global_scale->shape.ToString(), module.stack);
  }
  if (module.groups < 1 || module.words < 1 || module.words > INT64_MAX / 32 ||
      module.words * 32 % module.groups != 0) {
    return fmt::format("{} words of codes do not divide into {} groups", module.words,
                       module.groups);
  }
  return {};
}

class MlxForm final : public CheckpointForm {
 public:
  std::string TensorName(std::string_view weight_name, std::string_view plane) const override {
    if (plane == "codes") return std::string(weight_name);
    std::string_view path = weight_name;
    if (path.ends_with(kWeightSuffix)) path.remove_suffix(kWeightSuffix.size());
    return fmt::format("{}.{}", path, plane);
  }

  void WriteConfig(json& config, const Format& model_format,
                   const std::vector<WrittenWeight>& weights) const override {
    const auto* model = dynamic_cast<const MlxFormat*>(&model_format);
    if (model == nullptr) ThrowInternal("{}: MLX has no such mode", model_format.Name());
    json entry = Entry(model->Settings());
    for (const WrittenWeight& weight : weights) {
      // A plain weight gets no entry: the absence of scales tells.
      const auto* own = dynamic_cast<const MlxFormat*>(weight.format.get());
      if (own == nullptr || own->Settings() == model->Settings()) continue;
      std::string_view path = weight.name;
      if (path.ends_with(kWeightSuffix)) path.remove_suffix(kWeightSuffix.size());
      entry[std::string(path)] = Entry(own->Settings());
    }
    config["quantization"] = entry;
    config["quantization_config"] = std::move(entry);
  }

  std::map<std::string, std::string> ShardMetadata() const override { return {{"format", "mlx"}}; }

  CheckpointStyle Style() const override {
    CheckpointStyle style;
    style.mixes_formats = true;
    style.always_index = true;
    style.counts_parameters = true;
    style.json_indent = 4;
    return style;
  }

 private:
  static json Entry(const MlxSettings& settings) {
    json entry = {
        {"group_size", settings.group_size}, {"bits", settings.bits}, {"mode", settings.mode}};
    if (settings.global_scale) entry["global_scale"] = true;
    return entry;
  }
};

}  // namespace

MlxConfig::MlxConfig(const json& quantization, const std::string& where)
    : top_(SettingsFrom(quantization, where)) {
  for (const auto& [key, value] : quantization.items()) {
    if (value.is_boolean()) {
      modules_[key] = value.get<bool>() ? std::optional(top_) : std::nullopt;
    } else if (value.is_object()) {
      modules_[key] = SettingsFrom(value, fmt::format("{}: \"{}\"", where, key));
    }
  }
}

std::optional<MlxConfig> MlxConfig::Read(const CheckpointSource& source) {
  const std::string where = source.Path() + ": config.json: ";
  const json* entry = source.ConfigKey("quantization");
  if (IsSettings(entry) && !entry->contains("quant_method")) {
    return MlxConfig(*entry, where + "\"quantization\"");
  }
  entry = source.ConfigKey("quantization_config");
  if (IsSettings(entry) && !entry->contains("quant_method")) {
    return MlxConfig(*entry, where + "\"quantization_config\"");
  }
  const json* text = source.ConfigKey("text_config");
  if (text == nullptr || !text->is_object()) return std::nullopt;
  const auto nested = text->find("quantization_config");
  if (nested == text->end() || !IsSettings(&*nested) || nested->contains("quant_method")) {
    return std::nullopt;
  }
  return MlxConfig(*nested, where + "\"text_config\": \"quantization_config\"");
}

const std::optional<MlxSettings>* MlxConfig::Find(std::string_view module_path) const {
  const auto found = modules_.find(module_path);
  return found == modules_.end() ? nullptr : &found->second;
}

std::vector<MlxModule> MlxModulesOf(std::string_view mode, const CheckpointSource& source,
                                    const MlxConfig& config, std::vector<std::string>& notes) {
  std::vector<MlxModule> modules;
  for (const StoredTensor& scales : source.Tensors()) {
    if (!scales.name.ends_with(kScalesSuffix)) continue;
    MlxModule module;
    module.path = scales.name.substr(0, scales.name.size() - kScalesSuffix.size());
    module.scales = &scales;
    module.weight = source.Find(module.path + std::string(kWeightSuffix));
    // A parameter that is no module's "weight" keeps its name for the codes.
    if (module.weight == nullptr && !IsPlaneName(module.path)) {
      module.weight = source.Find(module.path);
    }
    if (module.weight == nullptr || module.weight->dtype != DType::kU32) continue;
    module.biases = source.Find(module.path + ".biases");
    module.global_scale = source.Find(module.path + ".global_scale");

    const std::string problem = Measure(module);
    const std::optional<MlxSettings>* own = config.Find(module.path);
    // Problems are told once, by the family of the mode that the module would have.
    std::string stated_mode = own != nullptr && *own ? (*own)->mode : config.top().mode;
    if (!problem.empty()) {
      if (stated_mode == mode) notes.push_back(module.path + ": not read: " + problem);
      continue;
    }
    if (own != nullptr) {
      if (!*own) {
        if (stated_mode == mode) {
          notes.push_back(module.path + ": not read: config says not quantised, yet has scales");
        }
        continue;
      }
      module.settings = **own;
    } else {
      module.settings = config.top();
      const std::optional<std::string> found = ModeOfPlanes(module, config.top());
      if (!found) {
        if (stated_mode == mode) {
          notes.push_back(fmt::format("{}: not read: no mode of MLX has scales of {}", module.path,
                                      NameOf(scales.dtype)));
        }
        continue;
      }
      if (*found != module.settings.mode) {
        module.settings = SettingsFrom({{"mode", *found}}, module.path);
      }
    }
    if (mode == "affine" && !IsMode(module.settings.mode)) {
      notes.push_back(fmt::format("{}: not read: config says mode \"{}\", which is not known",
                                  module.path, module.settings.mode));
    }
    if (module.settings.mode == mode) modules.push_back(std::move(module));
  }
  return modules;
}

FoundWeight MlxWeight(const MlxModule& module, const CheckpointSource& source, FormatPtr format,
                      int64_t cols, DType dtype) {
  FoundWeight weight;
  const Shape& codes = module.weight->shape;
  weight.name = module.weight->name;
  weight.format = std::move(format);
  weight.stack = module.stack;
  weight.rows = module.rows;
  weight.cols = cols;
  weight.dtype = dtype;
  weight.stacked = codes.rank() > 2;
  if (codes.rank() > 3) {
    std::vector<int64_t> dims(codes.dims().begin(), codes.dims().end());
    dims.back() = cols;
    weight.plain_shape = Shape(std::move(dims));
  }
  std::vector<std::pair<std::string, std::string>> planes;  // plane, stored name
  const auto add = [&](const char* plane, const StoredTensor* stored) {
    if (stored == nullptr) return;
    planes.emplace_back(plane, stored->name);
    weight.tensor_names.push_back(stored->name);
  };
  add("codes", module.weight);
  add("scales", module.scales);
  add("biases", module.biases);
  add("global_scale", module.global_scale);
  weight.load = [planes = std::move(planes), source = &source, format = weight.format,
                 stack = weight.stack, stacked = weight.stacked, rows = weight.rows, cols,
                 dtype](int64_t index) {
    EncodedMatrix encoded{format, rows, cols, dtype, {}};
    for (const auto& [plane, name] : planes) {
      Tensor tensor = source->Load(name);
      if (plane == "global_scale") {
        tensor = tensor.As(tensor.dtype(), Shape{stack}).Slice(index);
      } else if (stacked) {
        const Shape& shape = tensor.shape();
        tensor = tensor.As(tensor.dtype(), Shape{stack, rows, shape[shape.rank() - 1]});
        tensor = tensor.Slice(index);
      }
      encoded.planes.push_back({plane, std::move(tensor)});
    }
    return encoded;
  };
  return weight;
}

const CheckpointForm* MlxCheckpointForm() {
  static const MlxForm form;
  return &form;
}

}  // namespace assay

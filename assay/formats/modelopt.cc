#include "assay/formats/modelopt.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/glob.h"
#include "assay/base/text.h"
#include "assay/formats/fp8_block.h"
#include "assay/formats/microscaling.h"
#include "assay/formats/modelopt_int4.h"
#include "assay/formats/nvfp4.h"
#include "assay/formats/plane_folding.h"

namespace assay {
namespace {

using nlohmann::json;

std::string UpperCase(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string TextOf(const json& object, const char* key) {
  const auto member = object.find(key);
  return member != object.end() && member->is_string() ? member->get<std::string>() : "";
}

/// What the two config files agree on.
struct ModelOptConfig {
  std::string algo;                           ///< upper case
  std::vector<std::string> excluded;          ///< module names or globs
  std::map<std::string, std::string> layers;  ///< MIXED_PRECISION: module → algorithm
  DType dtype = DType::kBF16;                 ///< of the model: what decoding rounds to

  std::string AlgoOf(const std::string& module) const {
    if (algo != "MIXED_PRECISION") return algo;
    const auto layer = layers.find(module);
    return layer == layers.end() ? "" : layer->second;
  }
  bool Excludes(std::string_view module) const {
    return std::ranges::any_of(excluded, [&](const std::string& pattern) {
      return GlobMatch(pattern, module) || GlobMatch(pattern + ".*", module);
    });
  }
};

DType ModelDType(const CheckpointSource& source) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    const json* value = source.ConfigKey(key);
    if (value == nullptr || !value->is_string()) continue;
    if (*value == "float16") return DType::kF16;
    if (*value == "float32") return DType::kF32;
  }
  return DType::kBF16;
}

void ReadList(const json& object, const char* key, std::vector<std::string>& list) {
  const auto member = object.find(key);
  if (member == object.end() || !member->is_array()) return;
  for (const json& entry : *member) {
    if (entry.is_string()) list.push_back(entry.get<std::string>());
  }
}

std::optional<ModelOptConfig> ReadModelOptConfig(const CheckpointSource& source) {
  ModelOptConfig config;
  const auto read = [&config](const json& object) {
    if (config.algo.empty()) config.algo = UpperCase(TextOf(object, "quant_algo"));
    ReadList(object, "exclude_modules", config.excluded);
    ReadList(object, "ignore", config.excluded);
    const auto layers = object.find("quantized_layers");
    if (layers == object.end() || !layers->is_object()) return;
    for (const auto& [module, entry] : layers->items()) {
      if (entry.is_object()) config.layers[module] = UpperCase(TextOf(entry, "quant_algo"));
    }
  };
  if (const json* file = source.Config("hf_quant_config.json"); file != nullptr) {
    const auto inner = file->is_object() ? file->find("quantization") : file->end();
    if (file->is_object() && inner != file->end() && inner->is_object()) read(*inner);
  }
  const json* key = source.ConfigKey("quantization_config");
  if (key != nullptr && key->is_object() && TextOf(*key, "quant_method") == "modelopt") {
    read(*key);
    // Some versions nest the settings once more.
    const auto inner = key->find("quantization");
    if (inner != key->end() && inner->is_object()) read(*inner);
  }
  if (config.algo.empty()) return std::nullopt;
  config.dtype = ModelDType(source);
  return config;
}

struct ModelOptModule {
  std::string path;
  const StoredTensor* weight = nullptr;
  const StoredTensor* scale = nullptr;
};

struct Reading {
  FormatPtr format;
  int64_t values_per_byte = 1;
  int64_t rows_per_byte = 1;
  std::vector<StoredPlane> planes;
};

/// The module's planes under an algorithm; without a format when they do not fit it.
Reading ReadingOf(const CheckpointSource& source, const ModelOptModule& module,
                  const std::string& algo) {
  Reading reading;
  reading.planes = {{"codes", module.weight}, {"scales", module.scale}};
  const DType codes = module.weight->dtype;
  const DType scales = module.scale->dtype;
  const bool nvfp4 = algo == "NVFP4" || algo == "W4A16_NVFP4" || algo == "NVFP4_AWQ";
  if (nvfp4 && codes == DType::kU8 && scales == DType::kF8E4M3) {
    const StoredTensor* tensor_scale = source.Find(module.path + ".weight_scale_2");
    if (tensor_scale == nullptr) return reading;
    reading.planes.push_back({"tensor_scale", tensor_scale});
    reading.format = Nvfp4Format::Make(Nvfp4Producer::kModelOpt);
    reading.values_per_byte = 2;
  } else if (algo == "MXFP4" && codes == DType::kU8 && scales == DType::kU8) {
    reading.format = MicroscalingFormat::Make(BlockElement::kE2M1);
    reading.values_per_byte = 2;
  } else if (algo == "MXFP8" && codes == DType::kF8E4M3 && scales == DType::kU8) {
    reading.format = MicroscalingFormat::Make(BlockElement::kE4M3);
  } else if (algo == "W4A16_AWQ" && codes == DType::kU8 && scales == DType::kF32) {
    const int64_t groups = module.scale->shape.rank() == 0 ? 0 : DimFromLast(*module.scale, 0);
    const int64_t cols = DimFromLast(*module.weight, 0);
    if (groups < 1 || cols < 1 || cols % groups != 0) return reading;
    reading.format = std::make_shared<const ModelOptInt4Format>(cols / groups);
    reading.rows_per_byte = 2;
  } else if (codes == DType::kF8E4M3 && IsWeightFloat(scales)) {
    const int64_t per_channel =
        algo == "FP8_PER_CHANNEL_PER_TOKEN" ? 1 : Fp8BlockFormat::kWholeAxis;
    if (algo == "FP8" || per_channel == 1) {
      reading.format = Fp8BlockFormat::Make(per_channel, Fp8BlockFormat::kWholeAxis, scales);
    }
  }
  return reading;
}

}  // namespace

void RecogniseModelOpt(const CheckpointSource& source, Recognition& found) {
  const std::optional<ModelOptConfig> config = ReadModelOptConfig(source);
  if (!config) return;
  std::set<std::string> unread;  // algorithms, each noted once
  for (const StoredTensor& weight : source.Tensors()) {
    if (!weight.name.ends_with(kWeightSuffix) || !IsMatrix(weight)) continue;
    ModelOptModule module;
    module.path = weight.name.substr(0, weight.name.size() - kWeightSuffix.size());
    module.weight = &weight;
    module.scale = source.Find(module.path + ".weight_scale");
    if (module.scale == nullptr || config->Excludes(module.path)) continue;
    const std::string algo = config->AlgoOf(module.path);
    if (algo.empty()) continue;
    Reading reading = ReadingOf(source, module, algo);
    const auto cols = CheckedMul(DimFromLast(weight, 0), reading.values_per_byte);
    const auto rows = CheckedMul(DimFromLast(weight, 1), reading.rows_per_byte);
    const bool stacked = weight.shape.rank() == 3;
    const bool one_stack = std::ranges::all_of(reading.planes, [&](const StoredPlane& plane) {
      const Shape& shape = plane.stored->shape;
      return !stacked || (shape.rank() > 0 && shape[0] == weight.shape[0]);
    });
    if (reading.format == nullptr || !cols || !rows || !one_stack) {
      if (unread.insert(algo).second) {
        found.notes.push_back(fmt::format(
            "{}: not read: quant_algo {} with weight {} and weight_scale {} (and others alike)",
            Quoted(module.path), Quoted(algo), NameOf(weight.dtype), NameOf(module.scale->dtype)));
      }
      continue;
    }
    FoldedPlanes folded;
    folded.name = weight.name;
    folded.format = reading.format;
    folded.stacked = stacked;
    folded.stack = stacked ? weight.shape[0] : 1;
    folded.rows = *rows;
    folded.cols = *cols;
    folded.dtype = config->dtype;
    folded.planes = std::move(reading.planes);
    found.weights.push_back(FoldPlanes(source, std::move(folded)));
  }
}

namespace {

class ModelOptCheckpointForm final : public CheckpointForm {
 public:
  std::string TensorName(std::string_view weight_name, std::string_view plane) const override {
    const std::string module = ModuleOf(weight_name);
    if (plane == "scales") return module + ".weight_scale";
    if (plane == "tensor_scale") return module + ".weight_scale_2";
    return module + ".weight";
  }

  void WriteConfig(json& config, const Format& model_format,
                   const std::vector<WrittenWeight>& weights) const override {
    const auto [algo, group_size] = AlgoOf(model_format);
    json quantization = {{"quant_method", "modelopt"},
                         {"quant_algo", algo},
                         {"ignore", Plain(weights)},
                         {"producer", Producer()}};
    if (group_size == 16) {
      quantization["config_groups"]["group_0"] = {
          {"weights",
           {{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", group_size}}},
          {"targets", {"Linear"}}};
    }
    config["quantization_config"] = std::move(quantization);
  }

  std::map<std::string, std::string> SideFiles(
      const Format& model_format, const std::vector<WrittenWeight>& weights) const override {
    const auto [algo, group_size] = AlgoOf(model_format);
    json quantization = {{"quant_algo", algo},
                         {"kv_cache_quant_algo", nullptr},
                         {"exclude_modules", Plain(weights)}};
    if (group_size != 0) quantization["group_size"] = group_size;
    const json file = {{"producer", Producer()}, {"quantization", std::move(quantization)}};
    return {{"hf_quant_config.json", file.dump(4) + "\n"}};
  }

  std::map<std::string, std::string> ShardMetadata() const override { return {{"format", "pt"}}; }

 private:
  static std::pair<std::string, int> AlgoOf(const Format& format) {
    if (const auto* nv = dynamic_cast<const Nvfp4Format*>(&format);
        nv != nullptr && nv->producer() == Nvfp4Producer::kModelOpt) {
      return {"W4A16_NVFP4", 16};
    }
    if (const auto* mx = dynamic_cast<const MicroscalingFormat*>(&format)) {
      if (mx->element() == BlockElement::kE2M1) return {"mxfp4", 0};
      if (mx->element() == BlockElement::kE4M3) return {"MXFP8", 32};
    }
    ThrowInternal("{}: ModelOpt has no such format", format.Name());
  }
  static json Plain(const std::vector<WrittenWeight>& weights) {
    json modules = json::array();
    for (const WrittenWeight& weight : weights) {
      if (weight.format == nullptr) modules.push_back(ModuleOf(weight.name));
    }
    return modules;
  }
  /// Named as the reader of such files expects; the version says what was followed.
  static json Producer() { return {{"name", "modelopt"}, {"version", "0.47.0"}}; }
};

}  // namespace

const CheckpointForm* ModelOptForm() {
  static const ModelOptCheckpointForm kForm;
  return &kForm;
}

}  // namespace assay

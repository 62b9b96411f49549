#include <string>
#include <vector>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/formats/checkpoint_form.h"
#include "assay/formats/fp8_block.h"

namespace assay {
namespace {

constexpr int64_t kExpertBlock = 32;  ///< inputs that share a scale in an FP4 expert

/// The plane of matrix `index`: the tensor itself, or its entry along the stack axis.
Tensor MatrixOf(const Tensor& tensor, bool stacked, int64_t index) {
  return stacked ? tensor.Slice(index) : tensor;
}

struct BlockShape {
  int64_t rows = Fp8BlockFormat::kWholeAxis;
  int64_t cols = Fp8BlockFormat::kWholeAxis;
};

/// quantization_config as DeepSeek and transformers write it for fp8.
struct Fp8Config {
  std::optional<BlockShape> block;  ///< weight_block_size
  bool fp4_experts = false;
};

std::optional<Fp8Config> ReadFp8Config(const CheckpointSource& source) {
  const nlohmann::json* quantization = source.ConfigKey("quantization_config");
  if (quantization == nullptr || !quantization->is_object() ||
      quantization->value("quant_method", nlohmann::json()) != "fp8") {
    return std::nullopt;
  }
  Fp8Config config;
  const auto block = quantization->find("weight_block_size");
  if (block != quantization->end() && !block->is_null()) {
    const auto is_length = [](const nlohmann::json& value) {
      return value.is_number_integer() && value.get<int64_t>() > 0 &&
             value.get<int64_t>() <= int64_t{1} << 31;
    };
    const bool valid =
        block->is_array() && block->size() == 2 && is_length((*block)[0]) && is_length((*block)[1]);
    if (!valid) {
      ThrowInput(
          "{}: config: quantization_config.weight_block_size: expected two positive integers, "
          "found {}",
          source.Path(), block->dump());
    }
    config.block = BlockShape{(*block)[0].get<int64_t>(), (*block)[1].get<int64_t>()};
  }
  // V4 says it beside quantization_config, V4.1 inside.
  const nlohmann::json* top = source.Config("config.json");
  config.fp4_experts =
      quantization->value("expert_dtype", nlohmann::json()) == "fp4" ||
      (top != nullptr && top->is_object() && top->value("expert_dtype", nlohmann::json()) == "fp4");
  return config;
}

/// The scale tensor of `base`: V3's name, or V4's. Null when there is neither.
const StoredTensor* ScaleOf(const CheckpointSource& source, const std::string& base) {
  const StoredTensor* scale = source.Find(base + ".weight_scale_inv");
  return scale != nullptr ? scale : source.Find(base + ".scale");
}

FoundWeight Describe(const StoredTensor& weight, const StoredTensor& scale, FormatPtr format,
                     int64_t cols) {
  FoundWeight found;
  found.name = weight.name;
  found.format = std::move(format);
  found.stacked = weight.shape.rank() == 3;
  found.stack = found.stacked ? weight.shape[0] : 1;
  found.rows = weight.shape[weight.shape.rank() - 2];
  found.cols = cols;
  found.dtype = DType::kBF16;
  found.tensor_names = {weight.name, scale.name};
  return found;
}

void AddFp8(const CheckpointSource& source, const Fp8Config& config, const StoredTensor& weight,
            const StoredTensor& scale, Recognition& found) {
  const size_t rank = weight.shape.rank();
  const bool stacked = rank == 3;
  if (!IsWeightFloat(scale.dtype) && scale.dtype != DType::kF8E8M0) {
    found.notes.push_back(
        fmt::format("{}: not read: scales of {}; expected F32, F16, BF16 or "
                    "F8_E8M0",
                    scale.name, NameOf(scale.dtype)));
    return;
  }
  const int64_t rows = weight.shape[rank - 2];
  const int64_t cols = weight.shape[rank - 1];
  const auto scale_elements = scale.shape.CheckedNumElements();
  const int64_t stack = stacked ? weight.shape[0] : 1;
  const auto format = [&]() -> std::shared_ptr<const Fp8BlockFormat> {
    if (config.block) {
      return Fp8BlockFormat::Make(config.block->rows, config.block->cols, scale.dtype);
    }
    if (scale_elements == stack) {
      return Fp8BlockFormat::Make(Fp8BlockFormat::kWholeAxis, Fp8BlockFormat::kWholeAxis,
                                  scale.dtype);
    }
    const auto all_rows = CheckedMul(stack, rows);
    if (all_rows && scale_elements == *all_rows) {
      return Fp8BlockFormat::Make(1, Fp8BlockFormat::kWholeAxis, scale.dtype);
    }
    return nullptr;
  }();
  if (format == nullptr) {
    found.notes.push_back(
        fmt::format("{}: not read: config has no weight_block_size, and {} scales are neither one "
                    "nor one a row",
                    weight.name, scale.shape.ToString()));
    return;
  }
  const Shape expected = format->ScaleShape(rows, cols);
  const auto expected_elements = CheckedMul(expected.NumElements(), stack);
  const Shape full = stacked ? Shape{stack, expected[0], expected[1]} : expected;
  const bool fits = config.block ? scale.shape == full : scale_elements == expected_elements;
  if (!fits) {
    ThrowInput("{}: tensor \"{}\": expected scales {} for {} {} weights, found {}", source.Path(),
               scale.name, full.ToString(), weight.shape.ToString(), format->Name(),
               scale.shape.ToString());
  }
  FoundWeight found_weight = Describe(weight, scale, format, cols);
  found_weight.load = [&source, names = found_weight.tensor_names, format, rows, cols, stacked,
                       full](int64_t index) {
    const Tensor codes = source.Load(names[0]);
    const Tensor loaded = source.Load(names[1]);
    const Tensor scales = loaded.As(loaded.dtype(), full);
    return EncodedMatrix{
        format,
        rows,
        cols,
        DType::kBF16,
        {{"codes", MatrixOf(codes, stacked, index)}, {"scales", MatrixOf(scales, stacked, index)}}};
  };
  found.weights.push_back(std::move(found_weight));
}

/// An FP4 expert: e2m1 nibbles in I8 with one e8m0 scale per 32 inputs, the bytes of mxfp4.
void AddFp4Expert(const CheckpointSource& source, const StoredTensor& weight,
                  const StoredTensor& scale, Recognition& found) {
  const size_t rank = weight.shape.rank();
  const int64_t rows = weight.shape[rank - 2];
  const auto cols = CheckedMul(weight.shape[rank - 1], int64_t{2});
  const bool stacked = rank == 3;
  if (!cols || *cols % kExpertBlock != 0) {
    ThrowInput("{}: tensor \"{}\": {} bytes a row are no whole number of {}-value FP4 blocks",
               source.Path(), weight.name, weight.shape[rank - 1], kExpertBlock);
  }
  const Shape expected = stacked ? Shape{weight.shape[0], rows, *cols / kExpertBlock}
                                 : Shape{rows, *cols / kExpertBlock};
  if (scale.dtype != DType::kF8E8M0 || scale.shape != expected) {
    ThrowInput("{}: tensor \"{}\": expected F8_E8M0 {} for FP4 experts, found {} {}", source.Path(),
               scale.name, expected.ToString(), NameOf(scale.dtype), scale.shape.ToString());
  }
  const FormatPtr format = Format::Parse("mxfp4");
  FoundWeight found_weight = Describe(weight, scale, format, *cols);
  found_weight.load = [&source, names = found_weight.tensor_names, format, rows, cols = *cols,
                       stacked](int64_t index) {
    EncodedMatrix encoded{format, rows, cols, DType::kBF16, {}};
    for (const PlaneSpec& spec : format->Layout(rows, cols, DType::kBF16)) {
      const Tensor stored =
          MatrixOf(source.Load(spec.name == "codes" ? names[0] : names[1]), stacked, index);
      encoded.planes.push_back({spec.name, stored.As(spec.dtype, spec.shape)});
    }
    return encoded;
  };
  found.weights.push_back(std::move(found_weight));
}

class Fp8BlockForm final : public CheckpointForm {
 public:
  std::string TensorName(std::string_view weight_name, std::string_view plane) const override {
    const std::string name(weight_name);
    return plane == "codes" ? name : name + "_scale_inv";
  }

  void WriteConfig(nlohmann::json& config, const Format& model_format,
                   const std::vector<WrittenWeight>& weights) const override {
    const auto& format = dynamic_cast<const Fp8BlockFormat&>(model_format);
    nlohmann::json quantization = {
        {"activation_scheme", "dynamic"},
        {"fmt", "e4m3"},
        {"quant_method", "fp8"},
        {"weight_block_size", {format.block_rows(), format.block_cols()}}};
    if (format.scale_dtype() == DType::kF8E8M0) quantization["scale_fmt"] = "ue8m0";
    nlohmann::json plain = nlohmann::json::array();
    for (const WrittenWeight& weight : weights) {
      if (weight.format == nullptr && weight.name.ends_with(kWeightSuffix)) {
        plain.push_back(ModuleOf(weight.name));
      }
    }
    if (!plain.empty()) quantization["modules_to_not_convert"] = std::move(plain);
    config["quantization_config"] = std::move(quantization);
  }
};

}  // namespace

void RecogniseFp8Block(const CheckpointSource& source, Recognition& found) {
  const std::optional<Fp8Config> config = ReadFp8Config(source);
  if (!config) return;
  for (const StoredTensor& weight : source.Tensors()) {
    const size_t rank = weight.shape.rank();
    if (!weight.name.ends_with(kWeightSuffix) || (rank != 2 && rank != 3)) continue;
    const bool is_fp8 = weight.dtype == DType::kF8E4M3;
    if (!is_fp8 && weight.dtype != DType::kI8) continue;
    const StoredTensor* scale = ScaleOf(source, ModuleOf(weight.name));
    if (scale == nullptr) {
      found.notes.push_back(fmt::format("{}: {} without {}.weight_scale_inv or {}.scale: not read",
                                        weight.name, NameOf(weight.dtype), ModuleOf(weight.name),
                                        ModuleOf(weight.name)));
    } else if (is_fp8) {
      AddFp8(source, *config, weight, *scale, found);
    } else if (config->fp4_experts) {
      AddFp4Expert(source, weight, *scale, found);
    } else {
      found.notes.push_back(fmt::format(
          "{}: I8 with scales, but no \"expert_dtype\": \"fp4\" in the config: not read",
          weight.name));
    }
  }
}

const CheckpointForm* Fp8BlockCheckpointForm() {
  static const Fp8BlockForm kForm;
  return &kForm;
}

}  // namespace assay

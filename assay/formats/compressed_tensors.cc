#include "assay/formats/compressed_tensors.h"

#include <set>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/formats/compressed_tensors_config.h"
#include "assay/formats/fp8_block.h"
#include "assay/formats/microscaling.h"
#include "assay/formats/nvfp4.h"
#include "assay/formats/plane_folding.h"

namespace assay {
namespace {

using nlohmann::json;

constexpr std::string_view kPacked = ".weight_packed";

/// One module's tensors, looked up by name.
struct PackedModule {
  std::string path;
  const StoredTensor* codes = nullptr;
  const StoredTensor* scales = nullptr;
};

void NoteNotRead(Recognition& found, const PackedModule& module, const std::string& why) {
  found.notes.push_back(fmt::format("{}: not read: {}", Quoted(module.path), why));
}

/// A weight whose rows take `code_bytes` for every `values` of them.
std::optional<FoldedPlanes> Fold(const PackedModule& module, FormatPtr format, int64_t values,
                                 int64_t code_bytes, DType dtype, Recognition& found) {
  const int64_t row_bytes = DimFromLast(*module.codes, 0);
  const auto cols = CheckedMul(row_bytes / code_bytes, values);
  if (row_bytes % code_bytes != 0 || !cols) {
    NoteNotRead(
        found, module,
        fmt::format("{} bytes a row are no whole number of {} blocks", row_bytes, format->Name()));
    return std::nullopt;
  }
  FoldedPlanes folded;
  folded.name = module.path + std::string(kWeightSuffix);
  folded.format = std::move(format);
  folded.stacked = module.codes->shape.rank() == 3;
  folded.stack = folded.stacked ? module.codes->shape[0] : 1;
  folded.rows = DimFromLast(*module.codes, 1);
  folded.cols = *cols;
  folded.dtype = dtype;
  folded.planes = {{"codes", module.codes}, {"scales", module.scales}};
  for (const StoredPlane& plane : folded.planes) {
    const Shape& shape = plane.stored->shape;
    if (folded.stacked && (shape.rank() == 0 || shape[0] != folded.stack)) {
      NoteNotRead(found, module,
                  fmt::format("{} {} is no stack of {}", Quoted(plane.stored->name),
                              shape.ToString(), folded.stack));
      return std::nullopt;
    }
  }
  return folded;
}

void AddMx(const CheckpointSource& source, const PackedModule& module, BlockElement element,
           Recognition& found) {
  if (module.scales->dtype != DType::kU8 && module.scales->dtype != DType::kF8E8M0) {
    return NoteNotRead(found, module,
                       fmt::format("scales of {}; expected U8", NameOf(module.scales->dtype)));
  }
  auto folded = Fold(module, MicroscalingFormat::Make(element), 32, 4 * FactsOf(element).bits,
                     DType::kBF16, found);
  if (folded) found.weights.push_back(FoldPlanes(source, std::move(*folded)));
}

void AddNvfp4(const CheckpointSource& source, const PackedModule& module, Recognition& found) {
  const StoredTensor* global = source.Find(module.path + ".weight_global_scale");
  if (global == nullptr) {
    return NoteNotRead(found, module, "weight_global_scale is missing");
  }
  auto folded = Fold(module, Nvfp4Format::Make(Nvfp4Producer::kCompressedTensors), 16, 8,
                     DType::kBF16, found);
  if (!folded) return;
  if (folded->stacked && global->shape.CheckedNumElements() != folded->stack) {
    return NoteNotRead(found, module, "weight_global_scale is not one value for each matrix");
  }
  folded->planes.push_back({"global_scale", global});
  found.weights.push_back(FoldPlanes(source, std::move(*folded)));
}

void AddFp8(const CheckpointSource& source, const PackedModule& module,
            const CompressedTensorsWeights& weights, Recognition& found) {
  const DType scale_dtype = module.scales->dtype;
  if (!IsWeightFloat(scale_dtype)) {
    return NoteNotRead(found, module,
                       fmt::format("scales of {}; expected F32, F16 or BF16", NameOf(scale_dtype)));
  }
  int64_t block_rows = Fp8BlockFormat::kWholeAxis;
  int64_t block_cols = Fp8BlockFormat::kWholeAxis;
  if (weights.strategy == "channel") {
    block_rows = 1;
  } else if (weights.strategy == "group" && weights.group_size > 0) {
    block_rows = 1;
    block_cols = weights.group_size;
  } else if (weights.strategy == "block" && weights.block_rows > 0 && weights.block_cols > 0) {
    block_rows = weights.block_rows;
    block_cols = weights.block_cols;
  } else if (weights.strategy != "tensor") {
    return NoteNotRead(found, module,
                       fmt::format("strategy {} of fp8 weights", Quoted(weights.strategy)));
  }
  auto folded = Fold(module, Fp8BlockFormat::Make(block_rows, block_cols, scale_dtype), 1, 1,
                     scale_dtype, found);
  if (folded) found.weights.push_back(FoldPlanes(source, std::move(*folded)));
}

/// Integer formats have their own recogniser; the weights of the others end here.
void AddModule(const CheckpointSource& source, const CompressedTensorsGroup& group, bool packed,
               const PackedModule& module, Recognition& found) {
  const std::string& format = group.format;
  const DType codes = module.codes->dtype;
  const bool is_float = group.weights.type == "float";
  if (packed && codes == DType::kU8) {
    if (format == "nvfp4-pack-quantized") return AddNvfp4(source, module, found);
    if (format == "mxfp4-pack-quantized") return AddMx(source, module, BlockElement::kE2M1, found);
    if (format == "mxfp6-pack-quantized") return AddMx(source, module, BlockElement::kE2M3, found);
  }
  if (!packed && codes == DType::kF8E4M3) {
    if (format == "mxfp8-quantized") return AddMx(source, module, BlockElement::kE4M3, found);
    if (is_float && (format == "float-quantized" || format == "naive-quantized")) {
      return AddFp8(source, module, group.weights, found);
    }
  }
  if (is_float) {
    NoteNotRead(found, module,
                fmt::format("codes of {} under compressed-tensors format {}", NameOf(codes),
                            Quoted(format)));
  }
}

}  // namespace

void RecogniseCompressedTensors(const CheckpointSource& source, Recognition& found) {
  const std::optional<CompressedTensorsConfig> config = CompressedTensorsConfig::Read(source);
  if (!config) return;
  for (const StoredTensor& tensor : source.Tensors()) {
    const bool packed = tensor.name.ends_with(kPacked);
    if (!packed && !tensor.name.ends_with(kWeightSuffix)) continue;
    PackedModule module;
    module.path = tensor.name.substr(
        0, tensor.name.size() - (packed ? kPacked.size() : kWeightSuffix.size()));
    module.codes = &tensor;
    module.scales = source.Find(module.path + ".weight_scale");
    if (module.scales == nullptr || !IsMatrix(tensor)) continue;
    const CompressedTensorsGroup* group = config->GroupOf(module.path);
    if (group != nullptr) AddModule(source, *group, packed, module, found);
  }
}

namespace {

/// What config.json says of the weights of a format.
struct Scheme {
  std::string_view format;
  int num_bits;
  int group_size;
  std::string_view strategy;
  std::string_view scale_dtype;
};

Scheme SchemeOf(const Format& format) {
  if (const auto* mx = dynamic_cast<const MicroscalingFormat*>(&format)) {
    switch (mx->element()) {
      case BlockElement::kE2M1:
        return {"mxfp4-pack-quantized", 4, 32, "group", "torch.uint8"};
      case BlockElement::kE2M3:
        return {"mxfp6-pack-quantized", 6, 32, "group", "torch.uint8"};
      case BlockElement::kE4M3:
        return {"mxfp8-quantized", 8, 32, "group", "torch.uint8"};
      case BlockElement::kE3M2:
      case BlockElement::kE5M2:
      case BlockElement::kInt8:
        break;
    }
  }
  const auto* nv = dynamic_cast<const Nvfp4Format*>(&format);
  if (nv == nullptr || nv->producer() != Nvfp4Producer::kCompressedTensors) {
    ThrowInternal("{}: compressed-tensors has no such format", format.Name());
  }
  return {"nvfp4-pack-quantized", 4, 16, "tensor_group", "torch.float8_e4m3fn"};
}

class CompressedTensorsCheckpointForm final : public CheckpointForm {
 public:
  explicit CompressedTensorsCheckpointForm(bool packed) : packed_(packed) {}

  std::string TensorName(std::string_view weight_name, std::string_view plane) const override {
    const std::string module = ModuleOf(weight_name);
    if (plane == "scales") return module + ".weight_scale";
    if (plane == "global_scale") return module + ".weight_global_scale";
    return module + (packed_ ? ".weight_packed" : ".weight");
  }

  void WriteConfig(json& config, const Format& model_format,
                   const std::vector<WrittenWeight>& weights) const override {
    const Scheme scheme = SchemeOf(model_format);
    config["quantization_config"] =
        CompressedTensorsQuantization(scheme.format,
                                      {{"dynamic", false},
                                       {"group_size", scheme.group_size},
                                       {"num_bits", scheme.num_bits},
                                       {"scale_dtype", scheme.scale_dtype},
                                       {"strategy", scheme.strategy},
                                       {"symmetric", true},
                                       {"type", "float"}},
                                      weights);
  }

  std::map<std::string, std::string> ShardMetadata() const override { return {{"format", "pt"}}; }

 private:
  bool packed_;
};

}  // namespace

const CheckpointForm* CompressedTensorsForm(bool packed) {
  static const CompressedTensorsCheckpointForm kPackedForm(true);
  static const CompressedTensorsCheckpointForm kWholeBytes(false);
  return packed ? &kPackedForm : &kWholeBytes;
}

}  // namespace assay

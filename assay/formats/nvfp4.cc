#include "assay/formats/nvfp4.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "assay/base/error.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

constexpr int kBlock = 16;
constexpr float kElementMax = 6.0f;
constexpr float kScaleMax = 448.0f;
constexpr float kBothMax = kElementMax * kScaleMax;  // 2688

struct Variant {
  Nvfp4Producer producer;
  std::string_view name;
  std::string_view summary;
  std::string_view scale_plane;
};

constexpr Variant kVariants[] = {
    {Nvfp4Producer::kModelOpt, "nvfp4", "as NVIDIA ModelOpt encodes", "tensor_scale"},
    {Nvfp4Producer::kCompressedTensors, "nvfp4:ct", "as compressed-tensors encodes",
     "global_scale"},
    {Nvfp4Producer::kTorchao, "nvfp4:torchao", "as torchao encodes", "tensor_scale"},
    {Nvfp4Producer::kTorchaoOneLevel, "nvfp4:torchao-one-level",
     "as torchao encodes without a tensor scale", ""},
};

const Variant& VariantOf(Nvfp4Producer producer) {
  for (const Variant& variant : kVariants) {
    if (variant.producer == producer) return variant;
  }
  ThrowInternal("nvfp4: no producer {}", static_cast<int>(producer));
}

/// x rounded to the dtype a producer computes in.
float RoundTo(DType dtype, float x) {
  if (dtype == DType::kBF16) return RoundToBF16(x);
  if (dtype == DType::kF16) return RoundToF16(x);
  return x;
}

/// What a block is encoded with: its scale byte, and the factor of the quotient.
struct BlockScale {
  uint8_t byte;
  float factor;
};

BlockScale ModelOptScale(float amax, float tensor_scale) {
  // A tensor scale of 0 leaves nothing to encode: every quotient is ±0.
  if (tensor_scale == 0.0f) return {0x38, std::numeric_limits<float>::infinity()};
  float scale = amax / (kElementMax * tensor_scale);
  if (scale == 0.0f) scale = 1.0f;
  const uint8_t byte = FloatToE4M3Saturating(std::clamp(scale, 0x1p-9f, kScaleMax));
  const float divisor = E4M3ToFloat(byte) * tensor_scale;
  return {byte, divisor == 0.0f ? std::numeric_limits<float>::infinity() : divisor};
}

BlockScale CompressedTensorsScale(float amax, float global_scale, DType dtype) {
  const float local = RoundTo(dtype, amax / kElementMax);
  const float scale = std::min(global_scale * local, kScaleMax);
  uint8_t byte = FloatToE4M3Saturating(scale);
  if (byte == 0) byte = 0x20;  // 0.125
  return {byte, E4M3ToFloat(byte) / global_scale};
}

BlockScale TorchaoScale(float amax, float tensor_scale) {
  if (tensor_scale == 0.0f) return {0x08, 0.0f};
  const float scale = (amax / kElementMax) / tensor_scale;
  const uint8_t byte = FloatToE4M3Saturating(std::clamp(scale, 0x1p-6f, kScaleMax));
  const float reciprocal = 1.0f / tensor_scale;
  // 1 / p overflows only for subnormal p; 0 · ∞ would be NaN.
  if (std::isinf(reciprocal)) return {byte, 0.0f};
  return {byte, reciprocal / E4M3ToFloat(byte)};
}

/// compressed-tensors takes a reciprocal and a product, each rounded to the dtype of the weight.
float CompressedTensorsGlobalScale(float amax, DType dtype) {
  const float tiny = dtype == DType::kF16 ? 0x1p-14f : 0x1p-126f;
  const float reciprocal = RoundTo(dtype, 1.0f / std::max(amax, tiny));
  const float scale = RoundTo(dtype, reciprocal * kBothMax);
  return std::isfinite(scale) ? scale : 1.0f;
}

ElementRounding RoundingOf(Nvfp4Producer producer) {
  switch (producer) {
    case Nvfp4Producer::kModelOpt:
      return ElementRounding::kNearestEvenNegative;
    case Nvfp4Producer::kCompressedTensors:
      return ElementRounding::kNearestEvenPlainZero;
    case Nvfp4Producer::kTorchao:
    case Nvfp4Producer::kTorchaoOneLevel:
      return ElementRounding::kNearestEven;
  }
  return ElementRounding::kNearestEven;
}

}  // namespace

float ScalarOf(const Tensor& plane) {
  float value = 0.0f;
  if (plane.bytes().size() != sizeof(value))
    ThrowInternal("scalar plane of {} bytes", plane.bytes().size());
  std::memcpy(&value, plane.bytes().data(), sizeof(value));
  return value;
}

std::optional<float> GivenScale(const Format& format, const EncodeOptions& options,
                                std::string_view name) {
  for (const Plane& plane : options.given_planes) {
    if (plane.name != name) continue;
    if (plane.tensor.dtype() != DType::kF32 || plane.tensor.shape().NumElements() != 1) {
      ThrowUsage("{}: \"{}\" of {}: expected one F32, found {} {}", options.tensor_name, name,
                 format.Name(), NameOf(plane.tensor.dtype()), plane.tensor.shape().ToString());
    }
    const float value = ScalarOf(plane.tensor);
    if (!(value > 0.0f) || !std::isfinite(value)) {
      ThrowUsage("{}: \"{}\" of {}: expected a positive finite scale, found {}",
                 options.tensor_name, name, format.Name(), value);
    }
    return value;
  }
  return std::nullopt;
}

Nvfp4Format::Nvfp4Format(Nvfp4Producer producer)
    : BlockFormat(BlockElement::kE2M1, kBlock, DType::kU8, DType::kF8E4M3), producer_(producer) {}

std::shared_ptr<const Nvfp4Format> Nvfp4Format::Make(Nvfp4Producer producer) {
  return std::make_shared<const Nvfp4Format>(producer);
}

std::string_view Nvfp4Format::TensorScalePlane() const noexcept {
  return VariantOf(producer_).scale_plane;
}

std::string Nvfp4Format::Name() const { return std::string(VariantOf(producer_).name); }

std::string Nvfp4Format::Summary() const {
  return fmt::format("NVFP4: 4-bit e2m1 elements, an e4m3 scale for every 16, {}",
                     VariantOf(producer_).summary);
}

std::vector<PlaneSpec> Nvfp4Format::Layout(int64_t rows, int64_t cols, DType dtype) const {
  std::vector<PlaneSpec> planes = BlockFormat::Layout(rows, cols, dtype);
  if (producer_ == Nvfp4Producer::kCompressedTensors) {
    planes.push_back({"global_scale", DType::kF32, Shape{1}});
  } else if (!TensorScalePlane().empty()) {
    planes.push_back({"tensor_scale", DType::kF32, Shape{}});
  }
  return planes;
}

float Nvfp4Format::TensorScaleFor(const MatrixView& matrix, const EncodeOptions& options) const {
  if (producer_ == Nvfp4Producer::kTorchaoOneLevel) return 1.0f;
  if (const auto given = GivenScale(*this, options, TensorScalePlane())) return *given;
  const float amax = AbsMaxOf(matrix, options);
  if (producer_ == Nvfp4Producer::kCompressedTensors) {
    return CompressedTensorsGlobalScale(amax, matrix.dtype());
  }
  return amax / kBothMax;
}

EncodedMatrix Nvfp4Format::Encode(const MatrixView& matrix, const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  const bool ct = producer_ == Nvfp4Producer::kCompressedTensors;
  const DType source = matrix.dtype();
  const float tensor_scale = TensorScaleFor(matrix, options);
  EncodedMatrix encoded = Allocate(shared_from_this(), matrix, ct ? DType::kBF16 : source);
  if (encoded.planes.size() > 2) {
    encoded.planes[2].tensor.mutable_as<float>()[0] = tensor_scale;
  }
  const auto choose = [&](std::span<const uint32_t> amax_bits, std::span<uint8_t> scales,
                          std::span<float> factors) {
    const auto fill = [&](const auto& scale_of) {
      for (size_t b = 0; b < scales.size(); ++b) {
        const BlockScale scale = scale_of(std::bit_cast<float>(amax_bits[b]));
        scales[b] = scale.byte;
        factors[b] = scale.factor;
      }
    };
    switch (producer_) {
      case Nvfp4Producer::kModelOpt:
        return fill([&](float amax) { return ModelOptScale(amax, tensor_scale); });
      case Nvfp4Producer::kCompressedTensors:
        return fill([&](float amax) { return CompressedTensorsScale(amax, tensor_scale, source); });
      case Nvfp4Producer::kTorchao:
      case Nvfp4Producer::kTorchaoOneLevel:
        return fill([&](float amax) { return TorchaoScale(amax, tensor_scale); });
    }
  };
  const bool divides = ct || producer_ == Nvfp4Producer::kModelOpt;
  const BlockQuotient quotient{.kind = divides ? BlockQuotient::Kind::kDivide
                                               : BlockQuotient::Kind::kMultiply};
  EncodePlanes(matrix, options, RoundingOf(producer_), quotient, choose, encoded);
  return encoded;
}

BlockFormat::ScaleValues Nvfp4Format::ValuesOfScales(const EncodedMatrix& encoded,
                                                     DecodeRounding /*rounding*/) const {
  const std::string_view plane = TensorScalePlane();
  const float tensor_scale = plane.empty() ? 1.0f : ScalarOf(encoded.Get(plane));
  ScaleValues values;
  for (size_t byte = 0; byte < values.size(); ++byte) {
    const float scale = E4M3ToFloat(static_cast<uint8_t>(byte));
    values[byte] = producer_ == Nvfp4Producer::kCompressedTensors ? scale / tensor_scale
                                                                  : scale * tensor_scale;
  }
  return values;
}

const CheckpointForm* Nvfp4Format::Form() const { return nullptr; }

namespace {

FormatPtr ParseNvfp4(std::string_view name) {
  if (name == "nvfp4:modelopt") return Nvfp4Format::Make(Nvfp4Producer::kModelOpt);
  for (const Variant& variant : kVariants) {
    if (variant.name == name) return Nvfp4Format::Make(variant.producer);
  }
  return nullptr;
}

std::vector<std::string> Nvfp4Names() {
  std::vector<std::string> names;
  for (const Variant& variant : kVariants) names.emplace_back(variant.name);
  return names;
}

}  // namespace

const FormatFamily kNvfp4Family = {
    .name = "nvfp4",
    .grammar = "nvfp4, with :ct :torchao :torchao-one-level",
    .summary = "NVIDIA NVFP4: e2m1 elements, an e4m3 scale per 16 values, an f32 scale per matrix",
    .details =
        "ModelOpt (plain): value = element · (scale · tensor_scale), tensor_scale = amax / 2688.\n"
        "compressed-tensors (:ct): value = bf16(element · (scale / global_scale)), global_scale = "
        "2688 / amax: the reciprocal, rounded.\n"
        "torchao: as ModelOpt, a scale floor of 2^-6 and a product with the reciprocal.\n"
        "Per 16 values of a row: one e4m3 scale; elements nearest even, saturating at 6.\n"
        "codes         U8 [rows, cols / 2], even element in the low nibble\n"
        "scales        F8_E4M3 [rows, cols / 16]\n"
        "tensor_scale  F32 [] (ModelOpt weight_scale_2), or global_scale F32 [1] "
        "(weight_global_scale)\n"
        "Refuses NaN and infinity.",
    .parse = ParseNvfp4,
    .names = Nvfp4Names,
    .recognise = nullptr,
};

}  // namespace assay

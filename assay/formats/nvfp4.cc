#include "assay/formats/nvfp4.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "assay/base/error.h"
#include "assay/formats/compressed_tensors.h"
#include "assay/formats/modelopt.h"
#include "assay/formats/planes.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

constexpr int kNvfp4Block = 16;
constexpr float kElementMax = 6.0f;
constexpr float kScaleMax = 448.0f;

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

using AmaxBits = std::span<const uint32_t>;

float MagnitudeOf(uint32_t amax_bits) noexcept { return std::bit_cast<float>(amax_bits); }

/// Makes e4m3 bytes of positive scales and leaves in `scales` what the bytes stand for.
void RoundScales(std::span<float> scales, std::span<uint8_t> bytes) {
  RoundSaturating(Element::kE4M3, scales, std::as_writable_bytes(bytes));
  Widen(Element::kE4M3, std::as_bytes(bytes), scales);
}

// Each fills the scale bytes, and the factors that values are divided or multiplied by.

void ChooseModelOpt(AmaxBits amax, float tensor_scale, std::span<uint8_t> bytes,
                    std::span<float> factors) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (tensor_scale == 0.0f) {  // nothing to encode: every quotient is ±0
    std::ranges::fill(bytes, uint8_t{0x38});
    std::ranges::fill(factors, kInfinity);
    return;
  }
  const float unit = kElementMax * tensor_scale;
  for (size_t b = 0; b < factors.size(); ++b) {
    float scale = MagnitudeOf(amax[b]) / unit;
    scale = scale == 0.0f ? 1.0f : scale;
    scale = scale < 0x1p-9f ? 0x1p-9f : scale;
    factors[b] = scale > kScaleMax ? kScaleMax : scale;
  }
  RoundScales(factors, bytes);
  for (float& factor : factors) {
    factor *= tensor_scale;
    factor = factor == 0.0f ? kInfinity : factor;
  }
}

void ChooseCompressedTensors(AmaxBits amax, float global_scale, DType dtype,
                             std::span<uint8_t> bytes, std::span<float> factors) {
  for (size_t b = 0; b < factors.size(); ++b) {
    const float scale = global_scale * RoundToDType(dtype, MagnitudeOf(amax[b]) / kElementMax);
    // What rounds to zero, 2^−10 and below, takes 0.125.
    factors[b] = scale <= 0x1p-10f ? 0.125f : scale;
  }
  RoundScales(factors, bytes);
  for (float& factor : factors) factor /= global_scale;
}

void ChooseTorchao(AmaxBits amax, float tensor_scale, std::span<uint8_t> bytes,
                   std::span<float> factors) {
  const float reciprocal = 1.0f / tensor_scale;
  if (std::isinf(reciprocal)) {  // zero or so small that 0 · ∞ would come out
    std::ranges::fill(bytes, uint8_t{0x08});
    std::ranges::fill(factors, 0.0f);
    return;
  }
  for (size_t b = 0; b < factors.size(); ++b) {
    const float scale = (MagnitudeOf(amax[b]) / kElementMax) / tensor_scale;
    factors[b] = scale < 0x1p-6f ? 0x1p-6f : scale;
  }
  RoundScales(factors, bytes);
  for (float& factor : factors) factor = reciprocal / factor;
}

/// compressed-tensors takes a reciprocal and a product, each rounded to the dtype of the weight.
float CompressedTensorsGlobalScale(float amax, DType dtype) {
  const float tiny = dtype == DType::kF16 ? 0x1p-14f : 0x1p-126f;
  const float reciprocal = RoundToDType(dtype, 1.0f / std::max(amax, tiny));
  const float scale = RoundToDType(dtype, reciprocal * kNvfp4Max);
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
    : BlockFormat(BlockElement::kE2M1, kNvfp4Block, DType::kU8, DType::kF8E4M3),
      producer_(producer) {}

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
  return amax / kNvfp4Max;
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
  const auto choose = [&](AmaxBits amax, std::span<uint8_t> scales, std::span<float> factors) {
    switch (producer_) {
      case Nvfp4Producer::kModelOpt:
        return ChooseModelOpt(amax, tensor_scale, scales, factors);
      case Nvfp4Producer::kCompressedTensors:
        return ChooseCompressedTensors(amax, tensor_scale, source, scales, factors);
      case Nvfp4Producer::kTorchao:
      case Nvfp4Producer::kTorchaoOneLevel:
        return ChooseTorchao(amax, tensor_scale, scales, factors);
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

const CheckpointForm* Nvfp4Format::Form() const {
  switch (producer_) {
    case Nvfp4Producer::kModelOpt:
      return ModelOptForm();
    case Nvfp4Producer::kCompressedTensors:
      return CompressedTensorsForm(true);
    case Nvfp4Producer::kTorchao:
    case Nvfp4Producer::kTorchaoOneLevel:
      return nullptr;
  }
  return nullptr;
}

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
    .recognise = nullptr,  // by the recognisers of microscaling, which read the same configs
};

}  // namespace assay

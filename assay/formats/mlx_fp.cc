#include "assay/formats/mlx_fp.h"

#include <bit>
#include <cmath>
#include <limits>

#include "assay/base/error.h"
#include "assay/formats/mlx_fp_checkpoint.h"
#include "assay/formats/mx_scale_rules.h"
#include "assay/formats/nvfp4.h"
#include "assay/formats/planes.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

struct FpMode {
  MlxFpMode mode;
  std::string_view name;
  BlockElement element;
  int block;
};

constexpr FpMode kFpModes[] = {
    {MlxFpMode::kMxfp4, "mxfp4", BlockElement::kE2M1, 32},
    {MlxFpMode::kMxfp8, "mxfp8", BlockElement::kE4M3, 32},
    {MlxFpMode::kNvfp4, "nvfp4", BlockElement::kE2M1, 16},
};

const FpMode& ModeOf(MlxFpMode mode) { return kFpModes[static_cast<size_t>(mode)]; }

/// The mx exponent is that of T(m / max) rounded up; T matters where the quotient is subnormal.
uint8_t MxByte(float amax, float element_max, DType dtype) {
  const float r = RoundToDType(dtype, amax / element_max);
  return r == 0.0f ? uint8_t{127} : CeilPowerOfTwoByte(r);
}

}  // namespace

MlxFpFormat::MlxFpFormat(MlxFpMode mode, bool global_scale)
    : BlockFormat(ModeOf(mode).element, ModeOf(mode).block, DType::kU32, DType::kU8),
      mode_(mode),
      global_scale_(global_scale) {
  if (global_scale && mode != MlxFpMode::kNvfp4) {
    ThrowInternal("mlx-{}: only nvfp4 has a global scale", ModeName());
  }
}

std::shared_ptr<const MlxFpFormat> MlxFpFormat::Make(MlxFpMode mode, bool global_scale) {
  return std::make_shared<const MlxFpFormat>(mode, global_scale);
}

std::string_view MlxFpFormat::ModeName() const noexcept { return ModeOf(mode_).name; }

std::string MlxFpFormat::Name() const {
  return fmt::format("mlx-{}{}", ModeName(), global_scale_ ? ":global" : "");
}

std::string MlxFpFormat::Summary() const {
  return fmt::format("MLX {}: {} elements, {} scale for every {}{}", ModeName(),
                     FactsOf(element()).bits == 4 ? "4-bit e2m1" : "8-bit e4m3",
                     mode_ == MlxFpMode::kNvfp4 ? "an e4m3" : "a power-of-two", block(),
                     global_scale_ ? ", and one f32 scale" : "");
}

std::vector<PlaneSpec> MlxFpFormat::Layout(int64_t rows, int64_t cols, DType dtype) const {
  std::vector<PlaneSpec> planes = BlockFormat::Layout(rows, cols, dtype);
  if (global_scale_) planes.push_back({"global_scale", DType::kF32, Shape{}});
  return planes;
}

EncodedMatrix MlxFpFormat::Encode(const MatrixView& matrix, const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  const DType source = matrix.dtype();
  EncodedMatrix encoded =
      Allocate(shared_from_this(), matrix, global_scale_ ? DType::kF32 : DType::kBF16);
  const float element_max = FactsOf(element()).max;
  if (mode_ != MlxFpMode::kNvfp4) {
    const auto choose = [&](std::span<const uint32_t> amax_bits, std::span<uint8_t> scales,
                            std::span<float> factors) {
      for (size_t b = 0; b < scales.size(); ++b) {
        scales[b] = MxByte(std::bit_cast<float>(amax_bits[b]), element_max, source);
      }
      InverseScales(scales, factors);
    };
    EncodePlanes(matrix, options,
                 mode_ == MlxFpMode::kMxfp4 ? ElementRounding::kDownPlainZero
                                            : ElementRounding::kNearestEven,
                 {}, choose, encoded);
    return encoded;
  }
  float enc = 1.0f;
  if (global_scale_) {
    const auto given = GivenScale(*this, options, "global_scale");
    float global = given ? *given : AbsMaxOf(matrix, options);
    if (global == 0.0f) global = 1.0f;  // all zero: any scale will do, 0 would decode to NaN
    encoded.planes[2].tensor.mutable_as<float>()[0] = global;
    enc = kNvfp4Max / global;
  }
  const auto choose = [&](std::span<const uint32_t> amax_bits, std::span<uint8_t> scales,
                          std::span<float> factors) {
    for (size_t b = 0; b < scales.size(); ++b) {
      factors[b] = RoundToDType(source, std::bit_cast<float>(amax_bits[b]) / element_max) * enc;
    }
    RoundSaturating(Element::kE4M3, factors, std::as_writable_bytes(scales));
    Widen(Element::kE4M3, std::as_bytes(scales), factors);
  };
  EncodePlanes(
      matrix, options, ElementRounding::kDownPlainZero,
      {.kind = BlockQuotient::Kind::kDivideRoundThenMultiply, .round_to = source, .post = enc},
      choose, encoded);
  return encoded;
}

void MlxFpFormat::Validate(const EncodedMatrix& encoded, std::string_view name) const {
  Format::Validate(encoded, name);
  if (global_scale_ && encoded.dtype != DType::kF32) {
    ThrowInput("{}: {} decodes to F32, not {}", name, Name(), NameOf(encoded.dtype));
  }
}

BlockFormat::ScaleValues MlxFpFormat::ValuesOfScales(const EncodedMatrix& encoded,
                                                     DecodeRounding rounding) const {
  const float global = global_scale_ ? ScalarOf(encoded.Get("global_scale")) / kNvfp4Max : 1.0f;
  // MLX makes the scale in the output dtype first: as f16 it overflows or vanishes on its own.
  const bool as_f16 = rounding == DecodeRounding::kCheckpoint && encoded.dtype == DType::kF16;
  ScaleValues values;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto byte = static_cast<uint8_t>(i);
    float scale = E4M3ToFloat(byte);
    if (mode_ != MlxFpMode::kNvfp4) {
      scale = byte == 0xFF ? std::numeric_limits<float>::infinity() : E8M0ToFloat(byte);
    }
    if (as_f16) scale = RoundToF16(scale);
    values[i] = global_scale_ ? scale * global : scale;
  }
  return values;
}

const CheckpointForm* MlxFpFormat::Form() const { return MlxCheckpointForm(); }

MlxSettings MlxFpFormat::Settings() const {
  return {std::string(ModeName()), FactsOf(element()).bits, block(), global_scale_};
}

namespace {

FormatPtr ParseMlxFp(std::string_view name) {
  for (const FpMode& mode : kFpModes) {
    if (name == fmt::format("mlx-{}", mode.name)) return MlxFpFormat::Make(mode.mode);
  }
  if (name == "mlx-nvfp4:global") return MlxFpFormat::Make(MlxFpMode::kNvfp4, true);
  return nullptr;
}

std::vector<std::string> MlxFpNames() {
  return {"mlx-mxfp4", "mlx-mxfp8", "mlx-nvfp4", "mlx-nvfp4:global"};
}

}  // namespace

const FormatFamily kMlxFpFamily = {
    .name = "mlx-fp",
    .grammar = "mlx-mxfp4 mlx-mxfp8 mlx-nvfp4, mlx-nvfp4:global",
    .summary = "MLX floating-point modes: mxfp4, mxfp8 and nvfp4 by MLX's rules",
    .details =
        "value = element · scale, rounded to bf16; with a global scale element · (scale · (global "
        "/ 2688)) in f32.\n"
        "mxfp4, mxfp8: per 32 values one e8m0 scale, the smallest power of two >= max / 6 (448). "
        "nvfp4: per 16 values one e4m3 scale, max / 6.\n"
        "fp4 elements take the nearest entry, ties toward zero, never -0; fp8 nearest even.\n"
        "codes         U32 [rows, cols · bits / 32], even element in the low nibble\n"
        "scales        U8 [rows, cols / 32 or 16]\n"
        "global_scale  F32 [], mlx-nvfp4:global only (stacked experts): the largest magnitude\n"
        "Written and read by MLX and mlx-lm (config.json \"quantization\", key \"mode\"). Refuses "
        "NaN and infinity.",
    .parse = ParseMlxFp,
    .names = MlxFpNames,
    .recognise = RecogniseMlxFp,
};

}  // namespace assay

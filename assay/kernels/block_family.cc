#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "assay/formats/block_format.h"
#include "assay/formats/microscaling.h"
#include "assay/formats/mlx_fp.h"
#include "assay/formats/nvfp4.h"
#include "assay/kernels/block_digits.h"
#include "assay/kernels/block_kernels.h"
#include "assay/kernels/fp8_gemv.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

/// Named one by one: other formats over such blocks (caches) do more to a value than scale it.
const BlockFormat* AsBlock(const EncodedMatrix& weight) {
  const Format* format = weight.format.get();
  if (const auto* mx = dynamic_cast<const MicroscalingFormat*>(format)) return mx;
  if (const auto* nvfp4 = dynamic_cast<const Nvfp4Format*>(format)) return nvfp4;
  return dynamic_cast<const MlxFpFormat*>(format);
}

std::array<bool, 256> BytesInUse(std::span<const std::byte> scales) {
  std::array<bool, 256> used{};
  for (const std::byte scale : scales) used[static_cast<size_t>(scale)] = true;
  return used;
}

/// Bits of code byte `index` that make a value other than ±0.
std::byte ValueBits(BlockElement element, size_t index) {
  constexpr std::byte kSixBits[] = {std::byte{0xDF}, std::byte{0xF7}, std::byte{0x7D}};
  const int bits = FactsOf(element).bits;
  if (bits == 4) return std::byte{0x77};
  if (bits == 6) return kSixBits[index % 3];
  return element == BlockElement::kInt8 ? std::byte{0xFF} : std::byte{0x7F};
}

/// True when every block of scale byte 0 is a block of zeros, so that its scale may be taken as 0
/// instead of 2^-127: what encoders write for zeros.
bool ZeroScalesHoldZeros(const EncodedMatrix& weight, const BlockFormat& format) {
  const auto scales = weight.Get("scales").bytes();
  const auto codes = weight.Get("codes").bytes();
  const auto block_bytes = static_cast<size_t>(format.block() * FactsOf(format.element()).bits / 8);
  for (size_t b = 0; b < scales.size(); ++b) {
    if (scales[b] != std::byte{0}) continue;
    for (size_t i = 0; i < block_bytes; ++i) {
      if ((codes[b * block_bytes + i] & ValueBits(format.element(), i)) != std::byte{0}) {
        return false;
      }
    }
  }
  return true;
}

/// Nothing when some scale in use is of neither kind: NaN, signs, 2^-127 on values.
std::optional<BlockScales> ScalesOf(const EncodedMatrix& weight, const BlockFormat& format,
                                    const BlockFormat::ScaleValues& table,
                                    const std::array<bool, 256>& used) {
  constexpr size_t kOne = 127;  // e8m0
  bool e8m0 =
      !used[255] && table[kOne] == 1.0f && (!used[0] || ZeroScalesHoldZeros(weight, format));
  for (size_t b = 1; b < 255 && e8m0; ++b) {
    e8m0 = !used[b] || table[b] == E8M0ToFloat(static_cast<uint8_t>(b));
  }
  if (e8m0) return BlockScales{BlockScaleKind::kE8M0, 1.0f};
  constexpr size_t kE4M3One = 0x38;
  const float factor = table[kE4M3One];
  if (!std::isnormal(factor)) return std::nullopt;
  for (size_t b = 0; b < 256; ++b) {
    if (!used[b]) continue;
    if (b >= 0x7F) return std::nullopt;
    const float expected = E4M3ToFloat(static_cast<uint8_t>(b)) * factor;
    if (std::fabs(table[b] - expected) > 0x1p-22f * std::fabs(expected)) return std::nullopt;
  }
  return BlockScales{BlockScaleKind::kE4M3, factor};
}

/// True when rounding to the checkpoint's dtype changes no decoded value: element · scale of bf16
/// formats with power-of-two scales.
bool RoundingIsIdentity(const EncodedMatrix& weight, const BlockFormat& format,
                        const BlockFormat::ScaleValues& table, const std::array<bool, 256>& used) {
  if (weight.dtype == DType::kF32) return true;
  const BlockElementFacts facts = FactsOf(format.element());
  // Values are integers below 2^(mantissa_bits + 1) times a power of two of the element.
  for (size_t b = 0; b < 256; ++b) {
    if (!used[b]) continue;
    int exponent = 0;
    if (!std::isfinite(table[b]) || std::frexp(table[b], &exponent) != 0.5f) return false;
    const bool bf16 = weight.dtype == DType::kBF16;
    const int largest = exponent + facts.emax + 1;
    const int smallest = exponent - 1 - 16 - facts.mantissa_bits;
    if (facts.mantissa_bits > 7 || largest > (bf16 ? 127 : 15) || smallest < (bf16 ? -126 : -14)) {
      return false;
    }
  }
  return true;
}

void AddBlockKernels(const KernelRequest& request,
                     std::vector<std::unique_ptr<ProductKernel>>& kernels) {
  const BlockFormat* format = AsBlock(request.weight);
  if (format == nullptr) return;
  const auto table = format->ScaleTable(request.weight, request.rounding);
  const auto used = BytesInUse(request.weight.Get("scales").bytes());
  if (request.rounding == DecodeRounding::kCheckpoint &&
      !RoundingIsIdentity(request.weight, *format, table, used)) {
    return;
  }
  if (!request.a8) {
    if (auto kernel = MakeFp8Blocks(request.weight, *format, table, used)) {
      kernels.push_back(std::move(kernel));
    }
  }
  if (const auto scales = ScalesOf(request.weight, *format, table, used)) {
    if (auto kernel = MakeBlockDigits(request.weight, *format, *scales, request.a8)) {
      kernels.push_back(std::move(kernel));
    }
  }
  if (request.a8) return;
  if (auto kernel = MakeE2M1Lanes(request.weight, *format, table)) {
    kernels.push_back(std::move(kernel));
  }
}

}  // namespace

const KernelFamily kBlockKernels = {.name = "block", .add_kernels = AddBlockKernels};

}  // namespace assay

#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "assay/formats/fp_blocks.h"

namespace assay {

/// How a block's e8m0 scale 2^E follows from its largest magnitude m = 2^k · f, 1 ≤ f < 2.
/// All are in use; docs/formats/microscaling.md compares them. The stored byte is E + 127, clamped
/// to 0 … 254; m = 0 gives byte 0.
enum class MxScaleRule : uint8_t {
  kFloor,  ///< ⌊log2 m⌋ − emax. OCP, microxcaling, ggml, torchao FLOOR. The largest may saturate
  kCeil,   ///< ⌈log2 m⌉ − emax. torchao CEIL
  kRCeil,  ///< ⌈log2(m / max)⌉, the division in f32. NVIDIA hardware, DeepSeek, torchao RCEIL
  kRCeilLog2,  ///< as kRCeil with log2 rounded to f32, which swallows small excesses. ModelOpt
  kEven,       ///< ⌊log2(m rounded to the element's mantissa)⌋ − emax. torchao EVEN, Quark
  kCt,         ///< as kEven with 1 mantissa bit for fp4 and fp8, 3 for fp6. compressed-tensors
};

/// "floor", "ceil", "rceil", "rceil-log2", "even", "ct".
std::string_view NameOf(MxScaleRule rule) noexcept;

/// False for pairs that nobody defines: int8 knows only floor, e3m2 and e5m2 have no ct.
bool Defines(MxScaleRule rule, BlockElement element) noexcept;

/// Scale byte of each block from the f32 bits of its largest magnitude.
/// Requires finite magnitudes, Defines(rule, element), spans of one size. Accuracy: exact, no
/// logarithm is taken.
void ChooseMxScales(MxScaleRule rule, BlockElement element, std::span<const uint32_t> amax_bits,
                    std::span<uint8_t> scales) noexcept;

/// Byte of the smallest power of two ≥ r, at least 2^−127. Requires 0 ≤ r < 2^127.
constexpr uint8_t CeilPowerOfTwoByte(float r) noexcept {
  const auto bits = std::bit_cast<uint32_t>(r);
  // Exponent fields count from 2^−127, as e8m0 bytes do; adding all ones but one to the mantissa
  // carries unless it is zero. Subnormals have no implicit bit: 2^−127 is mantissa 0x400000, and
  // above it the next power is 2^−126.
  const uint32_t normal = (bits + 0x7FFFFFu) >> 23;
  const uint32_t subnormal = bits > 0x400000u ? 1u : 0u;
  return static_cast<uint8_t>(bits < 0x800000u ? subnormal : normal);
}

/// factors[i] = 2^(127 − scales[i]): what a value is multiplied by to stand in the unit of its
/// block. Exact; for byte 254 an f32 subnormal. Requires bytes ≤ 254.
void InverseScales(std::span<const uint8_t> scales, std::span<float> factors) noexcept;

}  // namespace assay

#pragma once

#include <cstdint>
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

/// Scale byte for a block whose largest magnitude has these f32 bits.
/// Requires a finite magnitude and Defines(rule, element). Accuracy: exact, no logarithm is taken.
uint8_t MxScaleByte(MxScaleRule rule, BlockElement element, uint32_t amax_bits) noexcept;

/// Byte of the smallest power of two ≥ r, at least 2^−127. Requires r > 0, finite.
uint8_t CeilPowerOfTwoByte(float r) noexcept;

/// 2^(127 − byte): what a value is multiplied by to stand in the unit of its block. Exact; for
/// byte 254 an f32 subnormal. Requires byte ≤ 254.
float InverseOfE8M0(uint8_t byte) noexcept;

}  // namespace assay

#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "assay/tensor/dtype.h"

namespace assay {

/// Elements that block formats keep under a shared scale.
enum class BlockElement : uint8_t { kE2M1, kE2M3, kE3M2, kE4M3, kE5M2, kInt8 };

/// What distinguishes one element type from another, stated once.
struct BlockElementFacts {
  int bits;           ///< of one code
  int emax;           ///< exponent of the largest binade: ⌊log2(max)⌋
  int mantissa_bits;  ///< stored ones; 6 for int8, whose value is code / 64
  float max;          ///< largest finite magnitude
};

/// Source: OCP Microscaling Formats 1.0, table 1.
constexpr BlockElementFacts FactsOf(BlockElement element) noexcept {
  constexpr std::array<BlockElementFacts, 6> kFacts = {{
      {4, 2, 1, 6.0f},
      {6, 2, 3, 7.5f},
      {6, 4, 2, 28.0f},
      {8, 8, 3, 448.0f},
      {8, 15, 2, 57344.0f},
      {8, 0, 6, 127.0f / 64.0f},
  }};
  return kFacts[static_cast<size_t>(element)];
}

/// How a quotient becomes an element code. All saturate at ±max.
enum class ElementRounding : uint8_t {
  kNearestEven,           ///< the sign of zero is kept
  kNearestEvenPlainZero,  ///< e2m1 only: a quotient that is ±0 takes code 0; negatives that round
                          ///< to zero keep their sign (code 8). compressed-tensors
  kNearestEvenNegative,   ///< e2m1 only: as above, but by the sign of the value. ModelOpt NVFP4
  kDownZeroNegative,      ///< e2m1 only: ties toward zero; zero takes code 8. ModelOpt MXFP4
  kDownPlainZero,         ///< e2m1 only: ties toward zero, code 8 never, a quotient that is not
                          ///< finite takes code 0. MLX on the CPU
};

/// How a value and its block's factor make the quotient that is rounded. Each step is one f32
/// operation.
struct BlockQuotient {
  enum class Kind : uint8_t {
    kMultiply,                 ///< value · factor
    kDivide,                   ///< value / factor
    kDivideRoundThenMultiply,  ///< round(value / factor) · post
  };
  Kind kind = Kind::kMultiply;
  DType round_to = DType::kF32;  ///< the rounding of kDivideRoundThenMultiply: f32, bf16 or f16
  float post = 1.0f;
  float underflow = 0.0f;  ///< kNearestEvenPlainZero: magnitudes up to it count as zero
};

/// Bit patterns of the largest magnitude of each block of `block` values; above 0x7F800000 when
/// the block holds a NaN, equal when it holds an infinity.
/// Requires block 16 or 32, values.size() = block · amax_bits.size().
void BlockAbsMax(std::span<const float> values, int block, std::span<uint32_t> amax_bits);

/// The same of all values together. Requires a multiple of 16 of them.
uint32_t AbsMaxBits(std::span<const float> values);

/// Codes, one a byte. Accuracy: exact, the same on every instruction set.
/// Requires block 16 or 32, values.size() = codes.size() = block · factors.size(); finite values.
void EncodeBlocks(BlockElement element, ElementRounding rounding, const BlockQuotient& quotient,
                  std::span<const float> values, int block, std::span<const float> factors,
                  std::span<uint8_t> codes);

/// Packs codes of 4, 6 or 8 bits, least significant bit first: a 4-bit code 2j stands in the low
/// nibble of byte j; four 6-bit codes stand in three bytes.
/// Requires codes.size() % 16 = 0, packed.size() = codes.size() · bits / 8.
void PackCodes(int bits, std::span<const uint8_t> codes, std::span<std::byte> packed);

/// Inverse of PackCodes.
void UnpackCodes(int bits, std::span<const std::byte> packed, std::span<uint8_t> codes);

/// values[i] = element(codes[i]) · scale_values[scales[i / block]], one f32 product, rounded to
/// nearest even to `round_to` (f32: not at all; bf16; f16) and stored as `out_dtype`: f32, or
/// round_to itself.
/// Requires block 16 or 32, codes.size() = block · scales.size(), values of that many elements.
void DecodeBlocks(BlockElement element, std::span<const uint8_t> codes, int block,
                  std::span<const std::byte> scales, std::span<const float, 256> scale_values,
                  DType round_to, DType out_dtype, std::span<std::byte> values);

}  // namespace assay

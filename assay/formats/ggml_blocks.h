#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "assay/formats/ggml_type.h"

/// What the sources of the ggml family share: how each type's block is taken apart and put
/// together.
namespace assay::ggml_internal {

/// Values that share one scale in every type, or half of those that do.
inline constexpr size_t kGroup = 16;

/// Blocks taken apart: value i is scales[i / 16] · codes[i] − mins[i / 16], the product and the
/// difference each rounded to f32. Every type is of this form: a type without minimum keeps +0
/// there, which changes no bit, and 1/8 steps of IQ1 go into the scale, which is exact.
struct Parts {
  int8_t* codes;
  float* scales;
  float* mins;
};

/// Why a block of finite values is not encoded: where upstream's arithmetic has no finite or no
/// defined result.
enum class Refusal {
  kNone,
  kScale,      ///< a scale or minimum is infinite as f16
  kUnderflow,  ///< so small that the reciprocal of a scale is infinite
  kOverflow,   ///< so large that upstream's sums are infinite, or so small that its steps are
};

/// How far an encoder came.
struct Encoded {
  size_t done = 0;  ///< blocks written; the next one is the one refused
  Refusal why = Refusal::kNone;
};

/// Takes `num_blocks` consecutive blocks apart. Leaves `mins` alone when the type has none. Errors:
/// internal for plain types.
void UnpackBlocks(const GgmlType& type, const uint8_t* blocks, size_t num_blocks, Parts parts);

/// Decodes whole blocks. Requires values.size() / block_values of them. Errors: as UnpackBlocks.
void DecodeBlocks(const GgmlType& type, const uint8_t* blocks, std::span<float> values);

/// Encodes consecutive blocks of finite values.
using EncodeFunction = Encoded (*)(const float* values, size_t num_blocks, uint8_t* out);

/// Null for decode-only and plain types.
EncodeFunction EncoderOf(const GgmlType& type) noexcept;

// One block each of the types whose codes are entries of code books.

void UnpackIQ2_XXS(const uint8_t* block, Parts parts);
void UnpackIQ2_XS(const uint8_t* block, Parts parts);
void UnpackIQ2_S(const uint8_t* block, Parts parts);
void UnpackIQ3_XXS(const uint8_t* block, Parts parts);
void UnpackIQ3_S(const uint8_t* block, Parts parts);
void UnpackIQ1_S(const uint8_t* block, Parts parts);
void UnpackIQ1_M(const uint8_t* block, Parts parts);

/// What both IQ4 types' codes stand for.
inline constexpr std::array<int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

/// Twice the e2m1 values; code 8 is +0.
inline constexpr std::array<int8_t, 16> kTwiceE2M1 = {0, 1,  2,  3,  4,  6,  8,  12,
                                                      0, -1, -2, -3, -4, -6, -8, -12};

/// Half of MXFP4's scale: 2^(e − 128), also for e = 255.
float HalfE8M0(uint8_t e) noexcept;

/// Half of NVFP4's scale: unsigned e4m3, 0x7F zero, the top bit ignored except in 0xFF, which
/// upstream reads as 2 · 240.
float HalfUE4M3(uint8_t code) noexcept;

}  // namespace assay::ggml_internal

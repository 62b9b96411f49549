#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "assay/formats/format.h"
#include "assay/numeric/element.h"

/// What the formats' implementations share about planes and row ranges.
namespace assay {

/// Zero-filled planes of the format's Layout for a rows × cols matrix of `dtype`.
EncodedMatrix AllocatePlanes(FormatPtr format, int64_t rows, int64_t cols, DType dtype);

/// Errors: internal unless rows [first, first + count) exist and out_size is `count` rows of
/// `element_bytes` per value.
void RequireRowRange(const EncodedMatrix& encoded, int64_t first, int64_t count, size_t out_size,
                     int64_t element_bytes = 1);

/// x rounded once to f32 (not at all), f16 or bf16, widened again.
inline float RoundToDType(DType dtype, float x) noexcept {
  if (dtype == DType::kBF16) return RoundToBF16(x);
  if (dtype == DType::kF16) return RoundToF16(x);
  return x;
}

/// Each value so rounded: one branch for all.
void RoundAllTo(DType dtype, std::span<float> values) noexcept;

/// Element `index` of little-endian 32-bit words at any alignment.
inline uint32_t WordAt(const std::byte* words, size_t index) noexcept {
  uint32_t word = 0;
  std::memcpy(&word, words + 4 * index, sizeof word);
  return word;
}

/// Field `index` of a stream of `bits`-bit fields, least significant bit first, in 32-bit words;
/// word(w) gives word w. Fields may straddle two words. Requires 1 ≤ bits ≤ 8.
template <typename Word>
uint32_t StreamField(const Word& word, size_t index, int bits) noexcept {
  const size_t bit = index * static_cast<size_t>(bits);
  const auto shift = static_cast<int>(bit % 32);
  uint32_t field = word(bit / 32) >> shift;
  if (shift + bits > 32) field |= word(bit / 32 + 1) << (32 - shift);
  return field & ((1U << bits) - 1U);
}

}  // namespace assay

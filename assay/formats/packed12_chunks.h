#pragma once

#include <cstddef>
#include <cstdint>

/// The vectorised inner loops of packed12, one run of values each; packed12_codec.h is for callers.
/// Dispatched at run time. Accuracy: exact, the same bytes on every instruction set.
namespace assay::packed12 {

/// Writes the planes of `count` words; returns the escapes written.
/// Requires an even number of values before `words` in the matrix.
size_t EncodeChunk(const std::byte* words, size_t count, int base, uint32_t first_index,
                   uint8_t* sm, uint8_t* ex, std::byte* escape_indices, std::byte* escape_values);

/// Words as bf16; escapes come out as +0. `exponents[c]` is what code c means. The first value's
/// code stands in the high nibble of ex[0] when `high_nibble_first`.
void DecodeChunk(const uint8_t* sm, const uint8_t* ex, bool high_nibble_first, size_t count,
                 const uint8_t* exponents, std::byte* out);

/// The same widened to f32.
void DecodeChunk(const uint8_t* sm, const uint8_t* ex, bool high_nibble_first, size_t count,
                 const uint8_t* exponents, float* out);

}  // namespace assay::packed12

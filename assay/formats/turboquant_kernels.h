#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "assay/tensor/dtype.h"

namespace assay::turboquant {

/// What a kernel needs to know of the format.
struct Geometry {
  int bits;
  int stored_bits;
  int group_size;

  size_t BytesPerGroup() const noexcept {
    return static_cast<size_t>(group_size * stored_bits / 8);
  }
};

/// Encodes one row, `num_groups` groups of `dtype` values at any alignment.
/// boundaries: the 2^bits − 1 inner ones. packed: BytesPerGroup each; scales: an f16 each.
/// Returns the groups encoded: all of them, or the position of the first that holds a value that
/// is not finite or whose norm exceeds f16.
/// Accuracy: exact, the same bytes on every target.
size_t EncodeRow(const Geometry& geometry, DType dtype, const std::byte* values,
                 const int8_t* signs, size_t num_groups, std::span<const float> boundaries,
                 std::byte* packed, std::byte* scales) noexcept;

/// Decodes one row to f32, rounded to bf16 when `to_bf16`.
/// centroids: 2^bits. Indices beyond them decode to zero or to another centroid.
void DecodeRow(const Geometry& geometry, const std::byte* packed, const std::byte* scales,
               const int8_t* signs, size_t num_groups, std::span<const float> centroids,
               bool to_bf16, float* out) noexcept;

/// The same as bf16 words.
void DecodeRowToBF16(const Geometry& geometry, const std::byte* packed, const std::byte* scales,
                     const int8_t* signs, size_t num_groups, std::span<const float> centroids,
                     std::byte* out) noexcept;

}  // namespace assay::turboquant

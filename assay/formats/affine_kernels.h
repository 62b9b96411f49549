#pragma once

#include <cstddef>
#include <cstdint>

#include "assay/formats/format.h"
#include "assay/tensor/dtype.h"

/// Inner loops of formats/affine. Groups follow each other without gaps in every plane, across row
/// ends too (a group takes whole words), so the loops see a run of groups and no rows.
namespace assay::affine_internal {

struct Geometry {
  int bits;
  int group_size;
  DType dtype;  ///< of values, scales and biases: f32, f16 or bf16

  int64_t CodeBytesPerGroup() const noexcept { return int64_t{group_size} * bits / 8; }
};

/// Encodes `num_groups` groups from any alignment. Returns the index of the first group that
/// cannot be encoded (NaN, infinity, maximum − minimum beyond f32), or num_groups; the planes of
/// groups from that index on are unspecified.
int64_t EncodeGroups(const Geometry& geometry, const std::byte* values, int64_t num_groups,
                     std::byte* codes, std::byte* scales, std::byte* biases) noexcept;

/// Decodes `num_groups` groups to `out_dtype` (f32, f16 or bf16): under kCheckpoint rounded twice
/// to geometry.dtype and then once to out_dtype, under kNone rounded once from f32.
/// NaN comes out as the quiet NaN with no payload and no sign.
void DecodeGroups(const Geometry& geometry, const std::byte* codes, const std::byte* scales,
                  const std::byte* biases, int64_t num_groups, DecodeRounding rounding,
                  DType out_dtype, std::byte* out) noexcept;

/// DecodeGroups by the equation, value by value: for groups whose scale or bias is not finite,
/// where vector code would leave the payload of a NaN to the order of operands.
void DecodeGroupsScalar(const Geometry& geometry, const std::byte* codes, const std::byte* scales,
                        const std::byte* biases, int64_t num_groups, DecodeRounding rounding,
                        DType out_dtype, std::byte* out) noexcept;

}  // namespace assay::affine_internal

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

/// The searches for a scale that ggml's quantisers make, for sixteen sub-blocks at a time. Each
/// sub-block has a lane to itself, so that its sums run over its values in upstream's order and
/// give upstream's bits, whatever the width of the vectors. Equations: docs/formats/ggml.md.
namespace assay::ggml_internal {

inline constexpr size_t kLanes = 16;
inline constexpr size_t kMaxSubBlock = 32;

/// Value i of sub-block `lane` is x[i][lane]. Unused lanes hold zeros.
struct SubBlocks {
  size_t size = 0;  ///< values of a sub-block: 16 or 32
  alignas(64) float x[kMaxSubBlock][kLanes];
};

/// Sub-blocks of `size` values from consecutive values; at most sixteen.
inline void Transpose(const float* values, size_t num_values, size_t size, SubBlocks& sub) {
  sub.size = size;
  const size_t used = num_values / size;
  if (used < kLanes) std::fill_n(&sub.x[0][0], size * kLanes, 0.0F);
  for (size_t lane = 0; lane < used; ++lane, values += size) {
    for (size_t i = 0; i < size; ++i) sub.x[i][lane] = values[i];
  }
}

struct Found {
  alignas(64) float scale[kLanes];
  alignas(64) float min[kLanes];  ///< what is subtracted; 0 for the symmetric types
  alignas(64) float codes[kMaxSubBlock][kLanes];
  /// Bit `lane`: upstream's arithmetic overflowed, so that scale and codes mean nothing.
  uint32_t refused = 0;
};

/// Of `count` lanes from `first`.
inline bool AnyRefused(const Found& found, size_t first, size_t count) {
  return ((found.refused >> first) & ((1U << count) - 1)) != 0;
}

/// The scale of largest magnitude, the first of equals.
inline float LargestScale(const float* scales, size_t count) {
  float largest = 0;
  for (size_t b = 0; b < count; ++b) {
    if (std::abs(scales[b]) > std::abs(largest)) largest = scales[b];
  }
  return largest;
}

/// Q6_K: codes −32..31 (written plus 32), weights x², nineteen scales tried.
void SearchSymmetric(const SubBlocks& sub, Found& found);

/// Q3_K: codes −4..3 (written plus 4), refined one by one.
void SearchThreeBits(const SubBlocks& sub, Found& found);

/// Q2_K, Q4_K, Q5_K: scale and minimum.
struct ScaleMinSearch {
  float top = 15;      ///< largest code
  float first = -1;    ///< added to `top` in the first try
  float step = 0.1F;   ///< and more of it in each further one
  int num_steps = 20;  ///< further tries
  /// True: errors weigh |x| and count as they are. False: they weigh the root of the mean square
  /// plus |x|, and count squared.
  bool absolute = false;
};
void SearchScaleMin(const SubBlocks& sub, const ScaleMinSearch& search, Found& found);

/// IQ4: scales only, by sixteen tries.
void SearchIq4(const SubBlocks& sub, Found& found);

/// Codes (x + min) / scale, nearest even, from `low` to `high`, less `low`, in lanes whose scale is
/// not 0.
void Requantise(const SubBlocks& sub, const float* scales, const float* mins, float low, float high,
                Found& found);

}  // namespace assay::ggml_internal

#pragma once

#include <cstddef>
#include <cstdint>

#include "assay/tensor/dtype.h"

namespace assay {

// Codes stay where they are in their 32-bit word: a mask takes every 32 / bits-th of them out, the
// conversion to f32 is exact (at most 8 significant bits), and the power of two that stands before
// the code is divided out of x once per call. Three vector instructions a vector of codes.

enum class LaneCodes {
  kAffine2,
  kAffine4,
  kAffine8,
  kTable4,  ///< 4 bits that stand for one of sixteen int8
  kInt8,
};

constexpr int BitsOf(LaneCodes codes) {
  switch (codes) {
    case LaneCodes::kAffine2:
      return 2;
    case LaneCodes::kAffine4:
    case LaneCodes::kTable4:
      return 4;
    default:
      return 8;
  }
}

/// Planes and x of one call. Unit: the codes of one vector of words.
struct LaneProduct {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* biases;   ///< null without
  const int8_t* table;       ///< of kTable4
  const float* scale_table;  ///< of scale bytes; null when scales are floats of `dtype`
  DType dtype;
  int64_t rows;
  int64_t cols;
  int64_t group;
  int group_shift;    ///< log2(group)
  const float* x;     ///< [num_x][unit][code of the word][lane], times 2^-shift
  const float* sums;  ///< [num_x][padded groups]
  int64_t num_x;
  int64_t x_stride;
  int64_t sums_stride;
};

/// Floats that may be written behind the last group of sums and scales.
inline constexpr int64_t kGroupPadding = 16;

/// The two loops of the active instruction set, so that a kernel keeps those it was prepared for.
struct LaneFunctions {
  /// One row of x times a power of two into words' order, zeros behind the last column; returns the
  /// floats it takes, which is all it does when out is null.
  int64_t (*arrange)(LaneCodes codes, float factor, const float* x, int64_t cols, float* out);
  /// Rows [first, last) of y[num_x][rows].
  void (*rows)(LaneCodes codes, const LaneProduct& p, int64_t first, int64_t last, float* y);
};

LaneFunctions ActiveLaneFunctions();

}  // namespace assay

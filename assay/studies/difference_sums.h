#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "assay/measure/error_stats.h"
#include "assay/measure/ulp.h"
#include "assay/tensor/shape.h"

/// How two tensors are walked, and what each piece of the walk adds up to.
namespace assay {

/// Longest axis whose differences are counted entry by entry.
inline constexpr int64_t kMaxCounted = int64_t{1} << 24;

/// The rows × cols that both sides are walked as.
struct Grid {
  int64_t rows = 1;
  int64_t cols = 1;
  /// Rows that mean something to a user: false when the tensor is walked as one run.
  bool has_rows = true;
};

/// The grid of a shape of `bits`-bit elements.
Grid GridOf(const Shape& shape, int bits);

/// The type that values of both are compared in.
DType CommonType(DType a, DType b);

/// differs[i] = 1 where the codes of element i are not the same bits.
void MarkDifferences(int bits, std::span<const std::byte> a, std::span<const std::byte> b,
                     std::span<uint8_t> differs);

/// What one piece (or all before it) adds to the figures.
struct DifferenceSums {
  ErrorSums errors;
  UlpHistogram ulp;
  int64_t num_equal_bits = 0;
  int64_t num_equal_values = 0;
  int64_t num_sign_flips = 0;
  int64_t num_nonfinite_mismatches = 0;
  int64_t first_difference = -1;
  double reference_max_abs = 0;
  uint64_t reference_max_ulp = 0;

  void Merge(const DifferenceSums& later) noexcept {
    errors.Merge(later.errors);
    ulp.Merge(later.ulp);
    num_equal_bits += later.num_equal_bits;
    num_equal_values += later.num_equal_values;
    num_sign_flips += later.num_sign_flips;
    num_nonfinite_mismatches += later.num_nonfinite_mismatches;
    if (first_difference < 0) first_difference = later.first_difference;
    reference_max_abs = std::max(reference_max_abs, later.reference_max_abs);
    reference_max_ulp = std::max(reference_max_ulp, later.reference_max_ulp);
  }
};

/// One row or column of the grid.
struct RowSums {
  double d2 = 0;
  double b2 = 0;
  double max_abs = 0;
  int64_t num_differing = 0;
};

}  // namespace assay

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "assay/measure/error_stats.h"
#include "assay/measure/ulp.h"
#include "assay/tensor/tensor.h"

namespace assay {

/// Elements of one side of a comparison, stored or decoded on demand.
struct ElementSource {
  DType dtype = DType::kF32;
  Shape shape;
  /// Little-endian bytes of `count` rows (runs along the last axis) from `first`; they may lie in
  /// `scratch`, and live until its next use. Called from several threads, each with its own.
  std::function<std::span<const std::byte>(int64_t first, int64_t count,
                                           std::vector<std::byte>& scratch)>
      read;
};

/// Reads from the tensor's own bytes.
ElementSource SourceOf(Tensor tensor);

/// One row (run along the last axis) in which two tensors differ.
struct RowDifference {
  int64_t row = 0;
  std::optional<double> relative_rmse;  ///< none when the reference row is zero everywhere
  double max_abs = 0;
  int64_t num_differing = 0;  ///< elements whose bits differ
};

/// How tensor A differs from its reference B of the same shape.
struct TensorDifference {
  Shape shape;
  DType dtype = DType::kF32;  ///< what both were compared in
  int64_t num_elements = 0;
  ErrorStats stats;
  int64_t num_equal_bits = 0;
  int64_t num_equal_values = 0;  ///< −0 = +0, NaN = NaN
  int64_t num_sign_flips = 0;    ///< both nonzero, signs opposite
  /// Pairs that no error figure counts, since one side is not finite, and that are not equal.
  int64_t num_nonfinite_mismatches = 0;
  /// None when A and B are stored in different types.
  std::optional<UlpHistogram> ulp;
  std::optional<int64_t> first_difference;  ///< flat index of the first element whose bits differ
  std::vector<int64_t> first_index;         ///< the same along the axes
  std::string pattern;                      ///< DescribeDifferences
  std::vector<RowDifference> worst_rows;    ///< by relative RMSE, worst first
  /// What a tensor of zeros in A's place would have shown: no gate may be that wide.
  double reference_max_abs = 0;
  std::optional<uint64_t> reference_max_ulp;
};

/// Requires equal shapes. Elements of different types are both widened, to f32 when that is exact,
/// else to f64 (64-bit integers then round). C64 counts as pairs of f32, an unknown type as bytes.
/// Accuracy: fixed order; the same figures for every number of threads.
/// Cost: one pass over both; a few words for each row and column.
TensorDifference MeasureDifference(const ElementSource& a, const ElementSource& b,
                                   int num_worst_rows);

}  // namespace assay

#pragma once

#include <cstdint>
#include <span>

#include "assay/tensor/tensor.h"

namespace assay {

/// A rows × cols matrix of floating values over a row-major tensor's bytes.
class MatrixView {
 public:
  /// Requires a dtype that WidensToFloat, and rows · cols elements of it, rows starting on whole
  /// bytes (cols · bits % 8 = 0, or at most one row). Errors: input.
  MatrixView(TensorView tensor, int64_t rows, int64_t cols);

  DType dtype() const noexcept { return tensor_.dtype; }
  int64_t rows() const noexcept { return rows_; }
  int64_t cols() const noexcept { return cols_; }

  /// The stored bytes of `count` rows from `first`. Errors: internal when out of range.
  std::span<const std::byte> RowBytes(int64_t first, int64_t count) const;

  /// Widens `count` rows exactly. Requires out.size() = count · cols. Errors: internal.
  void ReadRows(int64_t first, int64_t count, std::span<float> out) const;

 private:
  TensorView tensor_;
  int64_t rows_;
  int64_t cols_;
};

/// A tensor of any rank as one matrix: its last axis is a row, all leading axes are rows.
/// Rank 1 is one row, rank 0 one value. Errors: as the constructor.
MatrixView FlattenToMatrix(const TensorView& tensor);

}  // namespace assay

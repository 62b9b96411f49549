#include "assay/tensor/matrix_view.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "assay/base/error.h"
#include "assay/tensor/convert.h"

namespace assay {

MatrixView::MatrixView(TensorView tensor, int64_t rows, int64_t cols)
    : tensor_(std::move(tensor)), rows_(rows), cols_(cols) {
  const DType dtype = tensor_.dtype;
  if (!WidensToFloat(dtype)) ThrowInput("matrix: {} does not hold floats", NameOf(dtype));
  const Shape shape{std::max<int64_t>(rows, 0), std::max<int64_t>(cols, 0)};
  const auto num_bytes = shape.CheckedNumBytes(dtype);
  if (rows < 0 || cols < 0 || !num_bytes ||
      static_cast<size_t>(*num_bytes) != tensor_.bytes.size()) {
    ThrowInput("matrix [{}, {}] of {}: {} bytes do not fit", rows, cols, NameOf(dtype),
               tensor_.bytes.size());
  }
  if (rows > 1 && cols % 8 * BitsOf(dtype) % 8 != 0) {
    ThrowInput("matrix [{}, {}] of {}: rows do not start on whole bytes", rows, cols,
               NameOf(dtype));
  }
}

std::span<const std::byte> MatrixView::RowBytes(int64_t first, int64_t count) const {
  if (first < 0 || count < 0 || first > rows_ || count > rows_ - first) {
    ThrowInternal("matrix of {} rows: no {} rows from {}", rows_, count, first);
  }
  if (rows_ == 0) return {};
  const size_t row_bytes = tensor_.bytes.size() / static_cast<size_t>(rows_);
  return tensor_.bytes.subspan(static_cast<size_t>(first) * row_bytes,
                               static_cast<size_t>(count) * row_bytes);
}

void MatrixView::ReadRows(int64_t first, int64_t count, std::span<float> out) const {
  const std::span<const std::byte> bytes = RowBytes(first, count);
  if (out.size() != static_cast<size_t>(count) * static_cast<size_t>(cols_)) {
    ThrowInternal("matrix: {} rows of {} do not fill {} floats", count, cols_, out.size());
  }
  ReadFloats(TensorView{tensor_.dtype, {}, bytes}, 0, out);
}

MatrixView FlattenToMatrix(const TensorView& tensor) {
  const auto dims = tensor.shape.dims();
  if (dims.empty()) return MatrixView(tensor, 1, 1);
  const auto rows = Shape(std::vector<int64_t>(dims.begin(), dims.end() - 1)).CheckedNumElements();
  if (!rows) ThrowInput("matrix: the size of shape {} overflows", tensor.shape.ToString());
  return MatrixView(tensor, *rows, dims.back());
}

}  // namespace assay

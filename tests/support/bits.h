#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "assay/formats/format.h"

namespace assay::test {

/// Elements of two planes or tensors that differ bit for bit.
inline int64_t DifferentElements(std::span<const std::byte> a, std::span<const std::byte> b,
                                 size_t element_bytes = 1) {
  EXPECT_EQ(a.size(), b.size());
  int64_t different = 0;
  for (size_t i = 0; i + element_bytes <= std::min(a.size(), b.size()); i += element_bytes) {
    different += std::memcmp(&a[i], &b[i], element_bytes) != 0;
  }
  return different;
}

/// Matrix `index` of a tensor whose leading axes are a stack of matrices.
inline Tensor MatrixAt(const Tensor& tensor, int64_t index) {
  const Shape& shape = tensor.shape();
  const size_t rank = shape.rank();
  int64_t stack = 1;
  for (size_t axis = 0; axis + 2 < rank; ++axis) stack *= shape[axis];
  return tensor.As(tensor.dtype(), Shape{stack, shape[rank - 2], shape[rank - 1]}).Slice(index);
}

/// Decodes all rows to `dtype`.
inline std::vector<std::byte> DecodeAll(const EncodedMatrix& encoded, DType dtype) {
  std::vector<std::byte> out(static_cast<size_t>(encoded.rows * encoded.cols * BitsOf(dtype) / 8));
  encoded.format->DecodeRowsTo(encoded, 0, encoded.rows, dtype, out);
  return out;
}

/// The little-endian value of an element as f32; `dtype` is f32, f16 or bf16.
float ElementAsFloat(DType dtype, const std::byte* at);

enum class Zeros { kSigned, kUnsigned };

/// Elements that differ, NaN equal to NaN, and −0 equal to +0 when zeros are unsigned.
int64_t DifferentValues(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b,
                        Zeros zeros = Zeros::kSigned);

inline std::vector<std::byte> Copy(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace assay::test

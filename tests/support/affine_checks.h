#pragma once

#include <gtest/gtest.h>

#include <span>

#include "assay/formats/format.h"
#include "assay/numeric/bulk.h"
#include "assay/tensor/convert.h"
#include "tests/support/bits.h"

namespace assay::test {

/// What a weight may be stored in.
inline constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

/// Bytes of one element.
inline size_t BytesOf(DType dtype) { return static_cast<size_t>(BitsOf(dtype) / 8); }

/// The whole of a 2-D tensor.
inline EncodedMatrix EncodeTensor(const Format& format, const Tensor& matrix) {
  return format.Encode(MatrixView(matrix.view(), matrix.shape()[0], matrix.shape()[1]),
                       {.tensor_name = "test"});
}

/// Row-major values rounded to `dtype`.
inline Tensor TensorOf(std::span<const float> values, int64_t rows, DType dtype) {
  Tensor tensor = Tensor::Allocate(dtype, Shape{rows, static_cast<int64_t>(values.size()) / rows});
  Round(ElementOf(dtype), values, tensor.mutable_bytes());
  return tensor;
}

/// Elements of all planes that differ bit for bit.
inline int64_t DifferentPlanes(const EncodedMatrix& a, const EncodedMatrix& b) {
  int64_t different = 0;
  EXPECT_EQ(a.planes.size(), b.planes.size());
  for (const Plane& plane : a.planes) {
    const Tensor& other = b.Get(plane.name);
    EXPECT_EQ(plane.tensor.shape(), other.shape());
    EXPECT_EQ(plane.tensor.dtype(), other.dtype());
    different +=
        DifferentElements(plane.tensor.bytes(), other.bytes(), BytesOf(plane.tensor.dtype()));
  }
  return different;
}

}  // namespace assay::test

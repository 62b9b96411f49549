#include "assay/tensor/convert.h"

#include <gtest/gtest.h>

#include <vector>

#include "assay/base/error.h"
#include "assay/numeric/bulk.h"
#include "assay/tensor/matrix_view.h"

namespace assay {
namespace {

constexpr DType kFloatTypes[] = {DType::kF4,         DType::kF6E2M3,     DType::kF6E3M2,
                                 DType::kF8E5M2,     DType::kF8E4M3,     DType::kF8E8M0,
                                 DType::kF8E4M3Fnuz, DType::kF8E5M2Fnuz, DType::kF16,
                                 DType::kBF16,       DType::kF32};

/// `count` elements of ascending values that every type but e8m0 holds in some way.
Tensor Ascending(DType dtype, int64_t count) {
  Tensor tensor = Tensor::Allocate(dtype, Shape{count});
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13) / 2;
  Round(ElementOf(dtype), values, tensor.mutable_bytes());
  return tensor;
}

TEST(Convert, EveryFloatTypeHasTheElementOfItsWidth) {
  for (const DType dtype : kFloatTypes) {
    EXPECT_TRUE(WidensToFloat(dtype));
    EXPECT_EQ(BitsOf(ElementOf(dtype)), BitsOf(dtype)) << NameOf(dtype);
  }
  EXPECT_THROW(ElementOf(DType::kI32), Error);
  EXPECT_THROW(ElementOf(DType::kUnknown), Error);
}

TEST(Convert, ReadsFromAnyElementAsFromTheFirst) {
  for (const DType dtype : kFloatTypes) {
    constexpr int64_t kCount = 40;
    const Tensor tensor = Ascending(dtype, kCount);
    std::vector<float> all(kCount);
    ReadFloats(tensor.view(), 0, all);
    for (int64_t first = 0; first <= kCount; ++first) {
      for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{3}, kCount - first}) {
        if (first + count > kCount) continue;
        std::vector<float> part(static_cast<size_t>(count));
        ReadFloats(tensor.view(), first, part);
        for (int64_t i = 0; i < count; ++i) {
          const float expected = all[static_cast<size_t>(first + i)];
          // e8m0 holds no zero: its first element is NaN.
          ASSERT_TRUE(part[static_cast<size_t>(i)] == expected || expected != expected)
              << NameOf(dtype) << " " << first << " + " << i;
        }
      }
    }
  }
}

TEST(Convert, ElementsOutsideTheTensorAreAnError) {
  const Tensor tensor = Ascending(DType::kF4, 6);
  std::vector<float> out(3);
  EXPECT_NO_THROW(ReadFloats(tensor.view(), 3, out));
  EXPECT_THROW(ReadFloats(tensor.view(), 4, out), Error);
  EXPECT_THROW(ReadFloats(tensor.view(), -1, out), Error);
  EXPECT_THROW(ReadFloats(tensor.view(), 7, {}), Error);
}

TEST(MatrixView, ReadsTheRowsAskedFor) {
  const Tensor tensor = Ascending(DType::kBF16, 12);
  const MatrixView matrix(tensor.view(), 3, 4);
  std::vector<float> rows(8);
  matrix.ReadRows(1, 2, rows);
  EXPECT_EQ(rows, (std::vector<float>{2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5}));
  EXPECT_EQ(matrix.RowBytes(2, 1).data(), tensor.bytes().data() + 16);
}

TEST(MatrixView, RowsOfHalfABytePairAreRefused) {
  const Tensor tensor = Ascending(DType::kF4, 6);
  EXPECT_NO_THROW(MatrixView(tensor.view(), 1, 6));
  EXPECT_NO_THROW(MatrixView(tensor.view(), 3, 2));
  EXPECT_THROW(MatrixView(tensor.view(), 2, 3), Error);
}

TEST(MatrixView, ShapesThatDoNotFitTheBytesAreInputErrors) {
  const Tensor tensor = Ascending(DType::kF16, 12);
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{3, 5}, {-3, -4}, {int64_t{1} << 40, int64_t{1} << 40}}) {
    try {
      const MatrixView matrix(tensor.view(), rows, cols);
      ADD_FAILURE() << rows << " × " << cols;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
    }
  }
  EXPECT_THROW(MatrixView(Tensor::Allocate(DType::kI32, Shape{4}).view(), 2, 2), Error);
}

TEST(MatrixView, RowsOutsideAreInternalErrors) {
  const Tensor tensor = Ascending(DType::kF16, 12);
  const MatrixView matrix(tensor.view(), 3, 4);
  std::vector<float> rows(8);
  EXPECT_THROW(matrix.ReadRows(2, 2, rows), Error);
  EXPECT_THROW(matrix.ReadRows(0, 1, rows), Error);
  EXPECT_THROW(matrix.RowBytes(-1, 1), Error);
  EXPECT_THROW(matrix.RowBytes(4, 0), Error);
  EXPECT_TRUE(
      MatrixView(Tensor::Allocate(DType::kF16, Shape{0}).view(), 0, 4).RowBytes(0, 0).empty());
}

}  // namespace
}  // namespace assay

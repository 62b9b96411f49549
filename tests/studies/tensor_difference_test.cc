#include "assay/studies/tensor_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "assay/base/parallel.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

using testing::ElementsAre;

template <typename T>
Tensor Make(DType dtype, Shape shape, const std::vector<T>& elements) {
  Tensor tensor = Tensor::Allocate(dtype, std::move(shape));
  std::ranges::copy(elements, tensor.mutable_as<T>().begin());
  return tensor;
}

Tensor Floats(Shape shape, const std::vector<float>& values) {
  return Make<float>(DType::kF32, std::move(shape), values);
}

TensorDifference Compare(Tensor a, Tensor b) {
  return MeasureDifference(SourceOf(std::move(a)), SourceOf(std::move(b)), 3);
}

std::vector<float> Wave(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(std::sin(static_cast<float>(i) * 0.37f) + 0.01f);
  }
  return values;
}

TEST(TensorDifference, ATensorEqualsItself) {
  const Tensor tensor = Floats(Shape{8, 16}, Wave(128));
  const TensorDifference difference = Compare(tensor, tensor);
  EXPECT_EQ(difference.num_equal_bits, 128);
  EXPECT_EQ(difference.stats.relative_rmse, 0.0);
  EXPECT_EQ(difference.ulp->max_ulp(), 0u);
  EXPECT_FALSE(difference.first_difference);
  EXPECT_TRUE(difference.worst_rows.empty());
}

TEST(TensorDifference, TheFirstDifferenceIsGivenAlongTheAxes) {
  std::vector<float> changed = Wave(2 * 3 * 4);
  changed[17] += 1.0f;
  changed[20] += 1.0f;
  const auto difference =
      Compare(Floats(Shape{2, 3, 4}, changed), Floats(Shape{2, 3, 4}, Wave(24)));
  EXPECT_EQ(difference.first_difference, 17);
  EXPECT_THAT(difference.first_index, ElementsAre(1, 1, 1));
  EXPECT_EQ(difference.num_equal_bits, 22);
  EXPECT_EQ(difference.stats.max_abs_index, 17);
}

TEST(TensorDifference, NegativeZeroIsAnotherPatternButTheSameValue) {
  const auto difference = Compare(Floats(Shape{2}, {-0.0f, 1.0f}), Floats(Shape{2}, {0.0f, 1.0f}));
  EXPECT_EQ(difference.num_equal_bits, 1);
  EXPECT_EQ(difference.num_equal_values, 2);
  EXPECT_EQ(difference.ulp->max_ulp(), 0u);
  EXPECT_EQ(difference.num_sign_flips, 0);
}

TEST(TensorDifference, NansAreEqualValuesAndANanAgainstANumberHasNoDistance) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto difference =
      Compare(Floats(Shape{3}, {nan, nan, 1.0f}), Floats(Shape{3}, {nan, 2.0f, 1.0f}));
  EXPECT_EQ(difference.num_equal_values, 2);
  EXPECT_EQ(difference.ulp->num_unordered(), 1);
  EXPECT_FALSE(difference.stats.finite);
  EXPECT_EQ(difference.num_nonfinite_mismatches, 1);
}

TEST(TensorDifference, SignFlipsAndWorstRowsAreFound) {
  std::vector<float> reference = Wave(64);
  std::vector<float> changed = reference;
  for (size_t i = 8; i < 16; ++i) changed[i] = -changed[i];
  changed[40] *= 1.001f;
  const auto difference = Compare(Floats(Shape{8, 8}, changed), Floats(Shape{8, 8}, reference));
  EXPECT_EQ(difference.num_sign_flips, 8);
  ASSERT_EQ(difference.worst_rows.size(), 2u);
  EXPECT_EQ(difference.worst_rows[0].row, 1);
  EXPECT_NEAR(*difference.worst_rows[0].relative_rmse, 2.0, 1e-12);
  EXPECT_EQ(difference.worst_rows[0].num_differing, 8);
  EXPECT_EQ(difference.worst_rows[1].row, 5);
}

TEST(TensorDifference, AStrideIsSeenInBf16) {
  std::vector<uint16_t> reference;
  for (const float value : Wave(4 * 512)) reference.push_back(FloatToBF16(value));
  std::vector<uint16_t> changed = reference;
  for (size_t row = 0; row < 4; ++row) {
    for (size_t col = 128; col < 512; col += 16) changed[row * 512 + col] ^= 1;
  }
  const auto difference = Compare(Make<uint16_t>(DType::kBF16, Shape{4, 512}, changed),
                                  Make<uint16_t>(DType::kBF16, Shape{4, 512}, reference));
  EXPECT_EQ(difference.pattern, "every 16th column from 128");
  EXPECT_THAT(difference.first_index, ElementsAre(0, 128));
  EXPECT_EQ(difference.ulp->max_ulp(), 1u);
  EXPECT_EQ(difference.ulp->counts()[1], 4 * 24);
}

TEST(TensorDifference, DifferentTypesAreComparedByValueWithoutUlp) {
  const auto difference = Compare(Make<uint16_t>(DType::kBF16, Shape{2}, {0x3F80, 0x4000}),
                                  Floats(Shape{2}, {1.0f, 2.5f}));
  EXPECT_EQ(difference.dtype, DType::kF32);
  EXPECT_FALSE(difference.ulp);
  EXPECT_EQ(difference.num_equal_bits, 1);
  EXPECT_EQ(difference.stats.max_abs, 0.5);
}

TEST(TensorDifference, LargeIntegersKeepTheirLastUnit) {
  const int64_t big = int64_t{1} << 40;
  const auto difference = Compare(Make<int64_t>(DType::kI64, Shape{2}, {big + 1, -5}),
                                  Make<int64_t>(DType::kI64, Shape{2}, {big, 5}));
  EXPECT_EQ(difference.stats.max_abs, 10.0);
  EXPECT_EQ(difference.ulp->max_ulp(), 10u);
  EXPECT_EQ(difference.num_sign_flips, 1);
  EXPECT_EQ(difference.num_equal_bits, 0);
}

TEST(TensorDifference, NibblesInsideAByteAreComparedOneByOne) {
  // [2, 7]: the second row starts inside a byte.
  const auto difference =
      Compare(Make<uint8_t>(DType::kF4, Shape{2, 7}, {0x21, 0x43, 0x65, 0x87, 0, 0x10, 0}),
              Make<uint8_t>(DType::kF4, Shape{2, 7}, {0x21, 0x43, 0x65, 0x07, 0, 0x20, 0}));
  // Element 7 is −0 against +0, element 11 is 1 against 2.
  EXPECT_EQ(difference.first_difference, 7);
  EXPECT_THAT(difference.first_index, ElementsAre(1, 0));
  EXPECT_EQ(difference.num_equal_bits, 12);
  EXPECT_EQ(difference.num_equal_values, 13);
}

TEST(TensorDifference, ScalarsAndEmptyTensorsAreFine) {
  EXPECT_EQ(Compare(Floats(Shape{}, {1.0f}), Floats(Shape{}, {2.0f})).stats.max_abs, 1.0);
  const auto empty = Compare(Floats(Shape{0, 5}, {}), Floats(Shape{0, 5}, {}));
  EXPECT_EQ(empty.num_elements, 0);
  EXPECT_EQ(empty.stats.relative_rmse, 0.0);
  EXPECT_EQ(Compare(Make<float>(DType::kC64, Shape{1}, {1.0f, 2.0f}),
                    Make<float>(DType::kC64, Shape{1}, {1.0f, 2.5f}))
                .first_difference,
            1);
}

TEST(TensorDifference, ThreadCountAndRowLengthChangeNothing) {
  const int64_t count = 3 * 40000;
  std::vector<float> changed = Wave(count);
  for (size_t i = 7; i < changed.size(); i += 1001) changed[i] *= 1.5f;
  const int before = NumThreads();
  std::vector<TensorDifference> results;
  for (const Shape& shape : {Shape{3, 40000}, Shape{1200, 100}, Shape{count}}) {
    for (const int threads : {1, 3}) {
      SetNumThreads(threads);
      results.push_back(Compare(Floats(shape, changed), Floats(shape, Wave(count))));
    }
    const TensorDifference& one = results[results.size() - 2];
    const TensorDifference& three = results.back();
    EXPECT_EQ(one.stats.rmse, three.stats.rmse);
    EXPECT_EQ(one.first_difference, three.first_difference);
    EXPECT_EQ(one.pattern, three.pattern);
  }
  SetNumThreads(before);
  for (const TensorDifference& result : results) {
    EXPECT_EQ(result.num_equal_bits, results[0].num_equal_bits);
    EXPECT_EQ(result.stats.max_abs_index, results[0].stats.max_abs_index);
    EXPECT_NEAR(result.stats.rmse, results[0].stats.rmse, 1e-15);
  }
}

}  // namespace
}  // namespace assay

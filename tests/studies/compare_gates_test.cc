#include "assay/studies/compare_gates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "assay/base/error.h"

namespace assay {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TensorDifference Compare(const std::vector<float>& a, const std::vector<float>& b) {
  const auto make = [](const std::vector<float>& values) {
    Tensor tensor = Tensor::Allocate(DType::kF32, Shape{1, static_cast<int64_t>(values.size())});
    std::ranges::copy(values, tensor.mutable_as<float>().begin());
    return SourceOf(tensor);
  };
  const ElementSource source_a = make(a);
  const ElementSource source_b = make(b);
  return MeasureDifference(source_a, source_b, 0);
}

TEST(CompareGates, NoGateLetsEverythingPass) {
  EXPECT_THAT(FailedGates({}, Compare({1, 2}, {3, 4})), IsEmpty());
}

TEST(CompareGates, EachGateNamesItsFigureAndItsLimit) {
  const TensorDifference difference = Compare({1.5f, -2}, {1, 2});
  EXPECT_THAT(FailedGates({.max_relative_rmse = 0.5}, difference),
              ElementsAre(HasSubstr("relative RMSE 1.8 > 0.5")));
  EXPECT_THAT(FailedGates({.max_abs = 3}, difference), ElementsAre(HasSubstr("max abs 4 > 3")));
  EXPECT_THAT(FailedGates({.max_ulp = 5}, difference), ElementsAre(HasSubstr("max ULP")));
  EXPECT_THAT(FailedGates({.min_cosine = 0.9}, difference), ElementsAre(HasSubstr("cosine")));
  EXPECT_THAT(FailedGates({.equal = true}, difference),
              ElementsAre("2 of 2 elements differ in their bits"));
}

TEST(CompareGates, FiguresAtTheLimitPass) {
  const TensorDifference difference = Compare({1.5f, 2}, {1, 2});
  EXPECT_THAT(FailedGates({.max_abs = 0.5, .max_ulp = 1u << 22}, difference), IsEmpty());
}

TEST(CompareGates, ANegativeZeroIsNotEqualBits) {
  const TensorDifference difference = Compare({-0.0f}, {0.0f});
  EXPECT_EQ(FailedGates({.equal = true}, difference).size(), 1u);
  EXPECT_THAT(FailedGates({.max_abs = 0, .max_ulp = 0, .min_cosine = 1}, difference), IsEmpty());
}

TEST(CompareGates, ANanOnOneSideFailsEveryLimit) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(FailedGates({.max_abs = 10}, Compare({nan, 1}, {1, 1})).size(), 1u);
  EXPECT_EQ(FailedGates({.max_relative_rmse = 0.5}, Compare({inf, 1}, {1, 1})).size(), 1u);
  EXPECT_EQ(FailedGates({.max_abs = 10}, Compare({inf, 1}, {-inf, 1})).size(), 1u);
  EXPECT_THAT(FailedGates({.max_abs = 10}, Compare({nan, inf}, {nan, inf})), IsEmpty());
}

TEST(CompareGates, AZeroReferenceNeedsZeros) {
  EXPECT_THAT(FailedGates({.max_relative_rmse = 0.1, .min_cosine = 0.9}, Compare({0, 0}, {0, 0})),
              IsEmpty());
  EXPECT_EQ(
      FailedGates({.max_relative_rmse = 0.1, .min_cosine = 0.9}, Compare({0, 1}, {0, 0})).size(),
      2u);
}

TEST(CompareGates, LimitsThatZerosAlwaysPassAreRefused) {
  EXPECT_THROW(RequireTellingGates({.max_relative_rmse = 1.0}), Error);
  EXPECT_THROW(RequireTellingGates({.max_relative_rmse = -0.1}), Error);
  EXPECT_THROW(RequireTellingGates({.max_abs = std::numeric_limits<double>::quiet_NaN()}), Error);
  EXPECT_THROW(RequireTellingGates({.min_cosine = 0.0}), Error);
  EXPECT_THROW(RequireTellingGates({.min_cosine = 1.5}), Error);
  EXPECT_NO_THROW(RequireTellingGates({.max_relative_rmse = 0.99, .min_cosine = 1.0}));
}

TEST(CompareGates, AnAbsoluteLimitAboveEveryReferenceValueIsVacuous) {
  const TensorDifference difference = Compare({0.5f, 0.25f}, {0.5f, -0.25f});
  EXPECT_THAT(WhyGatesAreVacuous({.max_abs = 0.5}, difference).value_or(""), HasSubstr("all-zero"));
  EXPECT_THAT(WhyGatesAreVacuous({.max_ulp = 0x3F000000}, difference).value_or(""),
              HasSubstr("all-zero"));
  EXPECT_EQ(WhyGatesAreVacuous({.max_abs = 0.49}, difference), std::nullopt);
  EXPECT_EQ(WhyGatesAreVacuous({.max_abs = 1, .max_ulp = 4}, difference), std::nullopt);
  EXPECT_EQ(WhyGatesAreVacuous({.max_relative_rmse = 0.1, .max_abs = 1}, difference), std::nullopt);
  EXPECT_EQ(WhyGatesAreVacuous({.max_abs = 1}, Compare({0}, {0})), std::nullopt);
  EXPECT_EQ(WhyGatesAreVacuous({}, difference), std::nullopt);
}

}  // namespace
}  // namespace assay

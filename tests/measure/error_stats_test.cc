#include "assay/measure/error_stats.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "assay/base/error.h"
#include "assay/base/parallel.h"

namespace assay {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

ErrorStats Of(const std::vector<float>& a, const std::vector<float>& b) {
  return MeasureErrors(a, b);
}

std::vector<float> Normal(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool SameFigures(const ErrorStats& a, const ErrorStats& b) {
  return a.num_values == b.num_values && a.num_finite == b.num_finite &&
         SameBits(a.relative_rmse.value_or(-1), b.relative_rmse.value_or(-1)) &&
         SameBits(a.rmse, b.rmse) && SameBits(a.max_abs, b.max_abs) &&
         a.max_abs_index == b.max_abs_index && SameBits(a.mean_abs, b.mean_abs) &&
         SameBits(a.max_rel, b.max_rel) && a.max_rel_index == b.max_rel_index &&
         SameBits(a.mean_rel, b.mean_rel) && SameBits(a.rhs_rms, b.rhs_rms) &&
         SameBits(a.cosine.value_or(-2), b.cosine.value_or(-2)) &&
         SameBits(a.equal_fraction, b.equal_fraction);
}

TEST(ErrorStats, OfNothingAreZeroAndEqual) {
  const ErrorStats stats = Of({}, {});
  EXPECT_EQ(stats.num_values, 0);
  EXPECT_EQ(stats.relative_rmse, 0.0);
  EXPECT_EQ(stats.rmse, 0.0);
  EXPECT_EQ(stats.max_abs, 0.0);
  EXPECT_EQ(stats.max_abs_index, -1);
  EXPECT_EQ(stats.equal_fraction, 1.0);
  EXPECT_FALSE(stats.cosine);
  EXPECT_FALSE(stats.sqnr_db);
  EXPECT_TRUE(stats.finite);
}

TEST(ErrorStats, OfOnePairAreItsDifference) {
  const ErrorStats stats = Of({3.0f}, {2.0f});
  EXPECT_DOUBLE_EQ(*stats.relative_rmse, 0.5);
  EXPECT_DOUBLE_EQ(stats.rmse, 1.0);
  EXPECT_DOUBLE_EQ(stats.max_abs, 1.0);
  EXPECT_EQ(stats.max_abs_index, 0);
  EXPECT_DOUBLE_EQ(stats.max_rel, 0.5);
  EXPECT_DOUBLE_EQ(stats.mean_rel, 0.5);
  EXPECT_DOUBLE_EQ(stats.rhs_rms, 2.0);
  EXPECT_DOUBLE_EQ(*stats.rmse_over_rhs_rms, 0.5);
  EXPECT_DOUBLE_EQ(*stats.cosine, 1.0);
  EXPECT_NEAR(*stats.sqnr_db, 6.0206, 1e-4);
  EXPECT_EQ(stats.equal_fraction, 0.0);
}

TEST(ErrorStats, AZeroReferenceHasNoRelativeErrorUnlessMet) {
  EXPECT_FALSE(Of({1, 0}, {0, 0}).relative_rmse);
  EXPECT_FALSE(Of({1, 0}, {0, 0}).sqnr_db);
  EXPECT_FALSE(Of({1, 0}, {0, 0}).cosine);
  EXPECT_EQ(Of({0, -0.0f}, {0, 0}).relative_rmse, 0.0);
  EXPECT_EQ(Of({0, 0}, {0, 0}).rmse_over_rhs_rms, 0.0);
}

TEST(ErrorStats, RelativeDifferencesHaveAFloor) {
  EXPECT_DOUBLE_EQ(Of({1e-6f}, {0}).max_rel, static_cast<double>(1e-6f) / 1e-6);
}

TEST(ErrorStats, SignedZerosAreEqualAndNansAreEqual) {
  EXPECT_EQ(Of({-0.0f, kNan}, {0.0f, -kNan}).equal_fraction, 1.0);
  EXPECT_EQ(Of({kInf, kInf}, {kInf, -kInf}).equal_fraction, 0.5);
}

TEST(ErrorStats, NonFiniteValuesAreCountedAndLeftOut) {
  const ErrorStats stats = Of({1, kNan, kInf, 4, 5, 6}, {1, 2, 3, kNan, -kInf, 8});
  EXPECT_FALSE(stats.finite);
  EXPECT_EQ(stats.num_values, 6);
  EXPECT_EQ(stats.num_finite, 2);
  EXPECT_EQ(stats.num_nan, 1);
  EXPECT_EQ(stats.num_inf, 1);
  EXPECT_EQ(stats.num_ref_nan, 1);
  EXPECT_EQ(stats.num_ref_inf, 1);
  EXPECT_DOUBLE_EQ(stats.max_abs, 2.0);
  EXPECT_EQ(stats.max_abs_index, 5);
  EXPECT_DOUBLE_EQ(stats.rmse, std::sqrt(4.0 / 2.0));
}

TEST(ErrorStats, AllNonFiniteLeavesNothingToMeasure) {
  const ErrorStats stats = Of({kNan, kInf}, {kNan, 1});
  EXPECT_EQ(stats.num_finite, 0);
  EXPECT_EQ(stats.max_abs_index, -1);
  EXPECT_EQ(stats.rmse, 0.0);
  EXPECT_EQ(stats.equal_fraction, 0.5);
}

TEST(ErrorStats, TheLargestFloatsDoNotOverflow) {
  const float max = std::numeric_limits<float>::max();
  const ErrorStats stats = Of({max, -max}, {-max, max});
  EXPECT_DOUBLE_EQ(*stats.relative_rmse, 2.0);
  EXPECT_DOUBLE_EQ(*stats.cosine, -1.0);
}

TEST(ErrorStats, TheFirstOfEqualMaximaIsNamed) {
  std::vector<float> b(5000, 1.0f);
  std::vector<float> a = b;
  for (size_t i : {1500u, 1501u, 4000u}) a[i] = 3.0f;
  EXPECT_EQ(Of(a, b).max_abs_index, 1500);
  EXPECT_EQ(Of(a, b).max_rel_index, 1500);
}

TEST(ErrorStats, AgreeWithLongDoubleSums) {
  const std::vector<float> b = Normal(200003, 1);
  std::vector<float> a = Normal(200003, 2);
  for (size_t i = 0; i < a.size(); ++i) a[i] = b[i] + 0.1f * a[i];
  long double d2 = 0;
  long double b2 = 0;
  long double abs = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const long double d = static_cast<long double>(a[i]) - static_cast<long double>(b[i]);
    d2 += d * d;
    b2 += static_cast<long double>(b[i]) * static_cast<long double>(b[i]);
    abs += std::abs(d);
  }
  const ErrorStats stats = Of(a, b);
  EXPECT_NEAR(*stats.relative_rmse, static_cast<double>(std::sqrt(d2 / b2)), 1e-15);
  EXPECT_NEAR(stats.mean_abs, static_cast<double>(abs / 200003.0L), 1e-15);
}

TEST(ErrorStats, HaveTheSameBitsForEveryThreadCount) {
  const std::vector<float> a = Normal(300001, 3);
  const std::vector<float> b = Normal(300001, 4);
  const int before = NumThreads();
  SetNumThreads(1);
  const ErrorStats one = Of(a, b);
  for (const int threads : {2, 3}) {
    SetNumThreads(threads);
    EXPECT_TRUE(SameFigures(one, Of(a, b))) << threads;
  }
  SetNumThreads(before);
}

TEST(ErrorStats, HaveTheSameBitsOnEveryInstructionSet) {
  std::vector<float> a = Normal(5003, 5);
  const std::vector<float> b = Normal(5003, 6);
  a[17] = kNan;
  const ErrorStats best = Of(a, b);
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    EXPECT_TRUE(SameFigures(best, Of(a, b))) << hwy::TargetName(target);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

RC_GTEST_PROP(ErrorSums, MergingPiecesEqualsAddingThem, ()) {
  const auto size = static_cast<size_t>(*rc::gen::inRange(0, 4000));
  const auto cut = static_cast<size_t>(*rc::gen::inRange<size_t>(0, size + 1));
  const std::vector<float> a = Normal(size, 7);
  const std::vector<float> b = Normal(size, 8);
  const std::span<const float> all_a(a);
  const std::span<const float> all_b(b);
  ErrorSums whole;
  whole.Add(all_a.first(cut), all_b.first(cut));
  ErrorSums rest;
  rest.Add(all_a.subspan(cut), all_b.subspan(cut));
  whole.Merge(rest);
  const ErrorStats merged = whole.Stats();
  const ErrorStats direct = Of(a, b);
  RC_ASSERT(merged.num_values == direct.num_values);
  RC_ASSERT(merged.max_abs_index == direct.max_abs_index);
  RC_ASSERT(merged.max_rel_index == direct.max_rel_index);
  RC_ASSERT(merged.max_abs == direct.max_abs);
  RC_ASSERT(std::abs(merged.rmse - direct.rmse) < 1e-14);
  RC_ASSERT(merged.equal_fraction == direct.equal_fraction);
}

TEST(ErrorSums, RefusesSpansOfDifferentLength) {
  const std::vector<float> a(2);
  const std::vector<float> b(3);
  EXPECT_THROW(MeasureErrors(a, b), Error);
}

}  // namespace
}  // namespace assay

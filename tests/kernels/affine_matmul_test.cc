#include <gtest/gtest.h>

#include <fmt/format.h>

#include "assay/base/target.h"
#include "tests/support/product_check.h"

namespace assay {
namespace {

constexpr int kBits[] = {2, 3, 4, 5, 6, 8};

TEST(AffineMatmul, StaysWithinTheBoundForEveryShapeClass) {
  for (const int bits : kBits) {
    EXPECT_TRUE(HoldsForEveryShape(fmt::format("affine{}g32", bits), {32, 160}, DType::kBF16));
    EXPECT_TRUE(HoldsForEveryShape(fmt::format("affine{}g64", bits), {64, 192}, DType::kBF16));
    EXPECT_TRUE(HoldsForEveryShape(fmt::format("affine{}g128", bits), {128}, DType::kBF16));
  }
}

TEST(AffineMatmul, StaysWithinTheBoundOnEveryTarget) {
  for (const std::string& target : SupportedTargets()) {
    SCOPED_TRACE(target);
    ForceTarget(target);
    for (const int bits : kBits) {
      for (const int group : {32, 64, 128}) {
        const std::string name = fmt::format("affine{}g{}", bits, group);
        const EncodedMatrix weight = EncodeRandom(name, 9, 5 * group, DType::kBF16, 1);
        for (const int64_t m : {1, 3}) {
          const auto x = RandomValues(m * weight.cols, 2);
          EXPECT_TRUE(WithinBound(weight, Strategy::kFused, x, m));
          EXPECT_TRUE(WithinBound(weight, Strategy::kFusedA8, x, m));
        }
      }
    }
  }
  ResetTarget();
}

TEST(AffineMatmul, TakesHardInputs) {
  for (const int bits : kBits)
    EXPECT_TRUE(HoldsForHardInputs(fmt::format("affine{}g64", bits), 320));
}

TEST(AffineMatmul, TakesScalesOfEveryDType) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int bits : kBits) {
      for (const int group : {32, 64, 128}) {
        const std::string name = fmt::format("affine{}g{}", bits, group);
        const EncodedMatrix weight = EncodeRandom(name, 6, 3 * group + 128, dtype, 1);
        const auto x = RandomValues(weight.cols, 2);
        EXPECT_TRUE(WithinBound(weight, Strategy::kFused, x, 1));
        EXPECT_TRUE(WithinBound(weight, Strategy::kFusedA8, x, 1));
      }
    }
  }
}

TEST(AffineMatmul, LongRowsStayWithinTheBound) {
  const EncodedMatrix weight = EncodeRandom("affine4g64", 7, 14336, DType::kBF16, 1);
  const auto x = RandomValues(14336, 2);
  EXPECT_TRUE(WithinBound(weight, Strategy::kFused, x, 1));
  EXPECT_TRUE(WithinBound(weight, Strategy::kFusedA8, x, 1));
}

TEST(AffineMatmul, DoesNotDependOnTheNumberOfThreads) {
  for (const int bits : kBits) {
    const EncodedMatrix weight =
        EncodeRandom(fmt::format("affine{}g64", bits), 96, 448, DType::kBF16, 1);
    for (const int64_t m : {1, 3, 9}) {
      const auto x = RandomValues(m * 448, 3);
      EXPECT_TRUE(SameForAllThreadCounts(weight, Strategy::kFused, x, m));
      EXPECT_TRUE(SameForAllThreadCounts(weight, Strategy::kFusedA8, x, m));
    }
  }
}

}  // namespace
}  // namespace assay

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "assay/base/target.h"
#include "tests/support/product_check.h"

namespace assay {
namespace {

TEST(TurboQuantMatmul, StaysWithinTheBoundForEveryShapeClass) {
  for (const int bits : {2, 3, 4}) {
    EXPECT_TRUE(HoldsForEveryShape(fmt::format("tq{}g32", bits), {32, 160}, DType::kBF16));
    EXPECT_TRUE(HoldsForEveryShape(fmt::format("tq{}g64", bits), {64, 320}, DType::kBF16));
    EXPECT_TRUE(HoldsForEveryShape(fmt::format("tq{}g128", bits), {128, 384}, DType::kBF16));
  }
}

TEST(TurboQuantMatmul, TakesHardInputs) {
  for (const int bits : {2, 3, 4})
    EXPECT_TRUE(HoldsForHardInputs(fmt::format("tq{}g64", bits), 320));
}

TEST(TurboQuantMatmul, StaysWithinTheBoundOnEveryTarget) {
  for (const std::string& target : SupportedTargets()) {
    SCOPED_TRACE(target);
    ForceTarget(target);
    for (const int bits : {2, 3, 4}) {
      const EncodedMatrix weight =
          EncodeRandom(fmt::format("tq{}g64", bits), 9, 448, DType::kBF16, 1);
      for (const int64_t m : {1, 3}) {
        EXPECT_TRUE(WithinBound(weight, Strategy::kFused, RandomValues(m * 448, 2), m));
      }
    }
  }
  ResetTarget();
}

TEST(TurboQuantMatmul, DoesNotDependOnTheNumberOfThreads) {
  for (const int bits : {2, 3, 4}) {
    const EncodedMatrix weight =
        EncodeRandom(fmt::format("tq{}g128", bits), 96, 384, DType::kBF16, 1);
    for (const int64_t m : {1, 3, 9}) {
      EXPECT_TRUE(SameForAllThreadCounts(weight, Strategy::kFused, RandomValues(m * 384, 3), m));
    }
  }
}

}  // namespace
}  // namespace assay

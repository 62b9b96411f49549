#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/base/target.h"
#include "tests/support/product_check.h"

namespace assay {
namespace {

constexpr const char* kFormats[] = {"mxfp4",  "mxfp6e2m3", "mxfp6e3m2", "mxfp8",     "mxfp8e5m2",
                                    "mxint8", "nvfp4",     "mlx-mxfp4", "mlx-mxfp8", "mlx-nvfp4"};

TEST(BlockMatmul, StaysWithinTheBoundForEveryShapeClass) {
  for (const char* format : kFormats)
    EXPECT_TRUE(HoldsForEveryShape(format, {32, 160, 224}, DType::kBF16));
}

TEST(BlockMatmul, TakesHardInputs) {
  for (const char* format : kFormats) EXPECT_TRUE(HoldsForHardInputs(format, 320));
}

TEST(BlockMatmul, StaysWithinTheBoundOnEveryTarget) {
  for (const std::string& target : SupportedTargets()) {
    SCOPED_TRACE(target);
    ForceTarget(target);
    for (const char* format : kFormats) {
      const EncodedMatrix weight = EncodeRandom(format, 9, 416, DType::kBF16, 1);
      const auto x = RandomValues(weight.cols, 2);
      EXPECT_TRUE(WithinBound(weight, Strategy::kFused, x, 1));
      EXPECT_TRUE(WithinBound(weight, Strategy::kFusedA8, x, 1));
    }
  }
  ResetTarget();
}

TEST(BlockMatmul, DoesNotDependOnTheNumberOfThreads) {
  for (const char* format : kFormats) {
    const EncodedMatrix weight = EncodeRandom(format, 96, 448, DType::kBF16, 1);
    const auto x = RandomValues(448, 3);
    EXPECT_TRUE(SameForAllThreadCounts(weight, Strategy::kFused, x, 1));
    EXPECT_TRUE(SameForAllThreadCounts(weight, Strategy::kFusedA8, x, 1));
  }
}

}  // namespace
}  // namespace assay

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/base/target.h"
#include "tests/support/product_check.h"

namespace assay {
namespace {

constexpr const char* kFormats[] = {"mxfp4",  "mxfp6e2m3", "mxfp6e3m2", "mxfp8",     "mxfp8e5m2",
                                    "mxint8", "nvfp4",     "mlx-mxfp4", "mlx-mxfp8", "mlx-nvfp4"};

TEST(BlockMatmul, StaysWithinTheBoundForEveryShapeClass) {
  for (const char* format : kFormats) CheckShapes(format, {32, 160, 224}, DType::kBF16);
}

TEST(BlockMatmul, TakesHardInputs) {
  for (const char* format : kFormats) CheckHardInputs(format, 320);
}

TEST(BlockMatmul, StaysWithinTheBoundOnEveryTarget) {
  for (const std::string& target : SupportedTargets()) {
    SCOPED_TRACE(target);
    ForceTarget(target);
    for (const char* format : kFormats) {
      const EncodedMatrix weight = EncodeRandom(format, 9, 416, DType::kBF16, 1);
      const auto x = RandomValues(weight.cols, 2);
      ExpectWithinBound(weight, Strategy::kFused, x, 1);
      ExpectWithinBound(weight, Strategy::kFusedA8, x, 1);
    }
  }
  ResetTarget();
}

TEST(BlockMatmul, DoesNotDependOnTheNumberOfThreads) {
  for (const char* format : kFormats) {
    const EncodedMatrix weight = EncodeRandom(format, 96, 448, DType::kBF16, 1);
    const auto x = RandomValues(448, 3);
    ExpectSameForAllThreadCounts(weight, Strategy::kFused, x, 1);
    ExpectSameForAllThreadCounts(weight, Strategy::kFusedA8, x, 1);
  }
}

}  // namespace
}  // namespace assay

#include <gtest/gtest.h>

#include "tests/support/product_check.h"

namespace assay {
namespace {

constexpr const char* kFp8Formats[] = {"fp8-block128", "fp8-block64x128:ue8m0", "fp8-tensor",
                                       "fp8-channel:bf16"};

TEST(Fp8Matmul, StaysWithinTheBoundForEveryShapeClass) {
  for (const char* format : kFp8Formats)
    EXPECT_TRUE(HoldsForEveryShape(format, {1, 63, 65, 129, 200}, DType::kBF16));
}

TEST(Fp8Matmul, TakesHardInputs) {
  for (const char* format : kFp8Formats) EXPECT_TRUE(HoldsForHardInputs(format, 300));
}

TEST(Fp8Matmul, DoesNotDependOnTheNumberOfThreads) {
  for (const char* format : kFp8Formats) {
    const EncodedMatrix weight = EncodeRandom(format, 96, 448, DType::kBF16, 1);
    for (const int64_t m : {1, 3, 9}) {
      EXPECT_TRUE(SameForAllThreadCounts(weight, Strategy::kFused, RandomValues(m * 448, 3), m));
    }
  }
}

}  // namespace
}  // namespace assay

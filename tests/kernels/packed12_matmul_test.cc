#include <gtest/gtest.h>

#include "assay/kernels/matmul.h"
#include "tests/support/product_check.h"

namespace assay {
namespace {

TEST(Packed12Matmul, StaysWithinTheBoundForEveryShapeClass) {
  EXPECT_TRUE(HoldsForEveryShape("packed12", {2, 7, 62, 63, 64, 66, 130, 200}, DType::kBF16));
}

TEST(Packed12Matmul, TakesHardInputs) { EXPECT_TRUE(HoldsForHardInputs("packed12", 320)); }

TEST(Packed12Matmul, AddsWhatEscapes) {
  // Rows of very different sizes: some have no exponent inside the window at all.
  const EncodedMatrix weight = EncodeRandom("packed12", 10, 64, DType::kBF16, 1);
  ASSERT_GT(weight.Get("escape_values").num_bytes(), 0);
  for (const int64_t m : {1, 2, 3, 5}) {
    EXPECT_TRUE(WithinBound(weight, Strategy::kFused, RandomValues(m * 64, 2), m));
  }
}

TEST(Packed12Matmul, DoesNotDependOnTheNumberOfThreads) {
  const EncodedMatrix weight = EncodeRandom("packed12", 96, 446, DType::kBF16, 1);
  for (const int64_t m : {1, 3, 9}) {
    EXPECT_TRUE(SameForAllThreadCounts(weight, Strategy::kFused, RandomValues(m * 446, 3), m));
  }
}

}  // namespace
}  // namespace assay

#include "assay/tensor/shape.h"

#include <gtest/gtest.h>

namespace assay {
namespace {

TEST(Shape, ScalarHasOneElement) { EXPECT_EQ(Shape{}.NumElements(), 1); }

TEST(Shape, ProductOverflowsEvenWhenALaterDimensionIsZero) {
  const int64_t big = int64_t{1} << 62;
  EXPECT_FALSE((Shape{big, 8, 0}).CheckedNumElements());
  EXPECT_EQ((Shape{0, big, 8}).CheckedNumElements(), 0);
}

TEST(Shape, AnOddNumberOfNibblesIsNoNumberOfBytes) {
  EXPECT_FALSE((Shape{3}).CheckedNumBytes(DType::kF4));
  EXPECT_EQ((Shape{2, 7}).CheckedNumBytes(DType::kF4), 7);
  EXPECT_EQ((Shape{4}).CheckedNumBytes(DType::kF6E2M3), 3);
}

TEST(Shape, UnknownTypesHaveNoSize) { EXPECT_FALSE(Shape{}.CheckedNumBytes(DType::kUnknown)); }

TEST(Shape, PrintsAsJsonWould) {
  EXPECT_EQ((Shape{4096, 11008}).ToString(), "[4096, 11008]");
  EXPECT_EQ(Shape{}.ToString(), "[]");
}

}  // namespace
}  // namespace assay

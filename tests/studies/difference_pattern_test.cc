#include "assay/studies/difference_pattern.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace assay {
namespace {

std::string Describe(int64_t rows, int64_t cols,
                     const std::function<bool(int64_t, int64_t)>& differs) {
  std::vector<int64_t> row_counts(static_cast<size_t>(rows));
  std::vector<int64_t> column_counts(static_cast<size_t>(cols));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      if (!differs(row, col)) continue;
      ++row_counts[static_cast<size_t>(row)];
      ++column_counts[static_cast<size_t>(col)];
    }
  }
  return DescribeDifferences(row_counts, column_counts);
}

TEST(DifferencePattern, AStrideIsNamedFromItsFirstColumn) {
  EXPECT_EQ(Describe(8, 512, [](int64_t, int64_t c) { return c >= 128 && c % 16 == 0; }),
            "every 16th column from 128");
}

TEST(DifferencePattern, TheSecondHalfOfEachGroupIsNamed) {
  EXPECT_EQ(Describe(4, 256, [](int64_t, int64_t c) { return c % 64 >= 32; }),
            "columns 32 to 63, then again every 64");
}

TEST(DifferencePattern, RowsAndColumnsCombine) {
  EXPECT_EQ(Describe(16, 64, [](int64_t r, int64_t c) { return r >= 8 && r < 12 && c == 5; }),
            "only column 5, rows 8 to 11");
  EXPECT_EQ(Describe(16, 64, [](int64_t r, int64_t) { return r >= 8; }), "every row from 8 on");
  EXPECT_EQ(Describe(16, 64, [](int64_t r, int64_t) { return r % 2 == 1; }),
            "every 2nd row from 1");
}

TEST(DifferencePattern, AFewCoincidencesDoNotHideIt) {
  EXPECT_EQ(Describe(100, 64, [](int64_t r, int64_t c) { return c % 4 == 3 && (r + c) % 10 != 0; }),
            "every 4th column from 3");
}

TEST(DifferencePattern, ScatteredOrCompleteDifferencesHaveNoWords) {
  EXPECT_EQ(Describe(64, 64, [](int64_t r, int64_t c) { return (r * 31 + c * 17) % 13 == 0; }), "");
  EXPECT_EQ(Describe(8, 8, [](int64_t, int64_t) { return true; }), "");
  EXPECT_EQ(Describe(8, 8, [](int64_t, int64_t) { return false; }), "");
  EXPECT_EQ(Describe(0, 0, [](int64_t, int64_t) { return false; }), "");
}

}  // namespace
}  // namespace assay

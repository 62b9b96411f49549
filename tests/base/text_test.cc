#include "assay/base/text.h"

#include <gtest/gtest.h>

#include <limits>

namespace assay {
namespace {

TEST(Text, QuotedEscapesWhatWouldBreakALine) {
  EXPECT_EQ(Quoted("a.weight"), "\"a.weight\"");
  EXPECT_EQ(Quoted("a\nb\t\"\\"), "\"a\\nb\\u0009\\\"\\\\\"");
  EXPECT_EQ(Quoted(std::string_view("a\0b", 3)), "\"a\\u0000b\"");
  EXPECT_EQ(Quoted("模型"), "\"模型\"");
  EXPECT_EQ(Quoted("\xff\xc3"), "\"\\xff\\xc3\"");
}

TEST(Text, QuotedCutsLongTextBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "é";
  const std::string quoted = Quoted(text);
  EXPECT_LT(quoted.size(), 200u);
  EXPECT_NE(quoted.find("1,840 bytes"), std::string::npos) << quoted;
  EXPECT_EQ(FirstInvalidUtf8(quoted), std::nullopt);
}

TEST(Text, GroupedPutsACommaAfterEveryThirdDigit) {
  EXPECT_EQ(Grouped(uint64_t{0}), "0");
  EXPECT_EQ(Grouped(uint64_t{999}), "999");
  EXPECT_EQ(Grouped(uint64_t{1000}), "1,000");
  EXPECT_EQ(Grouped(int64_t{-1234567}), "-1,234,567");
  EXPECT_EQ(Grouped(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Text, InvalidUtf8IsFoundAtItsFirstByte) {
  EXPECT_EQ(FirstInvalidUtf8("plain é 模 😀"), std::nullopt);
  EXPECT_EQ(FirstInvalidUtf8("a\x80"), 1u);             // a continuation alone
  EXPECT_EQ(FirstInvalidUtf8("ab\xc0\xaf"), 2u);        // overlong
  EXPECT_EQ(FirstInvalidUtf8("\xe0\x80\xaf"), 0u);      // overlong
  EXPECT_EQ(FirstInvalidUtf8("\xf0\x80\x80\xaf"), 0u);  // overlong
  EXPECT_EQ(FirstInvalidUtf8("\xed\xa0\x80"), 0u);      // surrogate
  EXPECT_EQ(FirstInvalidUtf8("\xf4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(FirstInvalidUtf8("\xf5\x80\x80\x80"), 0u);
  EXPECT_EQ(FirstInvalidUtf8("\xed\x9f\xbf"), std::nullopt);  // the last before the surrogates
  EXPECT_EQ(FirstInvalidUtf8("\xe6\xa8"), 0u);                // cut
}

}  // namespace
}  // namespace assay

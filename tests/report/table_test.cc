#include "assay/report/table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <sstream>

#include "assay/base/error.h"
#include "assay/report/number.h"

namespace assay {
namespace {

Table Example() {
  Table table({{"tensor", Align::kLeft, Shorten::kLeft}, {"error"}, {"worst"}});
  table.AddRow({"encoder.layer.0.output.dense.weight", "0.0951", "0.131"});
  table.AddRow({"a", "1"});
  return table;
}

TEST(Table, AlignsNumbersToTheRight) {
  EXPECT_EQ(Example().Render({}),
            "tensor                                error  worst\n"
            "encoder.layer.0.output.dense.weight  0.0951  0.131\n"
            "a                                         1\n");
}

TEST(Table, ShortensNamesFromTheLeftBeforeItDropsColumns) {
  const std::string narrow = Example().Render({40, false});
  EXPECT_NE(narrow.find("…"), std::string::npos);
  EXPECT_NE(narrow.find("output.dense.weight"), std::string::npos);
  EXPECT_NE(narrow.find("worst"), std::string::npos);
}

TEST(WrapLines, BreaksAtSpacesAndLeavesWhatFits) {
  EXPECT_EQ(WrapLines("one two three four five six\nshort\n", 20),
            "one two three four\n  five six\nshort\n");
  EXPECT_EQ(WrapLines("a\n\nb", 20), "a\n\nb");
  EXPECT_EQ(WrapLines("", 20), "");
}

TEST(WrapLines, KeepsWordsWholeAndCountsCharacters) {
  EXPECT_EQ(WrapLines("aaaaaaaaaaaaaaaaaaaaaaaaa b\n", 20), "aaaaaaaaaaaaaaaaaaaaaaaaa b\n");
  EXPECT_EQ(WrapLines("ÄÄÄÄÄÄÄÄÄ ÄÄÄÄÄÄÄÄÄÄ\n", 20), "ÄÄÄÄÄÄÄÄÄ ÄÄÄÄÄÄÄÄÄÄ\n");
}

TEST(Table, DropsColumnsFromTheRight) {
  const std::string narrow = Example().Render({30, false});
  EXPECT_EQ(narrow.find("worst"), std::string::npos);
  EXPECT_NE(narrow.find("error"), std::string::npos);
}

TEST(Table, ColoursOnlyWhenAsked) {
  Table table({{"x"}});
  table.AddRow({{"1", Emphasis::kBad}});
  EXPECT_EQ(table.Render({}).find('\x1b'), std::string::npos);
  EXPECT_NE(table.Render({100, true}).find("\x1b[31m1\x1b[0m"), std::string::npos);
}

TEST(Table, RefusesMoreCellsThanColumns) {
  Table table({{"x"}});
  EXPECT_THROW(table.AddRow({"1", "2"}), Error);
}

RC_GTEST_PROP(Table, NeverExceedsTheWidthItIsGiven, (std::string name, uint8_t width)) {
  Table table({{"name", Align::kLeft, Shorten::kLeft}, {"n"}, {"more"}});
  table.AddRow({name, "12345", "x"});
  table.AddHeading(name);
  std::istringstream lines(table.Render({std::max<size_t>(width, 30), false}));
  for (std::string line; std::getline(lines, line);) {
    RC_ASSERT(DisplayWidth(line) <= std::max<size_t>(width, 30));
  }
}

TEST(Printable, ShowsControlCharactersAndBrokenUtf8) {
  EXPECT_EQ(Printable("a\x1b[31mb\n"), "a\\x1B[31mb\\x0A");
  EXPECT_EQ(Printable("\xff\xc3"), "\\xFF\\xC3");
  EXPECT_EQ(Printable("größe…"), "größe…");
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b"),
            "a\\xE2\\x80\\xAEb");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xED\\xA0\\x80");
}

TEST(ShortenLeft, KeepsTheEnd) {
  EXPECT_EQ(ShortenLeft("layers.0.q_proj", 8), "….q_proj");
  EXPECT_EQ(ShortenLeft("äöü", 2), "…ü");
  EXPECT_EQ(ShortenLeft("abc", 3), "abc");
}

TEST(ShortenRight, KeepsTheStart) {
  EXPECT_EQ(ShortenRight("scales and all", 8), "scales …");
  EXPECT_EQ(ShortenRight("äöü", 2), "ä…");
  EXPECT_EQ(ShortenRight("abc", 3), "abc");
}

TEST(Number, ThousandsAndUnits) {
  EXPECT_EQ(WithThousands(4699001344), "4,699,001,344");
  EXPECT_EQ(WithThousands(-1234), "-1,234");
  EXPECT_EQ(WithThousands(999), "999");
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(999), "999 B");
  EXPECT_EQ(HumanBytes(4699001344), "4.7 GB");
  EXPECT_EQ(HumanBytes(999999), "1.0 MB");
  EXPECT_EQ(HumanCount(3588096), "3.6 M");
}

TEST(Number, SignificantDigits) {
  EXPECT_EQ(Significant(0.09512, 3), "0.0951");
  EXPECT_EQ(Significant(20.43, 3), "20.4");
  EXPECT_EQ(Significant(1.04e-7, 3), "1.0e-7");
  EXPECT_EQ(Significant(0.0, 3), "0");
  EXPECT_EQ(Significant(std::nullopt, 3), "–");
  EXPECT_EQ(Fixed(4.5, 2), "4.50");
}

TEST(Number, Durations) {
  EXPECT_EQ(HumanSeconds(13.6), "14 s");
  EXPECT_EQ(HumanSeconds(125), "2 min 5 s");
  EXPECT_EQ(HumanSeconds(11400), "3 h 10 min");
  EXPECT_EQ(HumanMilliseconds(1.416), "1.42 ms");
}

}  // namespace
}  // namespace assay

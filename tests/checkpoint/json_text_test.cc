#include "assay/checkpoint/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace assay {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const std::string& text) {
  return test::MessageOf([&] { ParseJsonObject(text, "config.json"); });
}

TEST(JsonText, TakesAnObject) {
  EXPECT_EQ(ParseJsonObject("{\"a\": [1, {\"a\": 2}]}\n", "f")["a"][1]["a"], 2);
}

TEST(JsonText, RefusesWhatTwoReadersMayTakeDifferently) {
  EXPECT_THAT(Refusal("{\"a\": 1, \"\\u0061\": 2}"), HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(Refusal("{\"a\": {\"b\": 1, \"b\": 2}}"), HasSubstr("duplicate key \"b\""));
  EXPECT_THAT(Refusal("{} {}"), HasSubstr("not valid JSON at byte 4"));
  EXPECT_THAT(Refusal(std::string("{}\0", 3)), HasSubstr("NUL at byte 2"));
  EXPECT_THAT(Refusal("{\"\xff\": 1}"), HasSubstr("not valid UTF-8 at byte 2"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("expected an object, found array"));
  EXPECT_THAT(Refusal(""), HasSubstr("unexpected end of input"));
  EXPECT_THAT(Refusal("{\"a\": 1e999}"), HasSubstr("number overflow"));
}

TEST(JsonText, RefusesDepthWithoutRecursion) {
  EXPECT_THAT(Refusal("{\"a\": " + std::string(100'000, '[')), HasSubstr("nested deeper than 64"));
}

}  // namespace
}  // namespace assay

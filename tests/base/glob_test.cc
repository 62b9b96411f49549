#include "assay/base/glob.h"

#include <gtest/gtest.h>

#include <string>

namespace assay {
namespace {

TEST(Glob, StarSpansDotsAndNothing) {
  EXPECT_TRUE(GlobMatch("*.weight", "layers.0.q_proj.weight"));
  EXPECT_TRUE(GlobMatch("*", ""));
  EXPECT_TRUE(GlobMatch("layers.*.q_proj*", "layers.0.q_proj"));
  EXPECT_FALSE(GlobMatch("*.weight", "layers.0.q_proj.weight_scale"));
  EXPECT_FALSE(GlobMatch("weight", "q.weight"));
}

TEST(Glob, QuestionMarkIsExactlyOneCharacter) {
  EXPECT_TRUE(GlobMatch("layers.?.w", "layers.3.w"));
  EXPECT_FALSE(GlobMatch("layers.?.w", "layers.12.w"));
  EXPECT_FALSE(GlobMatch("?", ""));
}

TEST(Glob, ManyStarsStayPolynomial) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(GlobMatch(pattern + "b", std::string(2000, 'a')));
}

TEST(Glob, CapturesAreWhatTheWildcardsStoodFor) {
  EXPECT_EQ(GlobCapture("model.*.w?", "model.layers.0.w1"),
            (std::vector<std::string>{"layers.0", "1"}));
  EXPECT_EQ(GlobCapture("*.*", "a.b.c"), (std::vector<std::string>{"a", "b.c"}));
  EXPECT_EQ(GlobCapture("exact", "exact"), (std::vector<std::string>{}));
  EXPECT_EQ(GlobCapture("model.*", "other"), std::nullopt);
}

}  // namespace
}  // namespace assay

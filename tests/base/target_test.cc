#include "assay/base/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "assay/base/error.h"
#include "tests/support/every_target.h"

namespace assay {
namespace {

using testing::Contains;
using testing::HasSubstr;

std::string MessageOf(std::string_view target) {
  try {
    ForceTarget(target);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "";
}

TEST(Target, ScalarIsAlwaysSupported) { EXPECT_THAT(SupportedTargets(), Contains("scalar")); }

TEST(Target, TheForcedOneIsTheOneThatRuns) {
  const std::string before = ActiveTargetName();
  for (const std::string& target : SupportedTargets()) {
    ForceTarget(target);
    EXPECT_EQ(ActiveTargetName(), target);
    const size_t expected = target.starts_with("avx512") ? 64 : target == "avx2" ? 32 : 16;
    EXPECT_EQ(ActiveVectorBytes(), expected);
  }
  ForceTarget(before);
}

TEST(Target, ResetReturnsToTheBest) {
  const std::string before = ActiveTargetName();
  ForceTarget("scalar");
  ResetTarget();
  EXPECT_EQ(ActiveTargetName(), SupportedTargets().front());
  ForceTarget(before);
}

TEST(Target, AnUnknownNameIsAUsageErrorThatListsTheKnown) {
  const std::string before = ActiveTargetName();
  EXPECT_THAT(MessageOf("avx1024"), HasSubstr("unknown target \"avx1024\"; known: "));
  EXPECT_THAT(MessageOf("AVX2"), HasSubstr("unknown target"));
  EXPECT_THAT(MessageOf(""), HasSubstr("scalar"));
  EXPECT_EQ(ActiveTargetName(), before);
}

TEST(Target, TheEnvironmentSelectsOne) {
  const std::string before = ActiveTargetName();
  const char* set = std::getenv("ASSAY_TARGET");
  const std::string saved = set == nullptr ? "" : set;
  setenv("ASSAY_TARGET", "scalar", 1);
  SelectTargetFromEnvironment();
  EXPECT_EQ(ActiveTargetName(), "scalar");
  setenv("ASSAY_TARGET", "fastest", 1);
  EXPECT_THROW(SelectTargetFromEnvironment(), Error);
  EXPECT_EQ(ActiveTargetName(), "scalar");
  setenv("ASSAY_TARGET", "", 1);
  SelectTargetFromEnvironment();
  EXPECT_EQ(ActiveTargetName(), "scalar");
  setenv("ASSAY_TARGET", saved.c_str(), 1);
  ForceTarget(before);
}

}  // namespace
}  // namespace assay

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

#if defined(__aarch64__)
constexpr const char* kAlwaysThere = "neon";
#else
constexpr const char* kAlwaysThere = "scalar";
#endif

TEST(Target, ThePlainestIsAlwaysSupported) {
  EXPECT_THAT(SupportedTargets(), Contains(kAlwaysThere));
}

TEST(Target, TheForcedOneIsTheOneThatRuns) {
  const std::string before = ActiveTargetName();
  for (const std::string& target : SupportedTargets()) {
    ForceTarget(target);
    EXPECT_EQ(ActiveTargetName(), target);
    if (target == "sve" || target == "sve2") continue;  // as wide as the CPU likes
    const size_t expected = target.starts_with("avx512")              ? 64
                            : target == "avx2" || target == "sve_256" ? 32
                                                                      : 16;
    EXPECT_EQ(ActiveVectorBytes(), expected);
  }
  ForceTarget(before);
}

TEST(Target, ResetReturnsToTheBest) {
  const std::string before = ActiveTargetName();
  ForceTarget(kAlwaysThere);
  ResetTarget();
  EXPECT_EQ(ActiveTargetName(), SupportedTargets().front());
  ForceTarget(before);
}

TEST(Target, AnUnknownNameIsAUsageErrorThatListsTheKnown) {
  const std::string before = ActiveTargetName();
  EXPECT_THAT(MessageOf("avx1024"), HasSubstr("unknown target \"avx1024\"; known: "));
  EXPECT_THAT(MessageOf("AVX2"), HasSubstr("unknown target"));
  EXPECT_THAT(MessageOf(""), HasSubstr(kAlwaysThere));
  EXPECT_EQ(ActiveTargetName(), before);
}

TEST(Target, TheEnvironmentSelectsOne) {
  const std::string before = ActiveTargetName();
  const char* set = std::getenv("ASSAY_TARGET");
  const std::string saved = set == nullptr ? "" : set;
  setenv("ASSAY_TARGET", kAlwaysThere, 1);
  SelectTargetFromEnvironment();
  EXPECT_EQ(ActiveTargetName(), kAlwaysThere);
  setenv("ASSAY_TARGET", "fastest", 1);
  EXPECT_THROW(SelectTargetFromEnvironment(), Error);
  EXPECT_EQ(ActiveTargetName(), kAlwaysThere);
  setenv("ASSAY_TARGET", "", 1);
  SelectTargetFromEnvironment();
  EXPECT_EQ(ActiveTargetName(), kAlwaysThere);
  setenv("ASSAY_TARGET", saved.c_str(), 1);
  ForceTarget(before);
}

}  // namespace
}  // namespace assay

#include "assay/studies/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "assay/base/error.h"
#include "tests/support/paths.h"
#include "tests/support/twins.h"

namespace assay {
namespace {

using test::Find;
using testing::ElementsAre;
using testing::HasSubstr;

std::string Data(const std::string& relative) { return test::TestDataPath(relative); }

CompareOptions MlxAgainstItsDecodedCopy() {
  CompareOptions options;
  options.a = Data("mlx/model-affine-mixed");
  options.b = Data("mlx/model-affine-mixed/decoded.safetensors");
  options.renames = {CompareRename::Parse("*.weight=*")};
  options.allow_missing = true;
  return options;
}

TEST(CompareRename, WildcardsCarryOver) {
  EXPECT_EQ(CompareRename::Parse("model.*.w?=*.weight_?").Apply("model.layers.0.w2"),
            "layers.0.weight_2");
  EXPECT_EQ(CompareRename::Parse("*.weight=*").Apply("a.bias"), std::nullopt);
  EXPECT_EQ(CompareRename::Parse("a=").Apply("a"), "");
  EXPECT_THROW(CompareRename::Parse("nothing"), Error);
  EXPECT_THROW(CompareRename::Parse("*=*.*"), Error);
}

TEST(Compare, AQuantisedModelEqualsTheCopyItsProducerDecoded) {
  CompareOptions options = MlxAgainstItsDecodedCopy();
  options.gates.equal = true;
  const CompareReport report = RunCompare(options);
  EXPECT_EQ(report.num_failed, 0);
  EXPECT_EQ(report.num_compared, 14);
  const ComparedTensor& tensor = Find(report, "model.layers.0.self_attn.v_proj.weight");
  EXPECT_EQ(tensor.stored_as_a, "affine6g64");
  EXPECT_EQ(tensor.stored_as_b, "BF16");
  EXPECT_EQ(tensor.reference, "model.layers.0.self_attn.v_proj");
  EXPECT_EQ(tensor.difference->num_equal_bits, 64 * 128);
}

TEST(Compare, NamesOfOneSideFailUnlessAllowed) {
  CompareOptions options = MlxAgainstItsDecodedCopy();
  options.allow_missing = false;
  const CompareReport report = RunCompare(options);
  EXPECT_GT(report.num_failed, 0);
  EXPECT_THAT(Find(report, "model.norm.weight").reasons, ElementsAre("only in A"));
  EXPECT_FALSE(Find(report, "model.norm.weight").passed);
}

TEST(Compare, StoredPlanesOfOneModelEqualThemselves) {
  CompareOptions options;
  options.a = options.b = Data("mlx/model-affine-mixed");
  options.stored = true;
  options.gates.equal = true;
  const CompareReport report = RunCompare(options);
  EXPECT_EQ(report.num_failed, 0);
  EXPECT_EQ(Find(report, "lm_head.weight").stored_as_a, "U32");
  EXPECT_EQ(Find(report, "lm_head.weight").difference->shape, (Shape{256, 24}));
}

TEST(Compare, ShapesAndTypesThatDifferFailUnlessAllowed) {
  CompareOptions options;
  options.a = Data("mlx/affine4g64-bf16.safetensors");
  options.b = Data("mlx/affine4g64-f32.safetensors");
  options.tensors = {"input", "scales"};
  options.stored = true;
  CompareReport report = RunCompare(options);
  EXPECT_EQ(report.num_failed, 2);
  options.allow_shape = true;
  options.allow_dtype = true;
  report = RunCompare(options);
  EXPECT_EQ(report.num_failed, 0);
}

TEST(Compare, AVacuousLimitIsRefusedWithTheTensorsName) {
  CompareOptions options = MlxAgainstItsDecodedCopy();
  options.gates.max_abs = 1e6;
  try {
    RunCompare(options);
    FAIL() << "a limit of 1e6 passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("lm_head.weight: an all-zero tensor would pass"));
  }
}

TEST(Compare, NothingInCommonIsAnError) {
  CompareOptions options = MlxAgainstItsDecodedCopy();
  options.renames.clear();
  EXPECT_THROW(RunCompare(options), Error);
  options.tensors = {"no.such.*"};
  EXPECT_THROW(RunCompare(options), Error);
  options.tensors.clear();
  options.renames = {CompareRename::Parse("*=same")};
  EXPECT_THROW(RunCompare(options), Error);
}

TEST(Compare, ProgressEndsAtTheTotal) {
  CompareOptions options = MlxAgainstItsDecodedCopy();
  Progress last;
  options.progress = [&](const Progress& progress) { last = progress; };
  RunCompare(options);
  EXPECT_EQ(last.bytes_done, last.num_bytes);
  EXPECT_GT(last.num_bytes, 0);
}

}  // namespace
}  // namespace assay

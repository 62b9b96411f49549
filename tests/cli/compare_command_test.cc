#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/run_cli.h"

namespace assay {
namespace {

using ::testing::HasSubstr;

const std::string kComparedModel = test::TestDataPath("mlx/model-affine-mixed");
const std::string kDecoded = kComparedModel + "/decoded.safetensors";

TEST(CompareCommand, GatesDecideTheExitCode) {
  const std::vector<std::string> equal = {
      "compare", kComparedModel, kDecoded, "--rename", "*.weight=*", "--equal", "--allow-missing"};
  const CliResult pass = RunCli(equal);
  EXPECT_EQ(pass.exit_code, 0) << pass.out << pass.err;
  EXPECT_THAT(pass.out, HasSubstr("14 identical bit for bit · all pass"));
  const CliResult missing = RunCli({"compare", kComparedModel, kDecoded, "--rename", "*.weight=*"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.out, HasSubstr("FAIL  model.norm.weight  only in A"));
}

TEST(CompareCommand, AFailureSaysWhereAndHow) {
  const std::string tensor = "lm_head.weight";
  const CliResult result =
      RunCli({"compare", kComparedModel, kDecoded, "--rename", "lm_head.weight=model.embed_tokens",
              "--tensor", tensor, "--max-relative-rmse", "0.001", "--allow-missing"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("FAIL  lm_head.weight  relative RMSE"));
  EXPECT_THAT(result.out, HasSubstr("first difference at [0, "));
  EXPECT_THAT(result.out, HasSubstr("ULP distance"));
}

TEST(CompareCommand, TheReportHasItsKeys) {
  const CliResult result =
      RunCli({"compare", kComparedModel, kComparedModel, "--stored", "--json"});
  ASSERT_EQ(result.exit_code, 0);
  const nlohmann::json report = nlohmann::json::parse(result.out);
  EXPECT_EQ(report["schema"], "assay.compare/1");
  EXPECT_EQ(report["passed"], true);
  const nlohmann::json& tensor = report["results"][0];
  for (const char* key : {"tensor", "stored_as", "passed", "relative_rmse", "max_abs", "cosine",
                          "equal_fraction", "bits_equal_fraction", "max_ulp", "ulp_histogram",
                          "sign_flips", "first_difference", "worst_rows"}) {
    EXPECT_TRUE(tensor.contains(key)) << key;
  }
}

TEST(CompareCommand, AGateThatZerosWouldPassIsAUsageError) {
  const CliResult wide =
      RunCli({"compare", kComparedModel, kComparedModel, "--max-relative-rmse", "1"});
  EXPECT_EQ(wide.exit_code, 2);
  EXPECT_THAT(wide.err, HasSubstr("all-zero"));
  const CliResult vacuous =
      RunCli({"compare", kComparedModel, kComparedModel, "--max-abs", "1000"});
  EXPECT_EQ(vacuous.exit_code, 2);
  EXPECT_THAT(vacuous.err, HasSubstr("all-zero"));
}

TEST(ParityCommand, PassesAndFailsByItsGate) {
  const std::vector<std::string> base = {"parity", kComparedModel, "--tensor",
                                         "model.layers.0.mlp.down_proj"};
  std::vector<std::string> arguments = base;
  arguments.insert(arguments.end(), {"--json", "--strategy", "reference"});
  const CliResult pass = RunCli(arguments);
  ASSERT_EQ(pass.exit_code, 0) << pass.err;
  const nlohmann::json report = nlohmann::json::parse(pass.out);
  EXPECT_EQ(report["schema"], "assay.parity/1");
  EXPECT_EQ(report["seed"], 1592594996);
  EXPECT_EQ(report["input"]["first8"][0], 0.60546875);
  EXPECT_EQ(report["projection"]["group_size"], 64);
  EXPECT_EQ(report["comparison"]["rhs"], "bulk_dequant_gemm");
  EXPECT_EQ(report["first8"][0]["bulk_dequant_cublas"], report["first8"][0]["bulk_dequant_gemm"]);
  arguments = base;
  arguments.insert(arguments.end(), {"--max-rmse-over-rms", "1e-9"});
  const CliResult fail = RunCli(arguments);
  EXPECT_EQ(fail.exit_code, 1);
  EXPECT_THAT(fail.out, HasSubstr("FAIL  rmse / rms"));
}

TEST(ParityCommand, ATurboQuantWeightAgreesAsTheReportsSay) {
  for (const char* strategy : {"reference", "fused"}) {
    const CliResult result =
        RunCli({"parity", test::TestDataPath("turboquant/model-tq4g128"), "--tensor",
                "model.layers.0.mlp.down_proj", "--strategy", strategy, "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const nlohmann::json report = nlohmann::json::parse(result.out);
    EXPECT_EQ(report["input"]["first8"],
              nlohmann::json::parse("[0.60546875, 0.466796875, -0.35546875, -0.48828125, "
                                    "-0.984375, 0.216796875, -0.12890625, -0.52734375]"));
    EXPECT_EQ(report["projection"]["bits"], 4);
    EXPECT_EQ(report["projection"]["packed_cols"], 192);
    EXPECT_EQ(report["projection"]["num_groups"], 3);
    const double ratio = report["comparison"]["rmse_over_rhs_rms"];
    EXPECT_GT(ratio, 0.0020) << strategy;
    EXPECT_LT(ratio, 0.0030) << strategy;
  }
}

}  // namespace
}  // namespace assay

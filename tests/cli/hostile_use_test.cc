// What a careless or hostile user does, against the real binary.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/run_cli.h"
#include "tests/support/write_safetensors.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::HasSubstr;

const std::string kHostileModel = test::SourcePath("data/minilm-slice");

TEST(HostileUse, AFileThatMayNotGrowIsAnErrorAndLeavesNothing) {
  const TemporaryFolder scratch;
  fs::create_directory(scratch.Path("here"));
  const std::string model = kHostileModel + "/model.safetensors";
  for (const std::string& input : {kHostileModel, model}) {
    const CliResult run =
        RunCli({"quantize", input, "--format", "affine8g64", "-q", "-o", scratch.Path("here/out")},
               1 << 20);
    EXPECT_EQ(run.exit_code, 3) << run.err;
    EXPECT_THAT(run.err, HasSubstr("File too large"));
    EXPECT_TRUE(fs::is_empty(scratch.Path("here")));
  }
}

TEST(HostileUse, SeedsAndOutputsThatAParserWouldBendAreRefused) {
  const std::vector<std::string> fidelity = {"fidelity", kHostileModel, "-f", "affine4g64"};
  for (const std::vector<std::string>& extra :
       {std::vector<std::string>{"--seed", "-1"}, std::vector<std::string>{"--seed", "1e3"},
        std::vector<std::string>{"--seed", "99999999999999999999999"},
        std::vector<std::string>{"-o", ""}}) {
    std::vector<std::string> words = fidelity;
    words.insert(words.end(), extra.begin(), extra.end());
    const CliResult run = RunCli(words);
    EXPECT_EQ(run.exit_code, 2) << run.err;
  }
}

TEST(HostileUse, AReportNeverReplacesAFileOfAFolderItMeasures) {
  const TemporaryFolder scratch;
  fs::copy(kHostileModel, scratch.Path("model"));
  const std::string shard = scratch.Path("model/model.safetensors");
  const auto before = fs::file_size(shard);
  const CliResult run = RunCli(
      {"fidelity", scratch.Path("model"), "-f", "affine4g64", "--tensor", "*query*", "-o", shard});
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_THAT(run.err, HasSubstr("overwrite"));
  EXPECT_EQ(fs::file_size(shard), before);
}

TEST(HostileUse, IntegersKeepTheirEmbeddingsOnTheWayBack) {
  const TemporaryFolder scratch;
  ASSERT_EQ(RunCli({"quantize", kHostileModel, "--format", "int4g128", "-o", scratch.Path("q")})
                .exit_code,
            0);
  ASSERT_EQ(RunCli({"dequantize", scratch.Path("q"), "-o", scratch.Path("back")}).exit_code, 0);
  const CliResult compared =
      RunCli({"compare", scratch.Path("back"), kHostileModel, "--max-relative-rmse", "0.2"});
  EXPECT_EQ(compared.exit_code, 0) << compared.out << compared.err;
}

TEST(HostileUse, OddNamesPrintAPerTensorTable) {
  const TemporaryFolder scratch;
  for (const char* name : {"0.weight", "..weight", ".weight", "layers.0.weight", "x\n.weight"}) {
    const std::string path = scratch.Path("odd.safetensors");
    WriteSafetensors(path, {{name, {2, 64}, std::vector<float>(128)}});
    const CliResult run = RunCli({"fidelity", path, "-f", "affine4g64", "--per-tensor"});
    EXPECT_EQ(run.exit_code, 0) << name << run.err;
  }
}

TEST(HostileUse, ACopyThatFitsNoWeightIsBadInput) {
  const TemporaryFolder scratch;
  const std::string path = scratch.Path("other.safetensors");
  WriteSafetensors(path, {{"other.weight", {2, 64}, std::vector<float>(128)}});
  const CliResult run =
      RunCli({"fidelity", kHostileModel, "--against", path, "--tensor", "*query*"});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_THAT(run.err, HasSubstr("no weight of"));
}

TEST(HostileUse, AMissingFolderIsRefusedBeforeWork) {
  const CliResult run =
      RunCli({"quantize", kHostileModel, "--format", "packed12", "-o", "/nonexistent-folder/out"});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_THAT(run.err, HasSubstr("/nonexistent-folder"));
}

TEST(HostileUse, Packed12SaysWhatItsEscapesCost) {
  const CliResult run =
      RunCli({"fidelity", kHostileModel, "-f", "packed12", "--tensor", "*query*", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(run.out);
  for (const Json& result : report["results"]) {
    EXPECT_EQ(result["weight_bits_identical"], true);
    for (const char* key :
         {"ratio", "escapes", "escape_fraction", "base_exponent", "last_exponent"}) {
      EXPECT_TRUE(result.contains(key)) << key;
    }
  }
}

}  // namespace
}  // namespace assay

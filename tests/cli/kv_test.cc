#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/run_cli.h"

namespace assay {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

const std::string kCaptures = test::SourcePath("data/kv-like-captures.safetensors");

TEST(KvCommand, ShowsFormatsSideBySide) {
  const CliResult run =
      RunCli({"kv", "--map", "kv-*=ds41-window-fp8,ds41-main-fp4,nvfp4,mxfp4,affine4g32", "--map",
              "index-*=ds41-index-fp4,ds4-index-fp4", kCaptures});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("kv-like-captures.safetensors · 5 captures · 279 k values"));
  EXPECT_THAT(run.out, ContainsRegex("ds41-window-fp8 +8.25 +528 +0.0"));
  EXPECT_THAT(run.out, ContainsRegex("ds41-main-fp4 +4.50 +288 +0.0"));
  EXPECT_THAT(run.out, ContainsRegex("mxfp4 +4.25 +272 +0.1"));
  EXPECT_THAT(run.out, ContainsRegex("ds4-index-fp4 +4.25 +68 +0.1"));
  EXPECT_THAT(run.out, ContainsRegex("\nkv-03 +\\[128, 512\\]"));
  EXPECT_THAT(run.out, HasSubstr("rotated domain"));
  EXPECT_TRUE(run.err.empty()) << run.err;
}

TEST(KvCommand, CarriesTheKeysOfTheReferenceReport) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("report.json");
  const CliResult run = RunCli({"kv", kCaptures, "-o", path, "--input-rounding", "bf16"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("report.json written (assay.kv/1)"));
  const Json report = Json::parse(ReadText(path));
  EXPECT_EQ(report["schema"], "assay.kv/1");
  EXPECT_THAT(report["scope"].get<std::string>(), StartsWith("Isolated format-equation emulation"));
  EXPECT_EQ(report["official_source_revision"], "dba1be0a40aa45a94ad051997016db3960a90277");
  EXPECT_THAT(report["official_kernel_url"].get<std::string>(), HasSubstr("inference/kernel.py"));
  EXPECT_EQ(report["capture"], kCaptures);
  EXPECT_TRUE(report["tokens"].is_null());
  ASSERT_EQ(report["records"].size(), 5u);
  for (const Json& record : report["records"]) {
    EXPECT_EQ(record["input_rounding"], "bf16");
    for (const char* figures : {"native_format_vs_input", "f16_vs_input"}) {
      EXPECT_EQ(record[figures]["finite"], true);
      for (const char* key : {"n", "max_abs", "rmse", "reference_rms", "relative_l2", "cosine"}) {
        EXPECT_TRUE(record[figures][key].is_number()) << figures << " " << key;
      }
    }
    EXPECT_TRUE(record["native_vs_f16_max_abs"].is_number());
    EXPECT_EQ(record["worst_positions"].size(), 3u);
    EXPECT_TRUE(record["worst_heads"].empty());
  }
  EXPECT_EQ(report["records"][0]["name"], "index-00");
  EXPECT_EQ(report["records"][0]["format"], "ds41-index-fp4");
  EXPECT_EQ(report["records"][1]["format"], "ds41-window-fp8");
}

TEST(KvCommand, ReadsNpyFilesByTheirStem) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("window-7.npy");
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 64), }";
  header.resize(117, ' ');
  header += '\n';
  const std::vector<float> values(128, 0.75F);
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00\x76\x00", 10);
  file << header;
  file.write(reinterpret_cast<const char*>(values.data()), 512);
  file.close();
  const CliResult run = RunCli({"kv", path, "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(run.out);
  ASSERT_EQ(report["records"].size(), 2u);
  EXPECT_EQ(report["records"][0]["name"], "window-7");
  EXPECT_EQ(report["records"][0]["format"], "ds41-window-fp8");
  EXPECT_EQ(report["records"][0]["native_format_vs_input"]["max_abs"], 0.0);
}

TEST(KvCommand, NeedsNoFileForSyntheticCaptures) {
  const CliResult run = RunCli({"kv", "--synthetic", "32", "--input-rounding", "none"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("synthetic N(0, 1) · 3 captures"));
  EXPECT_THAT(run.out, ContainsRegex("ds41-window-fp8 +8.25 +528 +0.026"));
}

TEST(KvCommand, AnswersWrongUseInOneLine) {
  const std::vector<std::vector<std::string>> wrong = {
      {"kv"},
      {"kv", kCaptures, "--map", "kv-*"},
      {"kv", kCaptures, "--map", "kv-*=nvfp5"},
      {"kv", kCaptures, "--map", "nothing-*=nvfp4"},
      {"kv", kCaptures, "--input-rounding", "f16"},
      {"kv", kCaptures, "-o", kCaptures},
  };
  for (const std::vector<std::string>& arguments : wrong) {
    const CliResult run = RunCli(arguments);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_TRUE(run.out.empty());
  }
  EXPECT_EQ(RunCli({"kv", kCaptures + ".absent"}).exit_code, 3);
}

}  // namespace
}  // namespace assay

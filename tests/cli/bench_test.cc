#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/run_cli.h"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

const std::string kModel = test::SourcePath("data/minilm-slice");
const std::string kReference = test::TestDataPath("bench/bench-packed12.json");

std::vector<std::string> Quick(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"bench", "--repeats",  "2", "--warmup",
                                        "0",     "--cold-mib", "4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Keys of `expected` that `found` lacks, in objects within objects; arrays by their first entry.
void CollectMissing(const Json& expected, const Json& found, const std::string& at,
                    std::vector<std::string>& missing) {
  if (expected.is_object()) {
    for (const auto& [key, value] : expected.items()) {
      // What names one vendor's GPU and one language's packages is `environment` as a whole here.
      if (at == "/environment" && key == "metal") continue;
      if (at == "/environment/versions" || at == "/environment/precision_environment") continue;
      if (!found.is_object() || !found.contains(key)) {
        missing.push_back(at + "/" + key);
      } else {
        CollectMissing(value, found[key], at + "/" + key, missing);
      }
    }
  } else if (expected.is_array() && !expected.empty() && expected[0].is_structured()) {
    if (!found.is_array() || found.empty()) {
      missing.push_back(at + "/0");
    } else {
      CollectMissing(expected[0], found[0], at + "/0", missing);
    }
  }
}

TEST(BenchCommand, CarriesTheKeysOfTheReferenceReport) {
  const CliResult run = RunCli(
      Quick({"--shape", "3,256,128", "-v", "packed12,bf16,affine8g64:dequant_gemm", "--json"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(run.out);
  Json reference = Json::parse(ReadText(kReference));
  // The trial with every key: packed12's.
  reference["trials"] = Json::array({reference["trials"][1]});
  ASSERT_EQ(reference["trials"][0]["variant"], "packed12");
  std::vector<std::string> missing;
  CollectMissing(reference, report, "", missing);
  EXPECT_TRUE(missing.empty()) << missing.front();
  EXPECT_EQ(report["schema"], "assay.bench/1");
  ASSERT_EQ(report["trials"].size(), 3u);
  for (const Json& trial : report["trials"]) {
    EXPECT_EQ(trial["shape"], Json({3, 256, 128}));
    EXPECT_GE(trial["samples_ms"].size(), 2u);
    EXPECT_GT(trial["median_ms"], 0.0);
    EXPECT_LE(trial["min_ms"], trial["max_ms"]);
    EXPECT_FALSE(trial["implementation"].get<std::string>().empty());
    EXPECT_EQ(trial["checksum"].get<std::string>().size(), 16u);
  }
  const Json& packed = report["trials"][0];
  EXPECT_TRUE(packed["weight_bits_identical"]);
  EXPECT_NEAR(packed["ratio"], packed["weight_bytes"].get<double>() / (2 * 256 * 128), 1e-12);
  EXPECT_LT(packed["ratio"], 0.9);
  EXPECT_EQ(report["trials"][1]["equal_fraction"], 1.0);
  EXPECT_GT(report["environment"]["read_gb_per_s"], 0.0);
  EXPECT_GT(report["environment"]["gemm_gflops"], 0.0);
}

TEST(BenchCommand, PrintsATableWithin100Columns) {
  const CliResult run = RunCli(
      Quick({"--shape", "1,512,256", "-v", "bf16,affine4g64:fused,affine4g64:dequant_gemm,packed12",
             "--roofline", "--threads", "1"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("M=1 K=512 N=256 · 1 thread · "));
  EXPECT_THAT(run.out, HasSubstr("\naffine4g64:dequant_gemm  "));
  EXPECT_THAT(run.out, HasSubstr("GFLOP/s\n"));
  size_t start = 0;
  for (size_t end; (end = run.out.find('\n', start)) != std::string::npos; start = end + 1) {
    const std::string line = run.out.substr(start, end - start);
    const auto width = std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; });
    EXPECT_LE(width, 100) << line;
  }
}

TEST(BenchCommand, TimesAModelsWeightsAndWhatItHolds) {
  const CliResult run = RunCli(Quick({kModel, "--tensor", "*.layer.0.attention.self.query*",
                                      "--tokens", "4", "-v", "bf16,stored,affine4g64", "--json"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(run.out);
  ASSERT_EQ(report["trials"].size(), 3u);
  EXPECT_EQ(report["trials"][0]["shape"], Json({4, 384, 384}));
  EXPECT_EQ(report["trials"][1]["format"], "bf16");
  EXPECT_EQ(report["trials"][1]["checksum"], report["trials"][0]["checksum"]);
  EXPECT_THAT(report["scope"], HasSubstr("minilm-slice"));
}

TEST(BenchCommand, ChecksumsDoNotDependOnThreads) {
  std::vector<std::string> expected;
  for (const char* threads : {"1", "2", "3"}) {
    const CliResult run = RunCli(Quick({"--shape", "2,512,200", "-v", "bf16,packed12,affine6g64",
                                        "--threads", threads, "--json"}));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    std::vector<std::string> found;
    const Json report = Json::parse(run.out);
    for (const Json& trial : report["trials"]) found.push_back(trial["checksum"]);
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected);
  }
}

TEST(BenchCommand, ComparesWithABaselineAndGates) {
  const TemporaryFolder folder;
  const std::string then = folder.Path("then.json");
  const std::vector<std::string> what = {"--shape", "1,256,64", "-v", "bf16,affine4g64"};
  std::vector<std::string> first = what;
  first.insert(first.end(), {"-o", then});
  ASSERT_EQ(RunCli(Quick(first)).exit_code, 0);
  Json report = Json::parse(ReadText(then));
  const auto scale = [&](double factor) {
    Json scaled = report;
    for (Json& trial : scaled["trials"]) {
      for (Json& sample : trial["samples_ms"]) sample = sample.get<double>() * factor;
    }
    std::ofstream(then) << scaled.dump();
  };
  const auto against = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = what;
    arguments.insert(arguments.end(), {"--baseline", then});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCli(Quick(arguments));
  };
  // A baseline a million times as fast: certainly slower now. The other way round: certainly not.
  scale(1e-6);
  const CliResult slower = against({"--max-slowdown", "1.05"});
  EXPECT_EQ(slower.exit_code, 1) << slower.err;
  EXPECT_THAT(slower.out, HasSubstr("slower"));
  EXPECT_EQ(against({}).exit_code, 0);
  scale(1e6);
  const CliResult faster = against({"--max-slowdown", "1.05", "--json"});
  EXPECT_EQ(faster.exit_code, 0) << faster.err;
  const Json changes = Json::parse(faster.out)["baseline"]["changes"];
  ASSERT_EQ(changes.size(), 2u);
  for (const Json& change : changes) {
    EXPECT_EQ(change["verdict"], "faster");
    EXPECT_FALSE(change["other_bits"]);
  }
  EXPECT_EQ(RunCli(Quick({"--shape", "1,256,64", "--baseline", kReference})).exit_code, 3);
}

TEST(BenchCommand, RefusesWrongCallsBeforeWork) {
  const TemporaryFolder folder;
  const std::vector<std::pair<int, std::vector<std::string>>> wrong = {
      {2, {"bench"}},
      {2, {"bench", "--shape", "1,2"}},
      {2, {"bench", "--shape", "1,64,64", "-v", "afine4g64"}},
      {2, {"bench", "--shape", "1,64,64", "-v", "affine4g64:magic"}},
      {2, {"bench", "--shape", "1,64,64", "-v", "stored"}},
      {2, {"bench", "--shape", "1,1073741824,1073741824"}},
      {2, {"bench", "--shape", "1,4096,4096", "--memory", "0.001"}},
      {2, {"bench", "--shape", "1,64,64", "--repeats", "0"}},
      {2, {"bench", "--shape", "1,64,64", "--max-slowdown", "1.1"}},
      {2, {"bench", "--shape", "1,64,64", "--baseline", kReference, "-o", kReference}},
      {2, {"bench", kModel, "--tensor", "nothing*"}},
      {3, {"bench", folder.Path("missing")}},
      {3, {"bench", "--shapes", folder.Path("missing")}},
      {3, {"bench", "--shape", "1,64,64", "--baseline", folder.Path("missing")}},
      {3, {"bench", "--shape", "1,64,64", "-o", folder.Path("no/such/report.json")}},
  };
  for (const auto& [exit_code, arguments] : wrong) {
    const CliResult run = RunCli(arguments);
    EXPECT_EQ(run.exit_code, exit_code) << arguments.back() << run.err;
    EXPECT_THAT(run.err, StartsWith("assay: "));
    EXPECT_TRUE(run.out.empty());
  }
}

}  // namespace
}  // namespace assay

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/run_cli.h"
#include "tests/support/write_safetensors.h"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

const std::string kFidelityModel = test::SourcePath("data/minilm-slice");

// A report without what a clock or a machine decides.
Json Timeless(Json report) {
  for (const char* key : {"environment", "command", "seconds"}) report.erase(key);
  const std::vector<std::string> keys = {
      "encode_ms",     "encode_min_ms", "encode_max_ms",     "encode_samples_ms",    "matmul_ms",
      "matmul_min_ms", "matmul_max_ms", "matmul_samples_ms", "matmul_implementation"};
  for (Json& total : report["totals"]) {
    for (const std::string& key : keys) total.erase(key);
  }
  for (Json& result : report["results"]) {
    for (const std::string& key : keys) result.erase(key);
  }
  return report;
}

std::vector<std::string> QuickFidelity(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"fidelity", kFidelityModel, "--rows",     "12", "--tokens",
                                        "4",        "--tensor",     "*.layer.0.*"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Fidelity, CarriesTheKeysOfTheReferenceReport) {
  const CliResult run = RunCli(QuickFidelity({"-f", "affine4g64,affine8g64", "--json"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(run.out);
  EXPECT_EQ(report["schema"], "assay.fidelity/1");
  EXPECT_EQ(report["group_size"], 64);
  EXPECT_EQ(report["mode"], "affine");
  EXPECT_TRUE(report["environment"].contains("cpu"));
  EXPECT_TRUE(report["limitations"].is_string());
  ASSERT_EQ(report["results"].size(), 12u);
  for (const Json& result : report["results"]) {
    EXPECT_EQ(result["component"], "encoder");
    EXPECT_EQ(result["sample_rows"], 12);
    EXPECT_EQ(result["source_shape"].size(), 2u);
    EXPECT_EQ(result["group_size"], 64);
    EXPECT_GT(result["matmul_ms"], 0.0);
    EXPECT_GT(result["encode_ms"], 0.0);
    const bool is_4 = result["bits"] == 4;
    EXPECT_EQ(result["bits_per_weight"], is_4 ? 4.5 : 8.5);
    for (const char* key : {"weight_relative_rmse", "synthetic_matmul_relative_rmse"}) {
      EXPECT_GT(result[key], is_4 ? 0.07 : 0.005);
      EXPECT_LT(result[key], is_4 ? 0.13 : 0.012);
    }
  }
  EXPECT_EQ(report["sampled_rows"][0]["indices"].size(), 12u);
  EXPECT_EQ(report["totals"].size(), 2u);
  EXPECT_EQ(report["tensors"], 33);
}

TEST(Fidelity, FiguresDependNeitherOnThreadsNorOnInstructionSet) {
  const Json expected =
      Timeless(Json::parse(RunCli(QuickFidelity({"-f", "affine4g64,mxfp4", "--json"})).out));
  for (const std::vector<std::string>& how : {std::vector<std::string>{"--threads", "1"},
                                              {"--threads", "3"},
                                              {"--target", "scalar"},
                                              {"--target", "avx2", "--threads", "2"}}) {
    std::vector<std::string> arguments = {"-f", "affine4g64,mxfp4", "--json"};
    arguments.insert(arguments.end(), how.begin(), how.end());
    const CliResult run = RunCli(QuickFidelity(arguments));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(Timeless(Json::parse(run.out)), expected) << how[0] << how[1];
  }
}

TEST(Fidelity, PrintsTheAnswerFirstAndWritesTheReport) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("report.json");
  const CliResult run = RunCli(QuickFidelity({"-f", "affine4g64", "-o", path, "--per-tensor"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("minilm-slice · 6 weights of 33 tensors"));
  EXPECT_THAT(run.out, HasSubstr("\naffine4g64    4.50  "));
  EXPECT_THAT(run.out, HasSubstr("encoder.layer.0\n"));
  EXPECT_THAT(run.out, HasSubstr("  intermediate.dense      1536 × 384  "));
  EXPECT_EQ(run.out.find('\x1b'), std::string::npos);
  EXPECT_THAT(run.err, HasSubstr("written (assay.fidelity/1)"));
  EXPECT_EQ(Json::parse(ReadText(path))["schema"], "assay.fidelity/1");
}

TEST(Fidelity, ALosslessFormatHasNoError) {
  const CliResult run = RunCli(QuickFidelity({"-f", "bf16", "--json"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json total = Json::parse(run.out)["totals"][0];
  EXPECT_EQ(total["weight_relative_rmse"], 0.0);
  EXPECT_EQ(total["matmul_relative_rmse"], 0.0);
  EXPECT_TRUE(total["sqnr_db"].is_null());
}

TEST(Fidelity, TakesRealActivationsOfTheRightWidth) {
  const std::string activations = test::SourcePath("data/minilm-activations.npy");
  const CliResult run =
      RunCli(QuickFidelity({"-f", "affine4g64", "--activations", activations, "--json"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(run.out);
  EXPECT_EQ(report["tokens"], 256);
  EXPECT_TRUE(report["seed"].is_null());
  for (const Json& result : report["results"]) {
    EXPECT_EQ(result["activation_matmul_relative_rmse"].is_null(),
              result["source_shape"][1] != 384);
  }
  EXPECT_THAT(report["scope"], HasSubstr("rounded to bf16"));
  EXPECT_EQ(RunCli({"fidelity", kFidelityModel, "-f", "affine4g64", "--tensor",
                    "*.0.output.dense.weight", "--activations", activations})
                .exit_code,
            2);
}

TEST(Fidelity, JudgesACopyTensorByTensor) {
  const TemporaryFolder folder;
  const std::vector<float> original = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> copy = original;
  copy[6] = 7.5f;
  WriteSafetensors(
      folder.Path("a.safetensors"),
      {{"m.a", {2, 4}, original}, {"m.b", {2, 4}, original}, {"m.c", {1, 4}, {1, 2, 3, 4}}});
  WriteSafetensors(folder.Path("b.safetensors"), {{"m.a", {2, 4}, copy}, {"m.b", {4, 2}, copy}});
  const CliResult run = RunCli({"fidelity", folder.Path("a.safetensors"), "--against",
                                folder.Path("b.safetensors"), "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(run.out);
  ASSERT_EQ(report["results"].size(), 1u);
  const Json result = report["results"][0];
  EXPECT_EQ(result["tensor"], "m.a");
  EXPECT_EQ(result["format"], "f32");
  EXPECT_TRUE(result["against"]);
  EXPECT_FALSE(result.contains("encode_ms"));
  EXPECT_NEAR(result["weight_relative_rmse"], 0.5 / std::sqrt(204.0), 1e-12);
  EXPECT_EQ(result["weight"]["max_abs_at"], Json({1, 2}));
  EXPECT_EQ(report["skipped"].size(), 2u);
}

TEST(Fidelity, MeasuresStacksAsTheirMatrices) {
  const TemporaryFolder folder;
  std::vector<float> values(2 * 3 * 64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 37) - 18.0f;
  WriteSafetensors(folder.Path("a.safetensors"), {{"experts.w", {2, 3, 64}, values}});
  const CliResult run =
      RunCli({"fidelity", folder.Path("a.safetensors"), "-f", "affine4g64", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(run.out);
  ASSERT_EQ(report["results"].size(), 2u);
  EXPECT_EQ(report["results"][1]["matrix"], 1);
  EXPECT_EQ(report["results"][1]["source_shape"], Json({3, 64}));
}

TEST(Fidelity, ListsWhatAFormatCannotHold) {
  const TemporaryFolder folder;
  WriteSafetensors(folder.Path("a.safetensors"),
                   {{"odd", {1, 5}, {1, 2, 3, 4, 5}}, {"bias", {3}, {1, 2, 3}}});
  const CliResult run = RunCli({"fidelity", folder.Path("a.safetensors"), "-f", "affine4g64"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("fits none of the weights"));
  EXPECT_THAT(run.out, HasSubstr("not measured as affine4g64: odd: "));
  EXPECT_THAT(run.out, HasSubstr("kept as they were: 1 tensor"));
}

TEST(Fidelity, RefusesWrongCallsBeforeWork) {
  const TemporaryFolder folder;
  const std::string file = folder.Path("a.safetensors");
  WriteSafetensors(file, {{"w", {1, 64}, std::vector<float>(64, 1.0f)}});
  const std::vector<std::pair<int, std::vector<std::string>>> wrong = {
      {2, {"fidelity"}},
      {2, {"fidelity", file}},
      {2, {"fidelity", file, "-f", "afine4g64"}},
      {2, {"fidelity", file, "-f", "affine4g64", "--tensor", "nothing*"}},
      {2, {"fidelity", file, "-f", "affine4g64", "-o", file}},
      {2, {"fidelity", file, "-f", "affine4g64", "-o", folder.Path(".")}},
      {2, {"fidelity", file, "-f", "affine4g64", "--strategy", "magic"}},
      {2, {"fidelity", file, "-f", "affine4g64", "--rows", "-3"}},
      {3, {"fidelity", file, "-f", "affine4g64", "-o", folder.Path("no/such/report.json")}},
      {3, {"fidelity", folder.Path("missing"), "-f", "affine4g64"}},
      {3, {"fidelity", file, "-f", "affine4g64", "--activations", folder.Path("missing.npy")}},
      {3, {"fidelity", file, "-f", "affine4g64", "--against", folder.Path("missing")}},
  };
  for (const auto& [exit_code, arguments] : wrong) {
    const CliResult run = RunCli(arguments);
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_THAT(run.err, StartsWith("assay: "));
    EXPECT_TRUE(run.out.empty());
  }
}

TEST(Fidelity, NamesTheValueAFormatCannotHoldAndWritesNothing) {
  const TemporaryFolder folder;
  std::vector<float> values(128, 1.0f);
  values[64 + 7] = std::nanf("");
  WriteSafetensors(folder.Path("a.safetensors"), {{"w", {2, 64}, values}});
  const CliResult run = RunCli({"fidelity", folder.Path("a.safetensors"), "-f", "affine4g64", "-o",
                                folder.Path("report.json")});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_THAT(run.err, HasSubstr("w"));
  EXPECT_THAT(run.err, HasSubstr("row 1"));
  EXPECT_THAT(run.err, HasSubstr("column 7"));
  EXPECT_FALSE(std::filesystem::exists(folder.Path("report.json")));
}

}  // namespace
}  // namespace assay

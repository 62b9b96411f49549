#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/run_cli.h"
#include "tests/support/write_safetensors.h"

namespace assay {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

const std::string kInspectedModel = test::SourcePath("data/minilm-slice");

TEST(Inspect, TotalsByKind) {
  const CliResult run = RunCli({"inspect", kInspectedModel});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("minilm-slice · 1 file · 7.5 MB · 33 tensors stored\n"));
  EXPECT_THAT(run.out, HasSubstr("\nbf16        33       3.7 M  7.5 MB   16.00\n"));
  EXPECT_THAT(run.out, HasSubstr("\ntotal       33 "));
  EXPECT_TRUE(run.err.empty());
}

TEST(Inspect, ListsTensorsThatFit) {
  const CliResult run = RunCli({"inspect", kInspectedModel, "--tensor", "*layer.5*query.weight"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("encoder.layer.5.attention.self.query.weight  bf16  [384, 384]"));
  EXPECT_EQ(run.out.find("layer.0"), std::string::npos);
}

TEST(Inspect, JsonHasEveryTensor) {
  const CliResult run = RunCli({"inspect", kInspectedModel, "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = Json::parse(run.out);
  EXPECT_EQ(report["schema"], "assay.inspect/1");
  EXPECT_EQ(report["tensors"].size(), 33u);
  EXPECT_EQ(report["total"]["parameters"], 3745536);
  EXPECT_EQ(report["total"]["bytes"], 7491072);
  EXPECT_EQ(report["tensors"][0]["name"], "embeddings.word_embeddings.weight");
  EXPECT_TRUE(report["tensors"][0]["weight"]);
  EXPECT_EQ(report["tensors"][1]["name"], "encoder.layer.0.attention.output.LayerNorm.bias");
  EXPECT_FALSE(report["tensors"][1]["weight"]);
}

TEST(Inspect, NamesAreShownWithoutControlCharacters) {
  const TemporaryFolder folder;
  WriteSafetensors(folder.Path("a.safetensors"), {{"x\x1b[2J\ny", {1, 2}, {1, 2}}});
  const CliResult run = RunCli({"inspect", folder.Path("a.safetensors"), "--list"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out.find('\x1b'), std::string::npos);
  EXPECT_THAT(run.out, HasSubstr("x\\x1B[2J\\x0Ay"));
}

TEST(Inspect, BadFilesAreOneLineAndExitThree) {
  const TemporaryFolder folder;
  WriteSafetensors(folder.Path("a.safetensors"), {{"w", {1, 64}, std::vector<float>(64)}});
  std::filesystem::resize_file(folder.Path("a.safetensors"), 200);
  for (const char* name : {"a.safetensors", "missing.safetensors", "."}) {
    const CliResult run = RunCli({"inspect", folder.Path(name)});
    EXPECT_EQ(run.exit_code, 3) << run.err;
    EXPECT_THAT(run.err, StartsWith("assay: "));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1);
    EXPECT_TRUE(run.out.empty());
  }
}

TEST(Inspect, OpensASparseModelOf20GB) {
  const TemporaryFolder folder;
  Json header = Json::object();
  constexpr uint64_t kBytes = 10'000'000;
  for (uint64_t i = 0; i < 2000; ++i) {
    header["layers." + std::to_string(i) + ".weight"] = {
        {"dtype", "BF16"},
        {"shape", {2500, 2000}},
        {"data_offsets", {i * kBytes, (i + 1) * kBytes}}};
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  const std::string path = folder.Path("sparse.safetensors");
  {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof(size));
    file << text;
  }
  std::error_code error;
  std::filesystem::resize_file(path, sizeof(size) + size + 2000 * kBytes, error);
  if (error) GTEST_FAIL() << "no sparse files here: " << error.message();
  const CliResult run = RunCli({"inspect", path});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("20.0 GB"));
  EXPECT_THAT(run.out, HasSubstr("10.0 B"));
}

}  // namespace
}  // namespace assay

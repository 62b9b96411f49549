#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/run_cli.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Data(const std::string& relative) { return test::TestDataPath(relative); }

std::string Sample() { return test::SourcePath("data/minilm-slice"); }

/// Names in a folder, temporaries included.
std::vector<std::string> Listing(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

nlohmann::json JsonOf(const CliResult& result) { return nlohmann::json::parse(result.out); }

TEST(QuantizeCommand, AFolderGoesToAffineAndBack) {
  const TemporaryFolder folder;
  const std::string packed = folder.Path("packed");
  const std::string plain = folder.Path("plain");
  const CliResult quantize =
      RunCli({"quantize", Sample(), "--format", "affine4g64", "-o", packed, "--json"});
  ASSERT_EQ(quantize.exit_code, 0) << quantize.err;
  const nlohmann::json report = JsonOf(quantize);
  EXPECT_EQ(report["schema"], "assay.quantize/1");
  EXPECT_EQ(report["totals"]["encoded"]["tensors"], 13);
  EXPECT_DOUBLE_EQ(report["totals"]["encoded"]["bits_per_weight"], 4.5);
  EXPECT_GT(report["totals"]["kept_cost_bits_per_weight"], 0.0);
  const nlohmann::json config = nlohmann::json::parse(ReadText(packed + "/config.json"));
  EXPECT_EQ(config["quantization"]["bits"], 4);
  EXPECT_EQ(config["quantization"]["group_size"], 64);
  EXPECT_EQ(config["hidden_size"], 384);
  EXPECT_TRUE(fs::exists(packed + "/LICENSE"));

  const CliResult dequantize = RunCli({"dequantize", packed, "-o", plain});
  ASSERT_EQ(dequantize.exit_code, 0) << dequantize.err;
  EXPECT_FALSE(nlohmann::json::parse(ReadText(plain + "/config.json")).contains("quantization"));
  // The decoded folder holds what the packed one means, and lies near the original.
  EXPECT_EQ(RunCli({"compare", plain, packed, "--equal"}).exit_code, 0);
  const CliResult near =
      RunCli({"compare", plain, Sample(), "--max-relative-rmse", "0.2", "--json"});
  EXPECT_EQ(near.exit_code, 0) << near.out;
  EXPECT_EQ(RunCli({"compare", plain, Sample(), "--max-relative-rmse", "0.01"}).exit_code, 1);
}

TEST(QuantizeCommand, Packed12ComesBackByteForByte) {
  const TemporaryFolder folder;
  const std::string packed = folder.Path("packed");
  const std::string plain = folder.Path("plain");
  const CliResult quantize = RunCli({"quantize", Sample(), "--format", "packed12", "-o", packed});
  ASSERT_EQ(quantize.exit_code, 0) << quantize.err;
  ASSERT_EQ(RunCli({"dequantize", packed, "-o", plain}).exit_code, 0);
  const CliResult compare = RunCli({"compare", plain, Sample(), "--equal", "--json"});
  EXPECT_EQ(compare.exit_code, 0) << compare.out;
  EXPECT_EQ(JsonOf(compare)["tensors_compared"], 33);
}

TEST(QuantizeCommand, AFileCarriesItsConfigInItsMetadata) {
  const TemporaryFolder folder;
  const std::string packed = folder.Path("packed.safetensors");
  const std::string plain = folder.Path("plain.safetensors");
  const std::string source = Sample() + "/model.safetensors";
  const CliResult quantize = RunCli({"quantize", source, "--format", "affine8g32", "--format",
                                     "*.intermediate.*=affine3g128", "--tensor", "encoder.*.weight",
                                     "-o", packed, "--json"});
  ASSERT_EQ(quantize.exit_code, 0) << quantize.err;
  const auto report = JsonOf(quantize);
  for (const auto& tensor : report["tensors"]) {
    if (tensor["tensor"] == "encoder.layer.0.intermediate.dense.weight") {
      EXPECT_EQ(tensor["to"], "affine3g128");
    }
    if (tensor["tensor"] == "encoder.layer.0.attention.self.query.weight") {
      EXPECT_EQ(tensor["to"], "affine8g32");
    }
    if (tensor["tensor"] == "encoder.layer.0.output.LayerNorm.weight") {
      EXPECT_THAT(tensor["kept_because"], HasSubstr("1-D"));
    }
  }
  ASSERT_EQ(RunCli({"dequantize", packed, "--dtype", "f32", "-o", plain}).exit_code, 0);
  EXPECT_EQ(RunCli({"compare", plain, packed, "--max-abs", "0", "--allow-dtype"}).exit_code, 0);
  // A quantised source is decoded before it is encoded again, and that is said.
  const std::string again = folder.Path("again.safetensors");
  const CliResult requantize =
      RunCli({"quantize", packed, "--format", "affine4g64", "-o", again, "--json"});
  ASSERT_EQ(requantize.exit_code, 0) << requantize.err;
  EXPECT_THAT(JsonOf(requantize)["notes"].dump(), HasSubstr("was affine8g32, decoded before"));
}

TEST(QuantizeCommand, ShardsKeepWithinTheirSize) {
  const TemporaryFolder folder;
  const std::string packed = folder.Path("packed");
  const CliResult quantize = RunCli(
      {"quantize", Sample(), "--format", "affine4g64", "--shard-size", "500KB", "-o", packed});
  ASSERT_EQ(quantize.exit_code, 0) << quantize.err;
  const nlohmann::json index =
      nlohmann::json::parse(ReadText(packed + "/model.safetensors.index.json"));
  EXPECT_EQ(index["weight_map"].size(), 33 + 2 * 13);
  for (const std::string& name : Listing(packed)) {
    if (name.ends_with(".safetensors")) {
      EXPECT_LE(fs::file_size(packed + "/" + name), 520'000u) << name;
    }
  }
  EXPECT_EQ(RunCli({"compare", packed, packed, "--equal"}).exit_code, 0);
}

TEST(QuantizeCommand, ATurboQuantFolderIsRemadeByteForByteFromItsSigns) {
  const TemporaryFolder folder;
  const std::string out = folder.Path("out");
  const std::string made = Data("turboquant/model-tq3g32");
  const CliResult quantize = RunCli({"quantize", Data("turboquant/model-src"), "--format", "tq3g32",
                                     "--signs-from", made, "-o", out, "-q"});
  ASSERT_EQ(quantize.exit_code, 0) << quantize.err;
  for (const std::string& name : Listing(made)) {
    if (name.ends_with(".index.json")) {
      EXPECT_EQ(nlohmann::json::parse(ReadText(out + "/" + name)),
                nlohmann::json::parse(ReadText(made + "/" + name)));
    } else {
      EXPECT_EQ(ReadText(out + "/" + name), ReadText(made + "/" + name)) << name;
    }
  }
  // K = 96 does not divide into groups of 128: the weight stays, and is not listed as encoded.
  const std::string out4 = folder.Path("out4");
  const std::string made4 = Data("turboquant/model-tq4g128");
  const CliResult quantize4 = RunCli({"quantize", Data("turboquant/model-src"), "--format",
                                      "tq4g128", "--signs-from", made4, "-o", out4, "--json"});
  ASSERT_EQ(quantize4.exit_code, 0) << quantize4.err;
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                           "turboquant_config.json", "config.json"}) {
    EXPECT_EQ(ReadText(out4 + "/" + name), ReadText(made4 + "/" + name)) << name;
  }
  const auto report = JsonOf(quantize4);
  for (const auto& tensor : report["tensors"]) {
    if (tensor["tensor"] == "model.layers.0.self_attn.o_proj.weight") {
      EXPECT_THAT(tensor["kept_because"], HasSubstr("96"));
    }
  }
  // Without signs to take, they are drawn from the name: the same every time.
  const std::string once = folder.Path("once");
  const std::string twice = folder.Path("twice");
  for (const std::string& target : {once, twice}) {
    ASSERT_EQ(RunCli({"quantize", Data("turboquant/model-src"), "--format", "tq4g128", "-o", target,
                      "-q"})
                  .exit_code,
              0);
  }
  EXPECT_EQ(RunCli({"compare", once, twice, "--stored", "--equal"}).exit_code, 0);
}

TEST(QuantizeCommand, RefusesBeforeItWorks) {
  const TemporaryFolder folder;
  const std::string file = folder.Path("m.safetensors");
  fs::copy_file(Sample() + "/model.safetensors", file);
  const std::string before = ReadText(file);
  const auto refused = [&](std::vector<std::string> arguments, int exit_code,
                           const std::string& words) {
    const CliResult result = RunCli(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
  };
  refused({"quantize", file, "--format", "affine4g64", "-o", file}, 2, file);
  refused({"quantize", file, "--format", "affine4g64", "-o", folder.Path("./m.safetensors")}, 2,
          "m.safetensors");
  std::ofstream(folder.Path("taken")) << "x";
  refused({"quantize", file, "--format", "affine4g64", "-o", folder.Path("taken")}, 2, "exists");
  refused({"quantize", Sample(), "--format", "affine4g64", "-o", Sample()}, 2, "minilm-slice");
  refused({"quantize", file, "--format", "affine4g64", "-o", folder.Path("no/such/out")}, 3,
          "no/such");
  refused({"quantize", file, "--format", "affine4g63", "-o", folder.Path("o")}, 2, "affine4g64");
  refused({"quantize", file, "--format", "affine4g64", "--format", "affine8g64", "-o",
           folder.Path("o")},
          2, "GLOB");
  refused({"quantize", file, "--format", "bf16", "-o", folder.Path("o")}, 2, "no checkpoint");
  refused(
      {"quantize", file, "--format", "affine4g64", "--tensor", "nothing.*", "-o", folder.Path("o")},
      3, "nothing.*");
  refused(
      {"quantize", file, "--format", "affine4g64", "--tensor", "*.bias", "-o", folder.Path("o")}, 3,
      "1-D");
  refused({"dequantize", file, "-o", folder.Path("o")}, 3, "no encoded weight");
  EXPECT_EQ(ReadText(file), before);
  EXPECT_THAT(Listing(folder.Path("")), ElementsAre("m.safetensors", "taken"));
}

TEST(QuantizeCommand, ANanIsNamedAndNothingIsLeft) {
  const TemporaryFolder folder;
  const std::string file = folder.Path("nan.safetensors");
  const std::string header =
      R"({"w.weight":{"dtype":"F32","shape":[2,64],"data_offsets":[0,512]}})";
  std::string bytes(512, '\0');
  bytes.replace(4 * (64 + 5), 4, std::string("\x00\x00\xC0\x7F", 4));
  std::ofstream out(file, std::ios::binary);
  const uint64_t size = header.size();
  out.write(reinterpret_cast<const char*>(&size), 8);
  out << header << bytes;
  out.close();
  const CliResult result =
      RunCli({"quantize", file, "--format", "affine4g64", "-o", folder.Path("o")});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("nan.safetensors"));
  EXPECT_THAT(result.err, HasSubstr("w.weight"));
  EXPECT_THAT(result.err, HasSubstr("row 1"));
  EXPECT_THAT(result.err, HasSubstr("5"));
  EXPECT_THAT(Listing(folder.Path("")), ElementsAre("nan.safetensors"));
}

/// Runs the binary in a child that `prepare` limits, and gives its wait status.
int RunLimited(const std::vector<std::string>& arguments, const std::function<void()>& prepare,
               const std::function<void(pid_t)>& meanwhile = {}) {
  std::vector<char*> argv;
  std::string program = test::ProgramPath();
  std::vector<std::string> copies = arguments;
  argv.push_back(program.data());
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    prepare();
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  if (meanwhile) meanwhile(child);
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(QuantizeCommand, AFullDiskLeavesNothing) {
  const TemporaryFolder folder;
  // A limit on file sizes fails writes as a full disk does.
  const int status = RunLimited(
      {"quantize", Sample(), "--format", "affine8g64", "-o", folder.Path("out"), "-q"}, [] {
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{1 << 20, 1 << 20};
        setrlimit(RLIMIT_FSIZE, &limit);
      });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_THAT(Listing(folder.Path("")), IsEmpty());
}

TEST(QuantizeCommand, AKillLeavesNoOutputAndTheNextRunCleansUp) {
  const TemporaryFolder folder;
  const std::string out = folder.Path("out");
  const std::vector<std::string> arguments = {"quantize", Sample(), "--format", "affine4g64",
                                              "-o",       out,      "-q"};
  for (const int wait_ms : {2, 10, 30}) {
    RunLimited(
        arguments, [] {},
        [&](pid_t child) {
          usleep(static_cast<useconds_t>(wait_ms) * 1000);
          kill(child, SIGKILL);
        });
    // Whole or not there.
    if (fs::exists(out)) {
      EXPECT_EQ(RunCli({"compare", out, out, "--equal"}).exit_code, 0);
      fs::remove_all(out);
    }
  }
  ASSERT_EQ(RunCli(arguments).exit_code, 0);
  EXPECT_THAT(Listing(folder.Path("")), ElementsAre("out"));
}

TEST(QuantizeCommand, AnInterruptLeavesNothingBehind) {
  const TemporaryFolder folder;
  const std::string out = folder.Path("out");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    for (const int wait_ms : {2, 10, 30}) {
      const int status = RunLimited(
          {"quantize", Sample(), "--format", "affine4g64", "-o", out, "-q"},
          [signal] { std::signal(signal, SIG_DFL); },
          [&](pid_t child) {
            usleep(static_cast<useconds_t>(wait_ms) * 1000);
            kill(child, signal);
          });
      EXPECT_EQ(WIFSIGNALED(status) ? WTERMSIG(status) : signal, signal);
      EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 0, 0);
      // Whole, when the signal came too late, or not there; never a temporary.
      if (fs::exists(out)) {
        EXPECT_EQ(RunCli({"compare", out, out, "--equal"}).exit_code, 0);
        fs::remove_all(out);
      }
      EXPECT_THAT(Listing(folder.Path("")), IsEmpty());
    }
  }
}

}  // namespace
}  // namespace assay

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/run_cli.h"

namespace assay {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

bool IsOneLine(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n') == 1 && text.back() == '\n';
}

TEST(Cli, HelpAndVersionGoToStdout) {
  const CliResult help = RunCli({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("formats"));
  EXPECT_TRUE(help.err.empty());
  EXPECT_THAT(RunCli({"--version"}).out, StartsWith("assay "));
}

TEST(Cli, EveryCommandsHelpShowsAnExample) {
  const nlohmann::json formats = nlohmann::json::parse(RunCli({"formats", "--json"}).out);
  EXPECT_EQ(formats["schema"], "assay.formats/1");
  for (const char* command :
       {"inspect", "formats", "fidelity", "bench", "kv", "completion", "man"}) {
    const CliResult help = RunCli({command, "--help"});
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_THAT(help.out, HasSubstr(std::string("Example:\n  assay ") + command));
  }
}

TEST(Cli, UsageErrorsAreOneLineAndExitTwo) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"fromats"},
      {"formats", "--no-such-option"},
      {"formats", "--threads", "0"},
      {"formats", "--threads", "x"},
      {"formats", "affine4g63"},
      {"formats", "--target", "z80"},
      {"formats", "--format-out", "xml"},
      {"completion"},
      {"completion", "csh"},
  };
  for (const std::vector<std::string>& arguments : wrong) {
    const CliResult result = RunCli(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_TRUE(IsOneLine(result.err)) << result.err;
    EXPECT_THAT(result.err, StartsWith("assay: "));
    EXPECT_TRUE(result.out.empty());
  }
}

TEST(Cli, UnknownNamesAreAnsweredWithTheNearest) {
  EXPECT_THAT(RunCli({"fromats"}).err, HasSubstr("nearest: formats"));
  EXPECT_THAT(RunCli({"formats", "afine4g64"}).err, HasSubstr("nearest: affine4g64"));
}

TEST(Cli, ErrorsShowNoControlCharacters) {
  EXPECT_THAT(RunCli({"formats", "a\x1b[31m\nb"}).err, HasSubstr("\\x1B[31m"));
}

TEST(Formats, ListsAndExplains) {
  const CliResult all = RunCli({"formats"});
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_THAT(all.out, ContainsRegex("affine4g64 +4.50  MLX"));
  EXPECT_EQ(all.out.find('\x1b'), std::string::npos);
  const CliResult one = RunCli({"formats", "affine"});
  EXPECT_THAT(one.out, HasSubstr("affine6g128"));
  EXPECT_EQ(one.out, RunCli({"formats", "affine2g32"}).out);
  EXPECT_THAT(RunCli({"formats", "--names"}).out, HasSubstr("\naffine8g64\n"));
}

TEST(Completion, KnowsCommandsOptionsAndFormats) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const CliResult script = RunCli({"completion", shell});
    EXPECT_EQ(script.exit_code, 0);
    EXPECT_THAT(script.out, HasSubstr("formats"));
    EXPECT_THAT(script.out, HasSubstr("format-out"));
  }
}

TEST(Man, HasASectionForEveryCommand) {
  const std::string page = RunCli({"man"}).out;
  EXPECT_THAT(page, StartsWith(".TH ASSAY 1"));
  for (const char* command :
       {"inspect", "formats", "fidelity", "bench", "kv", "completion", "man"}) {
    EXPECT_THAT(page, HasSubstr(std::string(".SS ") + command + "\n"));
  }
}

}  // namespace
}  // namespace assay

#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/report/report.h"
#include "assay/report/table.h"

namespace assay::cli {

/// Exit codes, the same for every command.
inline constexpr int kExitDone = 0;
inline constexpr int kExitGateFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInput = 3;
inline constexpr int kExitInternal = 4;

/// Options that commands share; each command declares which of them it takes.
struct CommonOptions {
  std::string report_path;   ///< -o, --output: where the JSON report goes; empty: nowhere
  bool json = false;         ///< --format-out json, --json: JSON instead of a table on stdout
  bool quiet = false;        ///< --quiet: nothing on stderr but errors
  std::string command_line;  ///< as the report states it
};

/// Which of the shared options a command takes, beside --threads, --target and --quiet.
enum class Results {
  kReport,  ///< -o FILE, --format-out, --json: a study with a report
  kText,    ///< --format-out, --json, but no file of its own
  kOther,   ///< none: the command has its own -o, or just prints
};

/// One subcommand. Each lives in its own file; commands.cc lists them.
struct Command {
  std::string_view name;
  std::string_view summary;  ///< one line, no final stop
  std::string_view example;  ///< one real command line
  Results results;
  /// Adds the command's options to `app` and returns what runs once they are parsed; that returns
  /// the exit code, and throws assay::Error. `common` outlives it and is filled by then.
  std::function<int()> (*setup)(CLI::App& app, const CommonOptions& common);
};

/// All of them, in the order of --help.
std::span<const Command* const> Commands();

/// Checks for options: one of some words; a whole number from `least` to `most`; a whole number
/// that 64 bits hold, without a sign (the parser would take −1 for the largest); not empty.
CLI::Validator OneOf(std::vector<std::string> words);
CLI::Validator InRange(int64_t least, int64_t most);
CLI::Validator Unsigned64();
CLI::Validator NotEmpty();

/// Adds the shared options to a command's parser.
void AddCommonOptions(CLI::App& app, Results results, CommonOptions& common);

/// How wide stdout is, and whether it shows colours: a terminal without NO_COLOR or TERM=dumb.
TableStyle StdoutStyle();

/// Prints `text` on stdout. Errors: input when it cannot be written.
void Print(std::string_view text);

/// One line on stderr, unless --quiet.
void Note(const CommonOptions& common, std::string_view text);

/// Ends a study: writes the report to -o, prints it as JSON or `text` on stdout, says so on stderr.
void Emit(const CommonOptions& common, const Json& report, std::string_view text);

/// Throws a usage error when the report would overwrite `input`, or a folder, or cannot be written:
/// asked before the work starts.
void CheckReportPath(const CommonOptions& common, std::span<const std::string> inputs);

}  // namespace assay::cli

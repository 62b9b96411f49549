#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/ranges.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "assay/base/error.h"
#include "assay/base/output_file.h"
#include "assay/base/parallel.h"
#include "assay/base/target.h"
#include "assay/base/text.h"
#include "assay/checkpoint/mapped_file.h"
#include "assay/cli/command.h"

namespace assay::cli {
namespace {

constexpr size_t kDefaultWidth = 100;

bool SameFile(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return a == b || std::filesystem::equivalent(a, b, ignored);
}

}  // namespace

CLI::Validator OneOf(std::vector<std::string> words) {
  // Without its description, which CLI11 would print behind the option's type.
  return CLI::IsMember(std::move(words)).description("");
}

CLI::Validator InRange(int64_t least, int64_t most) {
  return CLI::Range(least, most).description("");
}

CLI::Validator Unsigned64() {
  return {[](std::string& text) -> std::string {
            uint64_t value = 0;
            const char* const last = text.data() + text.size();
            const auto [end, error] = std::from_chars(text.data(), last, value);
            if (error == std::errc{} && end == last) return {};
            return fmt::format("{}: expected a whole number from 0 to 2^64 - 1", Quoted(text));
          },
          ""};
}

CLI::Validator NotEmpty() {
  return {[](std::string& text) { return std::string(text.empty() ? "the name is empty" : ""); },
          ""};
}

void AddCommonOptions(CLI::App& app, Results results, CommonOptions& common) {
  const char* const group = "Common options";
  if (results == Results::kReport) {
    app.add_option("-o,--output", common.report_path, "Write the report to this file, as JSON")
        ->check(NotEmpty())
        ->type_name("FILE")
        ->group(group);
  }
  if (results != Results::kOther) {
    app.add_option_function<std::string>(
           "--format-out", [&common](const std::string& value) { common.json = value == "json"; },
           "What stdout gets: table (default) or json")
        ->check(OneOf({"table", "json"}))
        ->type_name("table|json")
        ->group(group);
    app.add_flag_callback(
           "--json", [&common] { common.json = true; }, "Same as --format-out json")
        ->group(group);
  }
  app.add_option_function<int>(
         "--threads", [](const int& threads) { SetNumThreads(threads); },
         "Threads to use; default: all CPUs allowed")
      ->check(InRange(1, 4096))
      ->type_name("N")
      ->group(group);
  app.add_option_function<std::string>(
         "--target", [](const std::string& name) { ForceTarget(name); },
         fmt::format("Force an instruction set: {}", fmt::join(SupportedTargets(), ", ")))
      ->type_name("T")
      ->group(group);
  app.add_flag("-q,--quiet", common.quiet, "No progress and no notes on stderr")->group(group);
}

TableStyle StdoutStyle() {
  TableStyle style{kDefaultWidth, false};
  if (isatty(STDOUT_FILENO) == 0) return style;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    style.width = std::min<size_t>(size.ws_col, kDefaultWidth);
  }
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  style.colours = (no_color == nullptr || *no_color == '\0') &&
                  (term == nullptr || std::string_view(term) != "dumb");
  return style;
}

void Print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    ThrowInput("standard output cannot be written: {}", std::strerror(errno));
  }
}

void Note(const CommonOptions& common, std::string_view text) {
  if (!common.quiet) fmt::print(stderr, "{}\n", Printable(text));
}

void Emit(const CommonOptions& common, const Json& report, std::string_view text) {
  const std::string json = Serialise(report);
  // No figure out of a file that became shorter while it was read.
  MappedFile::VerifyAll();
  if (!common.report_path.empty()) WriteFile(common.report_path, json);
  Print(common.json ? json : WrapLines(text, StdoutStyle().width));
  if (!common.report_path.empty()) {
    Note(common, fmt::format("{} written ({})", common.report_path,
                             report.at("schema").get<std::string>()));
  }
}

void CheckReportPath(const CommonOptions& common, std::span<const std::string> inputs) {
  const std::string& path = common.report_path;
  if (path.empty()) return;
  for (const std::string& input : inputs) {
    if (SameFile(path, input)) ThrowUsage("{}: the report would overwrite its input", path);
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(input, none)) {
      if (!SameFile(path, entry.path().string())) continue;
      ThrowUsage("{}: the report would overwrite a file of its input {}", path, input);
    }
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    ThrowUsage("{}: a folder; expected a file for the report", path);
  }
  RequireWritableParent(path);
}

}  // namespace assay::cli

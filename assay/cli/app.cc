#include "assay/cli/app.h"

#include <fmt/ranges.h>

#include <cstdio>
#include <new>
#include <vector>

#include "assay/base/error.h"
#include "assay/base/nearest.h"
#include "assay/base/target.h"
#include "assay/cli/interrupt.h"
#include "assay/version.h"

namespace assay::cli {
namespace {

int ExitCodeOf(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return kExitUsage;
    case ErrorKind::kInput:
      return kExitInput;
    case ErrorKind::kInternal:
      return kExitInternal;
  }
  return kExitInternal;
}

// One line on stderr whatever the message holds.
int Fail(int exit_code, std::string_view message) {
  while (message.ends_with('\n')) message.remove_suffix(1);
  const std::string line = Printable(message);
  std::fflush(stdout);
  fmt::print(stderr, "assay: {}\n", line);
  return exit_code;
}

// The command line as a shell would take it, for the report. The program is named without its path.
std::string CommandLine(int argc, const char* const* argv) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_~";
  std::string line = "assay";
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) {
      if (c == '\'') {
        line += "'\\''";
      } else {
        line += c;
      }
    }
    line += '\'';
  }
  return line;
}

// CLI11 only says that a word was not expected; name the commands that look like it.
void CheckCommandName(int argc, const char* const* argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  const std::string_view word = argv[1];
  std::vector<std::string> names;
  for (const Command* command : Commands()) {
    if (command->name == word) return;
    names.emplace_back(command->name);
  }
  ThrowUsage("unknown command \"{}\"; nearest: {} (all: assay --help)", word,
             fmt::join(NearestNames(word, names, 2), ", "));
}

int Run(int argc, const char* const* argv) {
  SelectTargetFromEnvironment();
  Application application;
  BuildApplication(application);
  application.common.command_line = CommandLine(argc, argv);
  CheckCommandName(argc, argv);
  try {
    application.app->parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return application.app->exit(request) == 0 ? kExitDone : kExitInternal;
  } catch (const CLI::ParseError& error) {
    const auto used = application.app->get_subcommands();
    return Fail(kExitUsage, fmt::format("{} (see: assay {}--help)", error.what(),
                                        used.empty() ? "" : used[0]->get_name() + " "));
  }
  const std::string name = application.app->get_subcommands().at(0)->get_name();
  return application.runners.at(name)();
}

}  // namespace

void BuildApplication(Application& application) {
  application.app = std::make_unique<CLI::App>(
      "The measuring instrument for low-bit tensor formats: a tensor goes in, a format is\n"
      "applied, a kernel is run, and a number that can be trusted comes out.",
      "assay");
  CLI::App& app = *application.app;
  app.set_version_flag("--version", fmt::format("assay {}", kVersion));
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 a gate failed, 2 usage, 3 bad input, 4 internal fault.\n"
      "Results go to stdout, everything else to stderr. ASSAY_TARGET, NO_COLOR are respected.");
  for (const Command* command : Commands()) {
    CLI::App* sub = app.add_subcommand(std::string(command->name), std::string(command->summary));
    sub->footer(fmt::format("Example:\n  {}", command->example));
    application.runners[std::string(command->name)] = command->setup(*sub, application.common);
    AddCommonOptions(*sub, command->results, application.common);
  }
}

int RunCommandLine(int argc, const char* const* argv) {
  try {
    const int exit_code = Run(argc, argv);
    if (std::fflush(stdout) != 0) return Fail(kExitInput, "standard output cannot be written");
    return exit_code;
  } catch (const Interrupted& interrupted) {
    EndBySignal(interrupted.signal());
  } catch (const Error& error) {
    return Fail(ExitCodeOf(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return Fail(kExitInternal, "out of memory");
  } catch (const std::exception& error) {
    return Fail(kExitInternal, error.what());
  }
}

}  // namespace assay::cli

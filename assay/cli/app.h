#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "assay/cli/command.h"

namespace assay::cli {

/// The parser of the whole command line, and what each subcommand runs.
struct Application {
  std::unique_ptr<CLI::App> app;
  CommonOptions common;
  std::map<std::string, std::function<int()>> runners;
};

/// Built from Commands(); `application` must not move afterwards.
void BuildApplication(Application& application);

/// main: parses, runs, reports errors as one line on stderr; returns the exit code.
int RunCommandLine(int argc, const char* const* argv);

}  // namespace assay::cli

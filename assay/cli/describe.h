#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace assay::cli {

/// One option of a command as completion scripts and the man page need it.
struct OptionFacts {
  std::vector<std::string> flags;  ///< "-o", "--output"; empty for a positional argument
  std::string name;                ///< of a positional argument: "PATH"
  std::string value;               ///< what it takes: "FILE", "table|json"; empty for a flag
  std::string description;
  bool required = false;
  bool many = false;
};

struct CommandFacts {
  std::string name;
  std::string description;
  std::string footer;
  std::vector<OptionFacts> options;
};

/// What a parser knows of itself: its own options first, then the shared ones.
CommandFacts Describe(const CLI::App& app);

}  // namespace assay::cli

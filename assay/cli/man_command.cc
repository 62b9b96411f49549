#include <fmt/ranges.h>

#include "assay/cli/app.h"
#include "assay/cli/commands.h"
#include "assay/cli/describe.h"
#include "assay/version.h"

namespace assay::cli {
namespace {

// Text for roff: hyphens that can be copied, no line that starts with a control character.
std::string Roff(std::string_view text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    line_start = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string OptionEntry(const OptionFacts& option) {
  std::string entry = ".TP\n";
  if (option.flags.empty()) {
    entry += fmt::format("\\fI{}\\fR", Roff(option.name));
  } else {
    std::vector<std::string> flags;
    for (const std::string& flag : option.flags) {
      flags.push_back(fmt::format("\\fB{}\\fR", Roff(flag)));
    }
    entry += fmt::format("{}", fmt::join(flags, ", "));
    if (!option.value.empty()) entry += fmt::format(" \\fI{}\\fR", Roff(option.value));
  }
  return entry + "\n" + Roff(option.description) + "\n";
}

std::string CommandSection(const Command& command, const CommandFacts& facts) {
  std::string synopsis = fmt::format("\\fBassay {}\\fR", facts.name);
  for (const OptionFacts& option : facts.options) {
    if (!option.flags.empty()) continue;
    const std::string name =
        fmt::format("\\fI{}\\fR{}", Roff(option.name), option.many ? "..." : "");
    synopsis += option.required ? " " + name : " [" + name + "]";
  }
  std::string section = fmt::format(".SS {}\n{} [options]\n.PP\n{}.\n", Roff(facts.name), synopsis,
                                    Roff(facts.description));
  for (const OptionFacts& option : facts.options) section += OptionEntry(option);
  return section +
         fmt::format(".PP\nExample:\n.PP\n.RS\n.EX\n{}\n.EE\n.RE\n", Roff(command.example));
}

int ManCommand() {
  Application application;
  BuildApplication(application);
  std::string page = fmt::format(
      ".TH ASSAY 1 \"\" \"assay {}\" \"User Commands\"\n"
      ".SH NAME\nassay \\- measure low\\-bit tensor formats\n"
      ".SH SYNOPSIS\n\\fBassay\\fR \\fICOMMAND\\fR [options]\n"
      ".SH DESCRIPTION\n{}\n.SH COMMANDS\n",
      kVersion, Roff(application.app->get_description()));
  for (const Command* command : Commands()) {
    const CLI::App* sub = application.app->get_subcommand(std::string(command->name));
    page += CommandSection(*command, Describe(*sub));
  }
  page +=
      ".SH EXIT STATUS\n"
      ".TP\n0\ndone\n.TP\n1\na gate failed\n.TP\n2\nusage\n.TP\n3\nbad input\n"
      ".TP\n4\ninternal fault\n"
      ".SH ENVIRONMENT\n"
      ".TP\n\\fBASSAY_TARGET\\fR\ninstruction set to use, as \\fB\\-\\-target\\fR\n"
      ".TP\n\\fBNO_COLOR\\fR\nno colours when set and not empty\n";
  Print(page);
  return kExitDone;
}

std::function<int()> SetUpMan(CLI::App& /*app*/, const CommonOptions& /*common*/) {
  return ManCommand;
}

}  // namespace

const Command kManCommand = {"man", "Print the manual page", "assay man | man -l -",
                             Results::kOther, SetUpMan};

}  // namespace assay::cli

#include <fmt/ranges.h>

#include <memory>

#include "assay/base/error.h"
#include "assay/cli/app.h"
#include "assay/cli/commands.h"
#include "assay/cli/describe.h"
#include "assay/formats/catalogue.h"

namespace assay::cli {
namespace {

// Words an option's value can be; none: files.
std::vector<std::string> ValuesOf(const OptionFacts& option) {
  std::vector<std::string> values;
  if (option.value == "FORMAT" || option.value == "FORMATS") {
    for (const FormatFamily* family : FormatCatalogue()) {
      for (std::string& name : family->names()) values.push_back(std::move(name));
    }
  } else if (option.value.find('|') != std::string::npos) {
    size_t first = 0;
    for (size_t bar; (bar = option.value.find('|', first)) != std::string::npos; first = bar + 1) {
      values.push_back(option.value.substr(first, bar - first));
    }
    values.push_back(option.value.substr(first));
  }
  return values;
}

std::vector<CommandFacts> AllCommands() {
  Application application;
  BuildApplication(application);
  std::vector<CommandFacts> commands;
  for (const Command* command : Commands()) {
    commands.push_back(Describe(*application.app->get_subcommand(std::string(command->name))));
  }
  return commands;
}

std::string Bash(const std::vector<CommandFacts>& commands) {
  std::string names;
  std::string cases;
  std::string value_cases;
  for (const CommandFacts& command : commands) {
    names += " " + command.name;
    std::string flags;
    for (const OptionFacts& option : command.options) {
      for (const std::string& flag : option.flags) flags += " " + flag;
      const std::vector<std::string> values = ValuesOf(option);
      if (values.empty() || option.flags.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& flag : option.flags) patterns.push_back(command.name + ":" + flag);
      value_cases += fmt::format("    {}) words=\"{}\" ;;\n", fmt::join(patterns, "|"),
                                 fmt::join(values, " "));
    }
    cases +=
        fmt::format("    {}) words=\"{}\" ;;\n", command.name, flags.substr(flags.empty() ? 0 : 1));
  }
  return "# bash completion of assay; made by: assay completion bash\n"
         "_assay() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
         "  local command=${COMP_WORDS[1]}\n"
         "  COMPREPLY=()\n"
         "  if ((COMP_CWORD == 1)); then\n"
         "    COMPREPLY=($(compgen -W \"" +
         names.substr(1) +
         " --help --version\" -- \"$word\"))\n"
         "    return\n"
         "  fi\n"
         "  case \"$command:$before\" in\n" +
         value_cases +
         "  esac\n"
         "  if [[ -n $words ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "    return\n"
         "  fi\n"
         "  [[ $word == -* ]] || return\n"
         "  case \"$command\" in\n" +
         cases +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "}\n"
         "complete -o default -F _assay assay\n";
}

// For zsh: inside '…', and inside […].
std::string ZshText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == '[' || c == ']' || c == ':' || c == '\\') {
      out.append(1, '\\').append(1, c);
    } else {
      out += c;
    }
  }
  return out;
}

std::string Zsh(const std::vector<CommandFacts>& commands) {
  std::string names;
  std::string cases;
  for (const CommandFacts& command : commands) {
    names += fmt::format("    '{}:{}'\n", command.name, ZshText(command.description));
    cases += fmt::format("    {})\n      _arguments", command.name);
    for (const OptionFacts& option : command.options) {
      const std::vector<std::string> values = ValuesOf(option);
      const std::string action =
          values.empty() ? "_files" : fmt::format("({})", fmt::join(values, " "));
      for (const std::string& flag : option.flags) {
        cases += fmt::format(" \\\n        '{}[{}]", flag, ZshText(option.description));
        if (!option.value.empty()) cases += fmt::format(":{}:{}", ZshText(option.value), action);
        cases += "'";
      }
    }
    cases += " \\\n        '*:file:_files'\n      ;;\n";
  }
  return "#compdef assay\n# zsh completion of assay; made by: assay completion zsh\n"
         "_assay() {\n"
         "  local -a commands=(\n" +
         names +
         "  )\n"
         "  if ((CURRENT == 2)); then\n"
         "    _describe command commands\n"
         "    return\n"
         "  fi\n"
         "  local command=$words[2]\n"
         "  shift words\n"
         "  ((CURRENT--))\n"
         "  case $command in\n" +
         cases +
         "  esac\n"
         "}\n"
         "_assay \"$@\"\n";
}

std::string FishText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string Fish(const std::vector<CommandFacts>& commands) {
  std::string out = "# fish completion of assay; made by: assay completion fish\n";
  for (const CommandFacts& command : commands) {
    out += fmt::format("complete -c assay -n __fish_use_subcommand -f -a {} -d '{}'\n",
                       command.name, FishText(command.description));
    for (const OptionFacts& option : command.options) {
      if (option.flags.empty()) continue;
      out += fmt::format("complete -c assay -n '__fish_seen_subcommand_from {}'", command.name);
      for (const std::string& flag : option.flags) {
        out += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
      }
      const std::vector<std::string> values = ValuesOf(option);
      if (!option.value.empty()) out += " -r";
      if (!values.empty()) out += fmt::format(" -f -a '{}'", fmt::join(values, " "));
      out += fmt::format(" -d '{}'\n", FishText(option.description));
    }
  }
  return out;
}

int CompletionCommand(const std::string& shell) {
  const std::vector<CommandFacts> commands = AllCommands();
  if (shell == "bash") Print(Bash(commands));
  if (shell == "zsh") Print(Zsh(commands));
  if (shell == "fish") Print(Fish(commands));
  return kExitDone;
}

std::function<int()> SetUpCompletion(CLI::App& app, const CommonOptions& /*common*/) {
  auto shell = std::make_shared<std::string>();
  app.add_option("SHELL", *shell, "bash, zsh or fish")
      ->check(OneOf({"bash", "zsh", "fish"}))
      ->type_name("bash|zsh|fish")
      ->required();
  return [shell] { return CompletionCommand(*shell); };
}

}  // namespace

const Command kCompletionCommand = {
    "completion", "Print a completion script for a shell",
    "assay completion bash > ~/.local/share/bash-completion/completions/assay", Results::kOther,
    SetUpCompletion};

}  // namespace assay::cli

#include <memory>

#include "assay/base/error.h"
#include "assay/base/glob.h"
#include "assay/base/text.h"
#include "assay/cli/commands.h"
#include "assay/report/inspect_report.h"

namespace assay::cli {
namespace {

struct InspectFlags {
  std::string path;
  std::vector<std::string> tensors;
  bool list = false;
};

int InspectCommand(const InspectFlags& options, const CommonOptions& common) {
  InspectReport report = InspectModel(options.path);
  if (!options.tensors.empty()) {
    std::erase_if(report.tensors, [&](const InspectedTensor& tensor) {
      return !GlobMatchAny(options.tensors, tensor.name);
    });
    // A pattern that fits nothing is more likely a slip than a question.
    if (report.tensors.empty()) {
      ThrowUsage("{}: no tensor fits {}", options.path, Quoted(options.tensors.front()));
    }
  }
  if (common.json) {
    Print(Serialise(InspectJson(report, common.command_line)));
  } else {
    Print(InspectText(report, options.list || !options.tensors.empty(), StdoutStyle()));
  }
  return kExitDone;
}

std::function<int()> SetUpInspect(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<InspectFlags>();
  app.add_option("PATH", options->path, "Model: a file or a folder")->type_name("")->required();
  app.add_flag("-l,--list", options->list, "List every tensor");
  app.add_option("--tensor", options->tensors, "List tensors whose name fits; may be repeated")
      ->type_name("GLOB");
  return [options, &common] { return InspectCommand(*options, common); };
}

}  // namespace

const Command kInspectCommand = {"inspect", "Say what is in a tensor file or a model folder",
                                 "assay inspect data/minilm-slice --list", Results::kText,
                                 SetUpInspect};

}  // namespace assay::cli

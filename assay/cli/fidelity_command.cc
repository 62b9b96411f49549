#include <memory>

#include "assay/cli/commands.h"
#include "assay/cli/progress_line.h"
#include "assay/report/fidelity_report.h"

namespace assay::cli {
namespace {

struct FidelityFlags {
  FidelityOptions study;
  std::string strategy{NameOf(FidelityOptions().strategy)};
  bool per_tensor = false;
};

int FidelityCommand(FidelityFlags& options, const CommonOptions& common) {
  FidelityOptions& study = options.study;
  study.strategy = ParseStrategy(options.strategy);
  CheckReportPath(common, std::vector<std::string>{study.model, study.against, study.activations});
  FidelityReport report;
  {
    ProgressLine line("fidelity", common);
    study.progress = line.Sink();
    report = RunFidelity(study);
  }
  const std::string text = FidelityText(report, options.per_tensor, StdoutStyle());
  Emit(common, FidelityJson(report, common.command_line, DescribeMachine()), text);
  return kExitDone;
}

std::function<int()> SetUpFidelity(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<FidelityFlags>();
  FidelityOptions& study = options->study;
  app.add_option("PATH", study.model, "Model: a file or a folder")->type_name("")->required();
  app.add_option("-f,--format", study.formats, "Formats to try, separated by commas")
      ->delimiter(',')
      ->type_name("FORMATS");
  app.add_option("--against", study.against, "A quantised copy of the model to judge")
      ->type_name("PATH");
  app.add_option("--tensor", study.tensors, "Only weights whose name fits; may be repeated")
      ->type_name("GLOB");
  app.add_option("--rows", study.rows, "Compare N evenly spaced rows of each matrix; default: all")
      ->check(InRange(1, int64_t{1} << 40))
      ->type_name("N");
  app.add_option("--tokens", study.tokens, "Rows of synthetic activations; default 64, 0: none")
      ->check(InRange(0, 65536))
      ->type_name("N");
  app.add_option("--seed", study.seed, "Seed of the synthetic activations; default 42")
      ->check(Unsigned64())
      ->type_name("N");
  app.add_option("--activations", study.activations, "Real activations: safetensors or npy")
      ->type_name("FILE");
  app.add_option("--repeats", study.repeats, "Most samples of a timing; default 5, 0: no timing")
      ->check(InRange(0, 1000))
      ->type_name("N");
  app.add_option("--strategy", options->strategy, "How the timed product is computed")
      ->check(OneOf({"reference", "dequant_gemm", "fused", "fused-a8"}))
      ->type_name("reference|dequant_gemm|fused|fused-a8");
  app.add_flag("--per-tensor", options->per_tensor, "Add a row for every matrix");
  return [options, &common] { return FidelityCommand(*options, common); };
}

}  // namespace

const Command kFidelityCommand = {
    "fidelity", "Measure what formats do to a model's weights, and to products with them",
    "assay fidelity data/minilm-slice --format affine4g64,affine6g64 -o report.json",
    Results::kReport, SetUpFidelity};

}  // namespace assay::cli

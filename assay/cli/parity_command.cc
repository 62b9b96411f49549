#include <array>
#include <memory>

#include "assay/base/error.h"
#include "assay/cli/commands.h"
#include "assay/cli/progress_line.h"
#include "assay/report/parity_report.h"
#include "assay/studies/parity.h"

namespace assay::cli {
namespace {

struct ParityFlags {
  ParityOptions study;
  std::string strategy = "fused";
  double gate = 0.01;
  bool no_gate = false;
};

int ParityCommand(ParityFlags& options, const CommonOptions& common) {
  CheckReportPath(common, std::array{options.study.model});
  options.study.strategy = ParseStrategy(options.strategy);
  if (!(options.gate >= 0 && options.gate < 1)) {
    ThrowUsage("--max-rmse-over-rms {}: expected at least 0 and below 1, which zeros would pass",
               options.gate);
  }
  options.study.max_rmse_over_rhs_rms =
      options.no_gate ? std::nullopt : std::optional(options.gate);
  ParityReport report;
  {
    ProgressLine line("parity", common);
    options.study.progress = line.Sink();
    report = RunParity(options.study);
  }
  for (const std::string& note : report.notes) Note(common, note);
  ReportHead head;
  head.command = common.command_line;
  head.machine = DescribeMachine();
  Emit(common, ToJson(report, std::move(head)), ToText(report, StdoutStyle()));
  return report.passed ? kExitDone : kExitGateFailed;
}

std::function<int()> SetUpParity(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<ParityFlags>();
  app.add_option("MODEL", options->study.model, "Model folder or file")->required();
  app.add_option("--tensor", options->study.tensor, "The weight, with or without its .weight")
      ->required()
      ->type_name("BASE");
  app.add_option("--matrix", options->study.matrix, "Which matrix of a stack (default 0)")
      ->type_name("I");
  app.add_option("--seed", options->study.seed, "Of the input (default 1592594996)")
      ->type_name("N");
  app.add_option("--strategy", options->strategy,
                 "The packed side: fused (default), fused-a8, dequant_gemm, or reference: row by "
                 "row in the order of the GPU kernel")
      ->check(OneOf({"fused", "fused-a8", "dequant_gemm", "reference"}))
      ->type_name("NAME");
  app.add_option("--max-rmse-over-rms", options->gate,
                 "Gate: rmse over the rms of the dense side (default 0.01)")
      ->type_name("X");
  app.add_flag("--no-gate", options->no_gate, "Report only");
  return [options, &common] { return ParityCommand(*options, common); };
}

}  // namespace

const Command kParityCommand = {
    "parity", "Hold a packed product against dequantise and dense product",
    "assay parity model-tq4/ --tensor model.layers.3.mlp.down_proj", Results::kReport, SetUpParity};

}  // namespace assay::cli

#include <array>
#include <memory>

#include "assay/cli/commands.h"
#include "assay/cli/progress_line.h"
#include "assay/report/compare_report.h"
#include "assay/studies/compare.h"

namespace assay::cli {
namespace {

struct CompareFlags {
  CompareOptions study;
  std::vector<std::string> renames;
  bool per_tensor = false;
};

int CompareCommand(CompareFlags& options, const CommonOptions& common) {
  const std::array inputs = {options.study.a, options.study.b};
  CheckReportPath(common, inputs);
  for (const std::string& rename : options.renames) {
    options.study.renames.push_back(CompareRename::Parse(rename));
  }
  CompareReport report;
  {
    ProgressLine line("compare", common);
    options.study.progress = line.Sink();
    report = RunCompare(options.study);
  }
  for (const std::string& note : report.notes) Note(common, note);
  ReportHead head;
  head.command = common.command_line;
  head.machine = DescribeMachine();
  Emit(common, ToJson(report, std::move(head)), ToText(report, options.per_tensor, StdoutStyle()));
  return report.num_failed == 0 ? kExitDone : kExitGateFailed;
}

std::function<int()> SetUpCompare(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<CompareFlags>();
  CompareOptions& study = options->study;
  app.add_option("A", study.a, "File or model folder that is judged")->required();
  app.add_option("B", study.b, "The reference")->required();
  app.add_option("--tensor", study.tensors, "Only these (glob; repeatable)")->type_name("GLOB");
  app.add_option("--rename", options->renames,
                 "Look for names of A that fit PATTERN under another name in B; wildcards carry "
                 "over (repeatable)")
      ->type_name("PATTERN=NAME");
  app.add_option("--max-relative-rmse", study.gates.max_relative_rmse,
                 "Gate: √(Σd² / Σb²) at most this; below 1")
      ->type_name("X");
  app.add_option("--max-abs", study.gates.max_abs, "Gate: largest |a − b|")->type_name("X");
  app.add_option("--max-ulp", study.gates.max_ulp,
                 "Gate: largest distance in steps of the stored type")
      ->type_name("N");
  app.add_option("--min-cosine", study.gates.min_cosine, "Gate: cosine at least this; above 0")
      ->type_name("X");
  app.add_flag("--equal", study.gates.equal, "Gate: every bit the same");
  app.add_flag("--allow-missing", study.allow_missing,
               "Tensors that only one side has do not fail");
  app.add_flag("--allow-dtype", study.allow_dtype, "Compare different element types by value");
  app.add_flag("--allow-shape", study.allow_shape,
               "Tensors of different shapes do not fail; they are not compared");
  app.add_flag("--stored", study.stored,
               "Compare the planes of encoded weights as stored, instead of decoding them");
  app.add_option("--worst-rows", study.num_worst_rows, "Rows named for each tensor (default 3)")
      ->check(InRange(0, 1000))
      ->type_name("N");
  app.add_flag("--per-tensor", options->per_tensor, "One line for every tensor");
  return [options, &common] { return CompareCommand(*options, common); };
}

}  // namespace

const Command kCompareCommand = {"compare", "Compare two tensor files or models, with gates",
                                 "assay compare mine/ theirs.safetensors --max-relative-rmse 1e-3",
                                 Results::kReport, SetUpCompare};

}  // namespace assay::cli

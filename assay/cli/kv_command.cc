#include <algorithm>
#include <memory>

#include "assay/cli/commands.h"
#include "assay/cli/progress_line.h"
#include "assay/report/kv_report.h"

namespace assay::cli {
namespace {

struct KvFlags {
  KvOptions study;
  std::vector<std::string> map;
  std::vector<std::string> roundings;
  bool per_capture = false;
};

int KvCommand(KvFlags& options, const CommonOptions& common) {
  KvOptions& study = options.study;
  for (const std::string& text : options.map) study.map.push_back(KvMapping::Parse(text));
  if (!options.roundings.empty()) {
    study.roundings.clear();
    for (const KvRounding rounding : {KvRounding::kNone, KvRounding::kBF16}) {
      if (std::ranges::find(options.roundings, NameOf(rounding)) != options.roundings.end()) {
        study.roundings.push_back(rounding);
      }
    }
  }
  CheckReportPath(common, study.captures);
  KvReport report;
  {
    ProgressLine line("kv", common);
    study.progress = line.Sink();
    report = RunKv(study);
  }
  const std::string text = KvText(report, options.per_capture, StdoutStyle());
  Emit(common, KvJson(report, common.command_line, DescribeMachine()), text);
  return kExitDone;
}

std::function<int()> SetUpKv(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<KvFlags>();
  KvOptions& study = options->study;
  app.add_option("CAPTURE", study.captures,
                 "Captured keys, values or queries: safetensors, npy, or folders of them; last "
                 "axis = head dimension")
      ->type_name("");
  app.add_option("-m,--map", options->map,
                 "Formats for captures whose name fits, GLOB=FORMAT[,FORMAT…]; may be repeated; "
                 "default: by their names")
      ->allow_extra_args(false)
      ->type_name("MAP");
  app.add_option("--input-rounding", options->roundings,
                 "Captures as they are, or rounded to bf16 first; default: none,bf16")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(OneOf({"none", "bf16"}))
      ->type_name("none,bf16");
  app.add_option("--synthetic", study.synthetic_tokens,
                 "Add N(0, 1) captures of N tokens: window, main, index")
      ->check(InRange(1, 1 << 20))
      ->type_name("N");
  app.add_option("--seed", study.seed, "Seed of the synthetic captures; default 42")
      ->check(Unsigned64())
      ->type_name("N");
  app.add_flag("--per-capture", options->per_capture,
               "Formats side by side for every capture, however many");
  return [options, &common] { return KvCommand(*options, common); };
}

}  // namespace

const Command kKvCommand = {
    "kv", "Measure what cache formats do to captured keys and values",
    "assay kv data/kv-like-captures.safetensors --map 'kv-*=ds41-window-fp8,ds41-main-fp4,nvfp4'",
    Results::kReport, SetUpKv};

}  // namespace assay::cli

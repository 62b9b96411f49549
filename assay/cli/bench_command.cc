#include <memory>

#include "assay/base/error.h"
#include "assay/cli/commands.h"
#include "assay/cli/progress_line.h"
#include "assay/report/bench_report.h"

namespace assay::cli {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

struct BenchFlags {
  BenchOptions study;
  std::vector<std::string> shapes;
  std::string shape_file;
  std::string baseline;
  double max_slowdown = 0;
  double memory_gb = 0;
  int64_t cold_mib = 0;
  bool roofline = false;
};

/// Variants of the baseline that got slower than allowed, beyond noise.
bool Passed(const BenchComparison& comparison, double max_slowdown) {
  return std::ranges::none_of(comparison.changes, [&](const BenchChange& change) {
    return change.slower() && change.time.ratio > max_slowdown;
  });
}

int BenchCommand(BenchFlags& options, const CommonOptions& common) {
  BenchOptions& study = options.study;
  for (const std::string& text : options.shapes) {
    study.shapes.push_back(ParseBenchShape(text, study.tokens));
  }
  if (!options.shape_file.empty()) {
    const auto shapes = ReadBenchShapes(options.shape_file, study.tokens);
    study.shapes.insert(study.shapes.end(), shapes.begin(), shapes.end());
  }
  if (study.variants.empty()) study.variants = {"bf16", "packed12", "affine8g64", "affine4g64"};
  study.memory_bytes = static_cast<int64_t>(options.memory_gb * 1e9);
  study.cold_bytes = options.cold_mib * kMiB;
  if (options.max_slowdown > 0 && options.baseline.empty()) {
    ThrowUsage("--max-slowdown: a --baseline is needed to compare with");
  }
  CheckReportPath(common,
                  std::vector<std::string>{study.model, options.shape_file, options.baseline});
  std::optional<BenchBaseline> baseline;
  if (!options.baseline.empty()) baseline = ReadBenchBaseline(options.baseline);
  BenchReport report;
  {
    ProgressLine line("bench", common);
    study.progress = line.Sink();
    report = RunBench(study);
  }
  const Machine machine = DescribeMachine();
  std::optional<BenchComparison> comparison;
  if (baseline) comparison = CompareWithBaseline(report, MachineLine(machine), *baseline);
  const BenchComparison* changes = comparison ? &*comparison : nullptr;
  Emit(common, BenchJson(report, changes, common.command_line, machine),
       BenchText(report, changes, machine, options.roofline, StdoutStyle()));
  if (options.max_slowdown > 0 && !Passed(*comparison, options.max_slowdown)) {
    Note(common, fmt::format("slower than {} times the baseline", options.max_slowdown));
    return kExitGateFailed;
  }
  return kExitDone;
}

std::function<int()> SetUpBench(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<BenchFlags>();
  BenchOptions& study = options->study;
  app.add_option("PATH", study.model, "Model whose weights are timed; or give --shape")
      ->type_name("");
  app.add_option("--shape", options->shapes,
                 "Product of x [M, K] and W [N, K], synthetic; may be repeated")
      ->allow_extra_args(false)
      ->type_name("M,K,N");
  app.add_option("--shapes", options->shape_file,
                 "File of lines NAME M,K,N, such as those of bench/shapes")
      ->type_name("FILE");
  app.add_option("-v,--variant", study.variants,
                 "FORMAT[:STRATEGY], separated by commas; strategy: fused (default), fused-a8, "
                 "dequant_gemm, reference; format \"stored\": as the model holds it. Default: "
                 "bf16,packed12,affine8g64,affine4g64")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("VARIANTS");
  app.add_option("--tensor", study.tensors, "Only weights whose name fits; may be repeated")
      ->allow_extra_args(false)
      ->type_name("GLOB");
  app.add_option("--tokens", study.tokens, "M of a model's weights, and of * in shapes; default 1")
      ->check(InRange(1, 1 << 20))
      ->type_name("N");
  app.add_option("--repeats", study.repeats, "Samples of each variant; default 15")
      ->check(InRange(1, 100000))
      ->type_name("N");
  app.add_option("--warmup", study.warmup, "Rounds before them; default 2")
      ->check(InRange(0, 1000))
      ->type_name("N");
  app.add_flag("--hot", study.hot, "Leave weights in the caches; default: each comes from memory");
  app.add_flag("--cpu-time", study.cpu_time,
               "With --threads 1: CPU time instead of wall time, for a machine that is busy");
  app.add_option("--cold-mib", options->cold_mib,
                 "Read this much between two uses of a weight; default: twice the last cache")
      ->check(InRange(1, 1 << 20))
      ->type_name("MIB");
  app.add_option("--memory", options->memory_gb,
                 "Most memory to use, in GB; default: three quarters of what is free")
      ->check(CLI::Range(1e-3, 1e6).description(""))
      ->type_name("GB");
  app.add_option("--seed", study.seed, "Seed of weights and activations; default 42")
      ->check(Unsigned64())
      ->type_name("N");
  app.add_option("--baseline", options->baseline, "Say what changed since this earlier report")
      ->type_name("FILE");
  app.add_option("--max-slowdown", options->max_slowdown,
                 "Gate: no variant takes more than X times the baseline's time, beyond noise")
      ->check(CLI::Range(1.0, 1e6).description(""))
      ->type_name("X");
  app.add_flag("--roofline", options->roofline, "Draw speeds under the roof");
  return [options, &common] { return BenchCommand(*options, common); };
}

}  // namespace

const Command kBenchCommand = {
    "bench", "Time products with encoded weights against the machine's own limits",
    "assay bench --shape 1,4096,16384 --variant bf16,affine4g64,affine4g64:dequant_gemm,packed12",
    Results::kReport, SetUpBench};

}  // namespace assay::cli

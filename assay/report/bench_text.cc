#include <algorithm>
#include <cmath>

#include "assay/report/bench_report.h"
#include "assay/report/number.h"
#include "assay/report/skipped_text.h"

namespace assay {
namespace {

constexpr int kBarWidth = 13;

std::string Speed(double value) { return Fixed(value, value < 100 ? 1 : 0); }

std::string HeadLine(const BenchReport& report, const BenchOperator& op, const Machine& machine) {
  const BenchShape& shape = op.shape;
  std::string line;
  // The name of a bare shape is its own sizes again.
  if (shape.name != fmt::format("{}x{}", shape.k, shape.n)) line = Printable(shape.name) + " · ";
  line += fmt::format("M={} K={} N={} · {} {} · {} · {}{} · {} rounds", shape.m, shape.k, shape.n,
                      machine.threads, machine.threads == 1 ? "thread" : "threads", machine.isa,
                      report.options.cpu_time ? "CPU time, " : "",
                      report.options.hot ? "hot"
                      : op.cold_enough   ? "cold"
                                         : "partly cold",
                      op.rounds);
  line += fmt::format(" · read {} GB/s", Speed(op.roof.read_gb_per_s));
  if (std::ranges::any_of(report.trials, [&](const BenchTrial& trial) {
        return &report.operators[trial.op] == &op && !trial.speed.bound_by_read;
      })) {
    line += fmt::format(" · multiply {} GFLOP/s, dense {}", Speed(op.roof.peak_gflops),
                        Speed(op.roof.gemm_gflops));
  }
  return line + "\n\n";
}

bool AllPreempted(const BenchTrial& trial) {
  const auto count = static_cast<int64_t>(trial.samples.samples().size());
  return count > 0 && trial.samples.num_preempted() == count;
}

std::string RoofCell(const BenchTrial& trial) {
  if (trial.speed.above_roof) return "above the roof";
  std::string bar = Bar(trial.speed.fraction_of_roof, kBarWidth);
  for (size_t width = DisplayWidth(bar); width < kBarWidth; ++width) bar += ' ';
  return fmt::format("{} {:>3.0f}%", bar, 100 * trial.speed.fraction_of_roof);
}

std::string ErrorCell(const BenchTrial& trial) {
  if (!trial.error.finite) return "not finite";
  if (trial.error.max_abs == 0) return trial.bits_identical.value_or(false) ? "0, same bits" : "0";
  return Significant(trial.error.relative_rmse, 2);
}

std::string OperatorTable(const BenchReport& report, size_t index, const TableStyle& style) {
  double bf16_ms = 0;
  size_t num_read = 0;
  size_t num_trials = 0;
  for (const BenchTrial& trial : report.trials) {
    if (trial.op != index) continue;
    if (bf16_ms == 0 && trial.format == "bf16") bf16_ms = trial.samples.Median();
    num_read += trial.speed.bound_by_read ? 1 : 0;
    ++num_trials;
  }
  const bool by_read = 2 * num_read >= num_trials;
  Table table({{"variant", Align::kLeft, Shorten::kLeft},
               {"median"},
               {"min…max ms"},
               {by_read ? "GB/s" : "GFLOP/s"},
               {"of roof", Align::kLeft},
               {"vs bf16"},
               {"error", Align::kLeft}});
  for (const BenchTrial& trial : report.trials) {
    if (trial.op != index) continue;
    const double median = trial.samples.Median();
    const double speed = by_read ? trial.speed.gb_per_s : trial.speed.gflops;
    const bool is_fact = !trial.speed.above_roof && median > 0;
    table.AddRow({{trial.variant.spec, Emphasis::kBold},
                  HumanMilliseconds(median) + (AllPreempted(trial) ? "*" : ""),
                  fmt::format("{}…{}", Significant(trial.samples.Min(), 3),
                              Significant(trial.samples.Max(), 3)),
                  is_fact ? Speed(speed) : "–",
                  {RoofCell(trial), trial.speed.above_roof ? Emphasis::kBad : Emphasis::kNone},
                  bf16_ms > 0 && median > 0 ? Fixed(bf16_ms / median, 2) + "×" : "–",
                  ErrorCell(trial)});
  }
  return table.Render(style);
}

std::string Remarks(const BenchReport& report) {
  int64_t samples = 0;
  int64_t preempted = 0;
  bool any_above = false;
  bool any_disturbed = false;
  for (const BenchTrial& trial : report.trials) {
    samples += static_cast<int64_t>(trial.samples.samples().size());
    preempted += trial.samples.num_preempted();
    any_above = any_above || trial.speed.above_roof;
    any_disturbed = any_disturbed || AllPreempted(trial);
  }
  std::string text;
  if (any_above) {
    text +=
        "above the roof: faster than the measured roof allows; the probe was disturbed, or not all "
        "of the weight was read. Such a speed is no fact.\n";
  }
  if (preempted > 0) {
    text += fmt::format("{} of {} samples were preempted and left out{}.\n", preempted, samples,
                        any_disturbed ? "; * every sample was, so all of them count" : "");
  }
  for (const BenchOperator& op : report.operators) {
    if (op.cold_enough) continue;
    text += fmt::format("{}: memory allowed only {} between two uses of a weight.\n",
                        Printable(op.shape.name), HumanBytes(op.cold_bytes));
  }
  SkippedText skipped;
  for (const BenchSkipped& skip : report.skipped) skipped.Add(skip.variant, skip.reason, skip.op);
  text += skipped.Render();
  for (const std::string& note : report.notes) text += "note: " + Printable(note) + "\n";
  return text;
}

std::string ComparisonText(const BenchReport& report, const BenchComparison& comparison,
                           const TableStyle& style) {
  std::string text = fmt::format("against {}\n\n", Printable(comparison.path));
  Table table({{"operator", Align::kLeft, Shorten::kLeft},
               {"variant", Align::kLeft, Shorten::kLeft},
               {"time now / then"},
               {"95 % interval"},
               {"read roof"},
               {"", Align::kLeft}});
  for (const BenchChange& change : comparison.changes) {
    const BenchTrial& trial = report.trials[change.trial];
    Table::Cell verdict = "within noise";
    if (change.slower()) verdict = {"slower", Emphasis::kBad};
    if (change.faster()) verdict = {"faster", Emphasis::kGood};
    if (change.other_bits) verdict.text += ", other bits";
    table.AddRow({report.operators[trial.op].shape.name,
                  {trial.variant.spec, Emphasis::kBold},
                  Fixed(change.time.ratio, 3),
                  fmt::format("{}…{}", Fixed(change.time.low, 3), Fixed(change.time.high, 3)),
                  change.read_ratio > 0 ? Fixed(change.read_ratio, 2) + "×" : "–",
                  verdict});
  }
  text += table.Render(style);
  if (comparison.machine_then != comparison.machine_now) {
    text += fmt::format("\nanother machine or setting: then {}, now {}\n",
                        Printable(comparison.machine_then), Printable(comparison.machine_now));
  }
  if (comparison.only_now > 0 || comparison.only_then > 0) {
    text += fmt::format("\nnot compared: {} of this run, {} of the baseline\n", comparison.only_now,
                        comparison.only_then);
  }
  return text + "\n";
}

}  // namespace

std::string Bar(double fraction, int width) {
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double eighths = std::clamp(fraction, 0.0, 1.0) * width * 8;
  const int count = std::isfinite(eighths) ? static_cast<int>(std::lround(eighths)) : 0;
  std::string bar;
  for (int i = 0; i < count / 8; ++i) bar += "█";
  return bar + kEighths[count % 8];
}

std::string BenchText(const BenchReport& report, const BenchComparison* comparison,
                      const Machine& machine, bool roofline, const TableStyle& style) {
  std::string text;
  for (size_t i = 0; i < report.operators.size(); ++i) {
    const bool any =
        std::ranges::any_of(report.trials, [&](const BenchTrial& trial) { return trial.op == i; });
    if (!any) continue;
    text += HeadLine(report, report.operators[i], machine) + OperatorTable(report, i, style) + "\n";
    if (roofline) text += RooflineText(report, i) + "\n";
  }
  if (comparison != nullptr) text += ComparisonText(report, *comparison, style);
  text +=
      "of roof = least time that reading the planes and x, or multiplying, takes here / median.\n"
      "error = relative RMSE of y against the bf16 product, both rounded to bf16.\n";
  return text + Remarks(report);
}

}  // namespace assay

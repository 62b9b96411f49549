#include "assay/studies/bench_baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "assay/base/error.h"

namespace assay {
namespace {

std::string FullName(const std::string& variant) {
  for (const Strategy strategy :
       {Strategy::kReference, Strategy::kDequantGemm, Strategy::kFused, Strategy::kFusedA8}) {
    if (variant.ends_with(fmt::format(":{}", NameOf(strategy)))) return variant;
  }
  return fmt::format("{}:{}", variant, NameOf(Strategy::kFused));
}

std::string KeyOf(const std::string& op, int64_t m, int64_t k, int64_t n,
                  const std::string& variant) {
  return fmt::format("{}\n{},{},{}\n{}", op, m, k, n, FullName(variant));
}

bool Positive(const std::vector<double>& samples) {
  return !samples.empty() && *std::ranges::min_element(samples) > 0;
}

}  // namespace

std::vector<double> KeptSamples(const TimingSamples& samples) {
  const bool all = samples.num_preempted() == static_cast<int64_t>(samples.samples().size());
  std::vector<double> kept;
  for (const TimingSample& sample : samples.samples()) {
    if (all || !sample.preempted) kept.push_back(sample.ms);
  }
  return kept;
}

BenchComparison CompareWithBaseline(const BenchReport& report, std::string machine_now,
                                    const BenchBaseline& baseline) {
  std::map<std::string, const BenchBaseline::Trial*> then;
  for (const BenchBaseline::Trial& trial : baseline.trials) {
    then[KeyOf(trial.op, trial.m, trial.k, trial.n, trial.variant)] = &trial;
  }
  BenchComparison comparison;
  comparison.path = baseline.path;
  comparison.machine_then = baseline.machine;
  comparison.machine_now = std::move(machine_now);
  std::set<const BenchBaseline::Trial*> used;
  for (size_t i = 0; i < report.trials.size(); ++i) {
    const BenchTrial& now = report.trials[i];
    const BenchOperator& op = report.operators[now.op];
    const auto found =
        then.find(KeyOf(op.shape.name, op.shape.m, op.shape.k, op.shape.n, now.variant.spec));
    const std::vector<double> samples = KeptSamples(now.samples);
    if (found == then.end() || !Positive(samples) || !Positive(found->second->samples_ms)) {
      ++comparison.only_now;
      continue;
    }
    const BenchBaseline::Trial& before = *found->second;
    used.insert(&before);
    BenchChange change;
    change.trial = i;
    change.time = CompareMedians(samples, before.samples_ms);
    if (before.read_gb_per_s > 0) change.read_ratio = op.roof.read_gb_per_s / before.read_gb_per_s;
    change.other_bits =
        !before.checksum.empty() && before.checksum != fmt::format("{:016x}", now.checksum);
    comparison.changes.push_back(change);
  }
  comparison.only_then = static_cast<int64_t>(baseline.trials.size() - used.size());
  if (comparison.changes.empty()) {
    ThrowInput("{}: none of its {} trials has an operator, shape and variant of this run",
               baseline.path, baseline.trials.size());
  }
  return comparison;
}

}  // namespace assay

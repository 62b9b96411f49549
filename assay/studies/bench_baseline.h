#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/measure/bootstrap.h"
#include "assay/studies/bench.h"

namespace assay {

/// An earlier report, as far as a later one is compared with it.
struct BenchBaseline {
  struct Trial {
    std::string op;
    std::string variant;
    int64_t m = 0;
    int64_t k = 0;
    int64_t n = 0;
    std::vector<double> samples_ms;  ///< preempted ones left out, unless all were
    double read_gb_per_s = 0;        ///< of its run; 0: not stated
    std::string checksum;            ///< empty: not stated
  };
  std::string path;
  std::string machine;  ///< cpu, instruction set, threads, in one line
  std::vector<Trial> trials;
};

/// A trial of both reports.
struct BenchChange {
  size_t trial = 0;         ///< index into BenchReport::trials
  MedianRatio time;         ///< of now over then
  double read_ratio = 0;    ///< of the read roofs, now over then; 0: not stated
  bool other_bits = false;  ///< the checksum of y is another one

  /// Beyond noise: the interval does not hold 1, and the change is at least this large.
  static constexpr double kLeast = 0.01;
  bool slower() const noexcept { return time.low > 1 && time.ratio >= 1 + kLeast; }
  bool faster() const noexcept { return time.high < 1 && time.ratio <= 1 - kLeast; }
};

struct BenchComparison {
  std::string path;
  std::string machine_then;
  std::string machine_now;
  std::vector<BenchChange> changes;  ///< in the order of the trials
  int64_t only_now = 0;              ///< trials that the baseline lacks
  int64_t only_then = 0;
};

/// Trials pair by operator, shape, and variant ("bf16" and "bf16:fused" are one). The same inputs
/// give the same intervals. Errors: input when no trial pairs.
BenchComparison CompareWithBaseline(const BenchReport& report, std::string machine_now,
                                    const BenchBaseline& baseline);

/// Samples that count: those that were not preempted, or all of them when every one was.
std::vector<double> KeptSamples(const TimingSamples& samples);

}  // namespace assay

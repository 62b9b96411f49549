#pragma once

#include <string>

#include "assay/report/report.h"
#include "assay/report/table.h"
#include "assay/studies/bench_baseline.h"

namespace assay {

/// `assay.bench/1`; docs/reports.md explains every key. `comparison` may be null.
Json BenchJson(const BenchReport& report, const BenchComparison* comparison,
               const std::string& command, const Machine& machine);

/// For each operator a table with a bar for each variant, and a roofline when `roofline`; then what
/// changed against the baseline.
std::string BenchText(const BenchReport& report, const BenchComparison* comparison,
                      const Machine& machine, bool roofline, const TableStyle& style);

/// An earlier report, of Assay or with the same keys. Errors: input, naming file and trial.
BenchBaseline ReadBenchBaseline(const std::string& path);

/// "Intel(R) Xeon(R) Processor, avx512_dl, 2 threads".
std::string MachineLine(const Machine& machine);

/// A bar in eighths of a character: Bar(0.99, 13) = "████████████▊". Requires width ≥ 1.
std::string Bar(double fraction, int width);

/// Speeds under a roof as characters, 100 columns at most: log of operations per byte to the right,
/// log of speed upwards, a letter for each trial of the operator in their order.
std::string RooflineText(const BenchReport& report, size_t op);

}  // namespace assay

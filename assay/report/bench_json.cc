#include <cmath>
#include <cstdlib>

#include "assay/kernels/dense.h"
#include "assay/report/bench_report.h"
#include "assay/version.h"

namespace assay {
namespace {

/// Settings from outside that change what is computed.
constexpr const char* kPrecisionVariables[] = {"ASSAY_TARGET", "ONEDNN_MAX_CPU_ISA",
                                               "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE"};

Json EnvironmentOf(const Machine& machine) {
  Json json = ToJson(machine);
  json["platform"] = fmt::format("{} {}", machine.os, machine.architecture);
  json["machine"] = machine.architecture;
  json["versions"] = {
      {"assay", kVersion}, {"blas", DenseLibraryName()}, {"compiler", machine.compiler}};
  json["precision_environment"] = Json::object();
  for (const char* name : kPrecisionVariables) {
    const char* value = std::getenv(name);
    json["precision_environment"][name] = value == nullptr ? Json(nullptr) : Json(value);
  }
  return json;
}

std::vector<std::string> ScopeOf(const BenchReport& report) {
  const BenchOptions& options = report.options;
  std::vector<std::string> scope;
  if (!options.shapes.empty()) {
    scope.push_back(fmt::format(
        "Synthetic weights: 0.02 · 2^round(r) · g rounded to bf16, r of each row and g of "
        "each value N(0, 1), seed {}.",
        options.seed));
  }
  if (!options.model.empty()) {
    scope.push_back(
        fmt::format("Weights of {}, rounded to bf16 where they are not.", options.model));
  }
  scope.push_back(fmt::format("Activations: N(0, 1) rounded to bf16, seed {}.", options.seed + 1));
  scope.emplace_back(
      "A sample is one call of the product, y in f32; what the strategy decodes on every call is "
      "in "
      "it, encoding and preparation (pack_s) are not.");
  scope.emplace_back(options.hot
                         ? "Hot: each sample follows an untimed call with the same weight."
                         : "Cold: each sample uses another copy of the weight, or follows a walk "
                           "over other memory; see operators.");
  scope.emplace_back(
      "Rounds in which every variant and the read probe take their turns; preempted samples are "
      "listed and count in no figure.");
  scope.emplace_back(
      "Errors are against the fused bf16 product of this run, both sides rounded to bf16; "
      "error_f32 before that rounding.");
  return scope;
}

std::vector<std::string> LimitationsOf(const BenchReport& report) {
  std::vector<std::string> limits;
  limits.emplace_back(
      "Bytes per call are the weight's planes and x read once; what a strategy writes and reads "
      "again, y, and prepared copies are not in them.");
  limits.emplace_back(
      "One product at a time: nothing is said of a model's end-to-end speed, nor of its quality.");
  if (!report.options.shapes.empty()) {
    limits.emplace_back("Synthetic weights have no outlier columns, as real ones may.");
  }
  for (const BenchOperator& op : report.operators) {
    if (op.cold_enough) continue;
    limits.push_back(fmt::format(
        "{}: memory allowed only {} bytes between two uses of a weight: part of it may have been "
        "cached.",
        op.shape.name, op.cold_bytes));
  }
  return limits;
}

Json PreemptedOf(const TimingSamples& samples) {
  Json indices = Json::array();
  for (size_t i = 0; i < samples.samples().size(); ++i) {
    if (samples.samples()[i].preempted) indices.push_back(i);
  }
  return indices;
}

Json SamplesOf(const TimingSamples& samples) {
  Json all = Json::array();
  for (const TimingSample& sample : samples.samples()) all.push_back(sample.ms);
  return all;
}

Json ShapeJson(const BenchShape& shape) { return Json::array({shape.m, shape.k, shape.n}); }

Json OperatorJson(const BenchOperator& op) {
  Json json;
  json["operator"] = op.shape.name;
  json["shape"] = ShapeJson(op.shape);
  json["weight_source"] = op.source;
  json["copies"] = op.copies;
  json["walks"] = op.walks;
  json["cold_bytes"] = op.cold_bytes;
  json["cold_enough"] = op.cold_enough;
  json["rounds"] = op.rounds;
  json["read_gb_per_s"] = op.roof.read_gb_per_s;
  json["gemm_gflops"] = op.roof.gemm_gflops;
  json["peak_gflops"] = op.roof.peak_gflops;
  json["read_bytes"] = op.probe_bytes;
  json["read_samples_ms"] = SamplesOf(op.read);
  json["gemm_samples_ms"] = SamplesOf(op.gemm);
  json["peak_samples_ms"] = SamplesOf(op.peak);
  return json;
}

/// Figures of speed are null when they would pass the roof: one of the two is wrong.
void AddSpeed(Json& json, const BenchTrial& trial, const BenchOperator& op) {
  const BenchSpeed& speed = trial.speed;
  const bool is_fact = !speed.above_roof && !trial.samples.samples().empty();
  const auto fact = [&](double value) { return is_fact ? Json(value) : Json(nullptr); };
  json["bytes_per_call"] = trial.bytes_per_call;
  json["gb_per_s"] = fact(speed.gb_per_s);
  json["gflops"] = fact(speed.gflops);
  json["bound_by"] = speed.bound_by_read ? "read" : "multiply";
  json["roof_ms"] = speed.roof_ms;
  json["fraction_of_roof"] = fact(speed.fraction_of_roof);
  json["fraction_of_read"] =
      fact(op.roof.read_gb_per_s > 0 ? speed.gb_per_s / op.roof.read_gb_per_s : 0);
  json["fraction_of_gemm"] = fact(op.roof.gemm_gflops > 0 ? speed.gflops / op.roof.gemm_gflops : 0);
  json["above_roof"] = speed.above_roof;
}

Json TrialJson(const BenchTrial& trial, const BenchOperator& op) {
  Json json;
  json["operator"] = op.shape.name;
  json["variant"] = trial.variant.spec;
  json["format"] = trial.format;
  json["strategy"] = NameOf(trial.variant.strategy);
  json["shape"] = ShapeJson(op.shape);
  json["pack_s"] = trial.encode_s + trial.prepare_s;
  json["encode_s"] = trial.encode_s;
  json["prepare_s"] = trial.prepare_s;
  json["weight_bytes"] = trial.weight_bytes;
  json["prepared_bytes"] = trial.prepared_bytes;
  json["ratio"] = static_cast<double>(trial.weight_bytes) /
                  (2 * static_cast<double>(op.shape.k) * static_cast<double>(op.shape.n));
  json["bits_per_weight"] = trial.bits_per_weight;
  if (trial.bits_identical) json["weight_bits_identical"] = *trial.bits_identical;
  for (const auto& [name, value] : trial.figures) {
    const bool is_count = value == std::floor(value);
    json[name] = is_count ? Json(static_cast<int64_t>(value)) : Json(value);
  }
  json["median_ms"] = trial.samples.Median();
  json["min_ms"] = trial.samples.Min();
  json["max_ms"] = trial.samples.Max();
  json["samples_ms"] = SamplesOf(trial.samples);
  json["preempted_samples"] = PreemptedOf(trial.samples);
  json["max_abs"] = trial.error.max_abs;
  json["relative_rmse"] = OrNull(trial.error.relative_rmse);
  json["equal_fraction"] = trial.error.equal_fraction;
  json["finite"] = trial.error.finite;
  json["error_f32"] = {{"max_abs", trial.error_f32.max_abs},
                       {"relative_rmse", OrNull(trial.error_f32.relative_rmse)},
                       {"equal_fraction", trial.error_f32.equal_fraction}};
  AddSpeed(json, trial, op);
  json["checksum"] = fmt::format("{:016x}", trial.checksum);
  json["implementation"] = trial.implementation;
  return json;
}

Json ComparisonJson(const BenchReport& report, const BenchComparison& comparison) {
  Json json;
  json["path"] = comparison.path;
  json["machine"] = comparison.machine_then;
  json["same_machine"] = comparison.machine_then == comparison.machine_now;
  json["only_now"] = comparison.only_now;
  json["only_then"] = comparison.only_then;
  json["changes"] = Json::array();
  for (const BenchChange& change : comparison.changes) {
    const BenchTrial& trial = report.trials[change.trial];
    json["changes"].push_back(
        {{"operator", report.operators[trial.op].shape.name},
         {"variant", trial.variant.spec},
         {"time_ratio", change.time.ratio},
         {"time_ratio_low", change.time.low},
         {"time_ratio_high", change.time.high},
         {"verdict", change.slower()   ? "slower"
                     : change.faster() ? "faster"
                                       : "within noise"},
         {"read_ratio", change.read_ratio > 0 ? Json(change.read_ratio) : Json(nullptr)},
         {"other_bits", change.other_bits}});
  }
  return json;
}

}  // namespace

Json BenchJson(const BenchReport& report, const BenchComparison* comparison,
               const std::string& command, const Machine& machine) {
  const BenchOptions& options = report.options;
  Machine measured = machine;
  for (const BenchOperator& op : report.operators) {
    measured.read_gb_per_s = std::max(measured.read_gb_per_s.value_or(0), op.roof.read_gb_per_s);
    measured.gemm_gflops = std::max(measured.gemm_gflops.value_or(0), op.roof.gemm_gflops);
  }
  Json json =
      MakeReport({"assay.bench/1", command, measured, ScopeOf(report), LimitationsOf(report)});
  json["environment"] = EnvironmentOf(measured);
  json["warmup"] = options.warmup;
  json["repeats"] = options.repeats;
  json["hot"] = options.hot;
  json["clock"] = options.cpu_time ? "cpu" : "wall";
  json["seed"] = options.seed;
  if (!options.model.empty()) json["model_path"] = options.model;
  json["gemm_implementation"] = report.gemm_implementation;
  json["peak_instructions"] = report.peak_instructions;
  json["seconds"] = report.seconds;
  json["operators"] = Json::array();
  for (const BenchOperator& op : report.operators) json["operators"].push_back(OperatorJson(op));
  json["trials"] = Json::array();
  for (const BenchTrial& trial : report.trials) {
    json["trials"].push_back(TrialJson(trial, report.operators[trial.op]));
  }
  json["skipped"] = Json::array();
  for (const BenchSkipped& skipped : report.skipped) {
    json["skipped"].push_back(
        {{"operator", skipped.op}, {"variant", skipped.variant}, {"reason", skipped.reason}});
  }
  if (comparison != nullptr) json["baseline"] = ComparisonJson(report, *comparison);
  json["notes"] = report.notes;
  return json;
}

}  // namespace assay

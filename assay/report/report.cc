#include "assay/report/report.h"

#include <fmt/ranges.h>

#include "assay/kernels/dense.h"
#include "assay/version.h"

namespace assay {
namespace {}  // namespace

Json MakeReport(const ReportHead& head) {
  Json report;
  report["schema"] = head.schema;
  report["assay_version"] = kVersion;
  report["command"] = head.command;
  report["environment"] = ToJson(head.machine);
  report["scope"] = fmt::format("{}", fmt::join(head.scope, " "));
  report["limitations"] = fmt::format("{}", fmt::join(head.limitations, " "));
  return report;
}

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json ToJson(const ErrorStats& stats) {
  Json json;
  json["n"] = stats.num_values;
  json["finite"] = stats.finite;
  if (!stats.finite) {
    json["n_finite"] = stats.num_finite;
    json["nan"] = stats.num_nan;
    json["inf"] = stats.num_inf;
    json["reference_nan"] = stats.num_ref_nan;
    json["reference_inf"] = stats.num_ref_inf;
  }
  json["relative_rmse"] = OrNull(stats.relative_rmse);
  json["rmse"] = stats.rmse;
  json["max_abs"] = stats.max_abs;
  json["max_abs_index"] = stats.max_abs_index;
  json["mean_abs"] = stats.mean_abs;
  json["max_rel"] = stats.max_rel;
  json["max_rel_index"] = stats.max_rel_index;
  json["mean_rel"] = stats.mean_rel;
  json["rhs_rms"] = stats.rhs_rms;
  json["rmse_over_rhs_rms"] = OrNull(stats.rmse_over_rhs_rms);
  json["cosine"] = OrNull(stats.cosine);
  json["equal_fraction"] = stats.equal_fraction;
  json["sqnr_db"] = OrNull(stats.sqnr_db);
  return json;
}

Json ToJson(const Machine& machine) {
  Json json;
  json["cpu"] = machine.cpu;
  json["architecture"] = machine.architecture;
  json["isa"] = machine.isa;
  json["features"] = machine.features;
  json["threads"] = machine.threads;
  json["cpus"] = machine.num_cpus;
  json["caches"] = Json::array();
  for (const CacheLevel& cache : machine.caches) {
    json["caches"].push_back(
        {{"level", cache.level}, {"type", cache.type}, {"bytes", cache.num_bytes}});
  }
  json["memory_bytes"] = machine.memory_bytes;
  json["os"] = machine.os;
  json["compiler"] = machine.compiler;
  json["blas"] = DenseLibraryName();
  if (machine.read_gb_per_s) json["read_gb_per_s"] = *machine.read_gb_per_s;
  if (machine.gemm_gflops) json["gemm_gflops"] = *machine.gemm_gflops;
  return json;
}

void AddTiming(Json& object, std::string_view prefix, const TimingSamples& samples) {
  const auto key = [&](std::string_view suffix) { return fmt::format("{}_{}", prefix, suffix); };
  object[key("ms")] = samples.Median();
  object[key("min_ms")] = samples.Min();
  object[key("max_ms")] = samples.Max();
  Json all = Json::array();
  for (const TimingSample& sample : samples.samples()) all.push_back(sample.ms);
  object[key("samples_ms")] = std::move(all);
  if (samples.num_preempted() > 0) object[key("preempted")] = samples.num_preempted();
}

std::string Serialise(const Json& report) {
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace assay

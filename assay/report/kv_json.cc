#include <algorithm>

#include "assay/report/kv_report.h"
#include "assay/report/number.h"

namespace assay {
namespace {

// Where the equations of the ds41 formats were published.
constexpr std::string_view kSourceRevision = "dba1be0a40aa45a94ad051997016db3960a90277";
constexpr std::string_view kKernelUrl =
    "https://huggingface.co/deepseek-ai/DeepSeek-V4.1-Flash/blob/"
    "dba1be0a40aa45a94ad051997016db3960a90277/inference/kernel.py#L48";

// The figures that such reports have had; counts only when something is not finite.
Json FiguresJson(const ErrorStats& stats, int64_t cols) {
  Json json;
  json["finite"] = stats.finite;
  json["n"] = stats.num_values;
  if (!stats.finite) {
    json["non_finite"] = stats.num_values - stats.num_finite;
    return json;
  }
  json["max_abs"] = stats.max_abs;
  json["rmse"] = stats.rmse;
  json["reference_rms"] = stats.rhs_rms;
  json["relative_l2"] = OrNull(stats.relative_rmse);
  json["cosine"] = OrNull(stats.cosine);
  json["sqnr_db"] = OrNull(stats.sqnr_db);
  json["max_abs_at"] = {stats.max_abs_index / cols, stats.max_abs_index % cols};
  return json;
}

Json WorstJson(const std::vector<KvWorst>& worst, const char* what) {
  Json json = Json::array();
  for (const KvWorst& entry : worst) {
    json.push_back({{what, entry.index},
                    {"relative_l2", OrNull(entry.relative_l2)},
                    {"max_abs", entry.max_abs}});
  }
  return json;
}

Json RecordJson(const KvRecord& record) {
  const int64_t cols = record.shape[record.shape.rank() - 1];
  Json json;
  json["name"] = record.name;
  json["capture"] = record.capture;
  json["format"] = record.format;
  json["input_rounding"] = NameOf(record.rounding);
  json["native_format_vs_input"] = FiguresJson(record.native, cols);
  json["f16_vs_input"] = FiguresJson(record.f16, cols);
  json["native_vs_f16_max_abs"] = OrNull(record.native_vs_f16_max_abs);
  json["shape"] = std::vector<int64_t>(record.shape.dims().begin(), record.shape.dims().end());
  json["dtype"] = NameOf(record.dtype);
  json["domain"] = record.rotated ? "rotated" : "source";
  json["positions"] = record.positions;
  json["heads"] = record.heads;
  json["bits_per_value"] = record.bits_per_value;
  json["bytes_per_token"] = record.BytesPerToken();
  json["encoded_bytes"] = record.num_bytes;
  json["worst_positions"] = WorstJson(record.worst_positions, "position");
  json["worst_heads"] = WorstJson(record.worst_heads, "head");
  return json;
}

Json TotalJson(const KvReport& report, const KvTotal& total) {
  Json json;
  json["format"] = total.format;
  json["input_rounding"] = NameOf(total.rounding);
  json["captures"] = total.num_captures;
  json["not_finite"] = total.num_not_finite;
  json["values"] = total.num_values;
  json["encoded_bytes"] = total.num_bytes;
  json["bits_per_value"] = total.bits_per_value;
  json["relative_l2"] = OrNull(total.relative_l2);
  json["f16_relative_l2"] = OrNull(total.f16_relative_l2);
  json["worst"] = Json::array();
  for (const size_t index : total.worst) {
    const KvRecord& record = report.records[index];
    json["worst"].push_back(
        {{"name", record.name}, {"relative_l2", OrNull(record.native.relative_rmse)}});
  }
  return json;
}

bool Rotates(const KvReport& report) {
  return std::ranges::any_of(report.records, [](const KvRecord& record) { return record.rotated; });
}

std::vector<std::string> Scope(const KvReport& report) {
  std::vector<std::string> scope = {
      "Isolated format-equation emulation on captured tensors; not native checkpoint or kernel "
      "parity.",
      fmt::format("{} capture{}, {} values.", report.num_captures,
                  report.num_captures == 1 ? "" : "s", WithThousands(report.num_values)),
      "native: encoded and decoded as the format's equations say; f16: one rounding; both against "
      "the capture, rounded to bf16 first where input_rounding says so."};
  if (Rotates(report)) scope.emplace_back("Rotating formats are compared in the rotated domain.");
  if (report.options.synthetic_tokens > 0) {
    scope.push_back(fmt::format("Synthetic captures: N(0, 1), {} tokens, seeds {} to {}.",
                                report.options.synthetic_tokens, report.options.seed,
                                report.options.seed + 2));
  }
  return scope;
}

Json CaptureJson(const KvReport& report) {
  const std::vector<std::string>& paths = report.options.captures;
  if (paths.empty()) return "synthetic";
  if (paths.size() == 1) return paths[0];
  return paths;
}

}  // namespace

Json KvJson(const KvReport& report, const std::string& command, const Machine& machine) {
  std::vector<std::string> limits = {
      "Errors of stored values: nothing is said of attention scores, of the indexer's choice of "
      "tokens, or of a model's output.",
      "bytes_per_token counts the planes of a format; pages of engines add padding."};
  if (report.options.synthetic_tokens > 0) {
    limits.emplace_back("Synthetic values have no outlier channels, as real captures have.");
  }
  Json json = MakeReport({"assay.kv/1", command, machine, Scope(report), limits});
  const bool has_ds41 = std::ranges::any_of(
      report.records, [](const KvRecord& record) { return record.format.starts_with("ds41-"); });
  json["official_source_revision"] = has_ds41 ? Json(kSourceRevision) : Json(nullptr);
  json["official_kernel_url"] = has_ds41 ? Json(kKernelUrl) : Json(nullptr);
  json["capture"] = CaptureJson(report);
  json["tokens"] = report.tokens.empty() ? Json(nullptr) : Json(report.tokens);
  json["map"] = Json::array();
  for (const KvMapping& mapping : report.options.map) {
    json["map"].push_back({{"pattern", mapping.pattern}, {"formats", mapping.formats}});
  }
  json["captures"] = report.num_captures;
  json["values"] = report.num_values;
  json["seconds"] = report.seconds;
  json["totals"] = Json::array();
  for (const KvTotal& total : report.totals) json["totals"].push_back(TotalJson(report, total));
  json["records"] = Json::array();
  for (const KvRecord& record : report.records) json["records"].push_back(RecordJson(record));
  json["skipped"] = Json::array();
  for (const KvSkipped& skipped : report.skipped) {
    json["skipped"].push_back({{"capture", skipped.capture},
                               {"name", skipped.name},
                               {"format", skipped.format.empty() ? Json() : Json(skipped.format)},
                               {"reason", skipped.reason}});
  }
  json["notes"] = report.notes;
  return json;
}

}  // namespace assay

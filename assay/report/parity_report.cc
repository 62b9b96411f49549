#include "assay/report/parity_report.h"

#include <algorithm>
#include <cmath>

#include "assay/report/number.h"

namespace assay {
namespace {

constexpr size_t kFirst = 8;
constexpr std::string_view kRhsName = "bulk_dequant_gemm";
/// What the report that people made called it, after the library that ran there.
constexpr std::string_view kRhsAlias = "bulk_dequant_cublas";

Json ProjectionToJson(const ParityReport& report) {
  Json json;
  json["format"] = report.format->Name();
  json["rows"] = report.rows;
  json["cols"] = report.cols;
  if (report.geometry) {
    json["bits"] = report.geometry->bits;
    json["group_size"] = report.geometry->group_size;
    json["num_groups"] = report.cols / std::max<int64_t>(1, report.geometry->group_size);
  }
  json["packed_cols"] = report.packed_cols;
  return json;
}

/// JSON has no NaN.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json ComparisonToJson(const ParityReport& report) {
  const ParityFigures& figures = report.figures;
  Json json;
  json["lhs"] = report.lhs_name;
  json["rhs"] = kRhsName;
  json["elements"] = figures.elements;
  json["max_abs"] = Number(figures.max_abs);
  json["max_abs_index"] = figures.max_abs_index;
  json["mean_abs"] = Number(figures.mean_abs);
  json["rmse"] = Number(figures.rmse);
  json["rhs_rms"] = Number(figures.rhs_rms);
  json["rmse_over_rhs_rms"] = Number(figures.rmse_over_rhs_rms);
  json["max_rel"] = Number(figures.max_rel);
  json["max_rel_index"] = figures.max_rel_index;
  json["mean_rel"] = Number(figures.mean_rel);
  json["cosine"] = report.stats.cosine ? Json(*report.stats.cosine) : Json(nullptr);
  json["equal_fraction"] = report.stats.equal_fraction;
  json["finite"] = report.stats.finite;
  const ParityBound& bound = report.bound;
  json["bound"] = {{"at_max_abs", Number(bound.at_max_abs)},
                   {"largest_share", Number(bound.largest_share)},
                   {"largest_share_index", bound.largest_share_index},
                   {"exceeded", bound.num_exceeded},
                   {"lhs_mean", Number(bound.lhs_mean)},
                   {"rhs_mean", Number(bound.rhs_mean)},
                   {"weights_mean", Number(bound.weights_mean)},
                   {"output_mean", Number(bound.output_mean)},
                   {"lhs_formula", bound.lhs_formula},
                   {"rhs_formula", bound.rhs_formula}};
  return json;
}

std::string BoundText(const ParityReport& report) {
  const ParityBound& bound = report.bound;
  return fmt::format(
      "bound {} there; largest share of a bound {}; {} of {} outputs outside theirs\n"
      "  means: lhs {}, rhs {}, weights to bf16 {}, y to bf16 "
      "{}\n",
      Significant(bound.at_max_abs, 4), Significant(bound.largest_share, 2), bound.num_exceeded,
      WithThousands(report.figures.elements), Significant(bound.lhs_mean, 2),
      Significant(bound.rhs_mean, 2), Significant(bound.weights_mean, 2),
      Significant(bound.output_mean, 2));
}

std::string Percent(double ratio) { return Significant(100 * ratio, 3) + " %"; }

}  // namespace

Json ToJson(const ParityReport& report, ReportHead head) {
  const ParityOptions& options = report.options;
  head.schema = "assay.parity/1";
  head.scope = {
      fmt::format("y = W·x for one row of x, both sides from the same planes and the same x, y "
                  "rounded to bf16. lhs: {}. rhs: {}.",
                  report.lhs_implementation, report.rhs_implementation),
      "x comes from a stated generator (linear congruential, bf16, uniform on [-1, 1])."};
  head.limitations = {
      "One synthetic input of one weight. Agreement says that both sides read the same planes the "
      "same way, not that the planes are near the original weight.",
      "Relative differences of outputs near 0 are large by nature; max_rel is no gate."};
  Json json = MakeReport(head);
  json["model_path"] = options.model;
  json["tensor_base"] = report.tensor_base;
  if (options.matrix != 0) json["matrix"] = options.matrix;
  json["seed"] = options.seed;
  json["passed"] = report.passed;
  json["gates"] = Json::object();
  if (options.max_rmse_over_rhs_rms) {
    json["gates"]["max_rmse_over_rhs_rms"] = *options.max_rmse_over_rhs_rms;
  }
  json["input"] = {{"shape", {1, report.cols}}, {"first8", report.x}};
  json["projection"] = ProjectionToJson(report);
  json["comparison"] = ComparisonToJson(report);
  json["lhs_implementation"] = report.lhs_implementation;
  json["rhs_implementation"] = report.rhs_implementation;
  json["first8"] = Json::array();
  for (size_t i = 0; i < std::min(kFirst, report.lhs.size()); ++i) {
    json["first8"].push_back({{"index", i},
                              {"fused_gemv", report.lhs[i]},
                              {kRhsName, report.rhs[i]},
                              {kRhsAlias, report.rhs[i]},
                              {"abs_err", AbsoluteError(report.lhs[i], report.rhs[i])},
                              {"rel_err", RelativeError(report.lhs[i], report.rhs[i])}});
  }
  json["seconds"] = report.seconds;
  json["notes"] = report.notes;
  return json;
}

std::string ToText(const ParityReport& report, const TableStyle& style) {
  const ParityFigures& figures = report.figures;
  std::string text = fmt::format("{} · {} · {} × {} · seed {}\n", Printable(report.tensor_base),
                                 report.format->Name(), WithThousands(report.rows),
                                 WithThousands(report.cols), report.options.seed);
  const std::string ratio = Percent(figures.rmse_over_rhs_rms);
  if (!report.options.max_rmse_over_rhs_rms) {
    text += fmt::format("rmse / rms {}, no gate\n\n", ratio);
  } else {
    text += fmt::format("{}  rmse / rms {} {} {}\n\n", report.passed ? "PASS" : "FAIL", ratio,
                        report.passed ? "≤" : ">", Percent(*report.options.max_rmse_over_rhs_rms));
  }
  text += fmt::format("lhs  {}: {}\nrhs  {}: {}\n\n", report.lhs_name, report.lhs_implementation,
                      kRhsName, report.rhs_implementation);
  text += fmt::format(
      "rmse {}  rms of rhs {}  max abs {} at {}  mean abs {}\n"
      "max rel {} at {}  mean rel {}  equal {}\n",
      Significant(figures.rmse, 4), Significant(figures.rhs_rms, 4),
      Significant(figures.max_abs, 4), figures.max_abs_index, Significant(figures.mean_abs, 4),
      Significant(figures.max_rel, 4), figures.max_rel_index, Significant(figures.mean_rel, 4),
      Percent(report.stats.equal_fraction));
  text += BoundText(report) + "\n";
  Table table({{"y"}, {"lhs"}, {"rhs"}, {"|d|"}, {"|d| / |rhs|"}});
  for (size_t i = 0; i < std::min(kFirst, report.lhs.size()); ++i) {
    const auto shown = [](float value) { return Significant(static_cast<double>(value), 5); };
    table.AddRow({std::to_string(i), shown(report.lhs[i]), shown(report.rhs[i]),
                  shown(AbsoluteError(report.lhs[i], report.rhs[i])),
                  shown(RelativeError(report.lhs[i], report.rhs[i]))});
  }
  return text + table.Render(style);
}

}  // namespace assay

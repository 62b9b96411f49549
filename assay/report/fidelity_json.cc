#include <charconv>
#include <cmath>

#include "assay/base/text.h"
#include "assay/formats/catalogue.h"
#include "assay/report/border_report.h"
#include "assay/report/fidelity_report.h"
#include "assay/report/number.h"

namespace assay {
namespace {

// What the grammar of names says: family, bits, then `g` and the group. Null where a name has none.
struct NameParts {
  Json bits = nullptr;
  Json group_size = nullptr;
};

NameParts PartsOf(std::string_view name) {
  NameParts parts;
  const auto number_at = [&](size_t position) -> Json {
    int value = 0;
    const auto [end, error] =
        std::from_chars(name.data() + position, name.data() + name.size(), value);
    return error == std::errc() ? Json(value) : Json(nullptr);
  };
  const size_t digit = name.find_first_of("0123456789");
  if (digit == std::string_view::npos) return parts;
  parts.bits = number_at(digit);
  const size_t after = name.find_first_not_of("0123456789", digit);
  if (after != std::string_view::npos && name[after] == 'g' && after + 1 < name.size()) {
    parts.group_size = number_at(after + 1);
  }
  return parts;
}

Json At(const ErrorStats& stats, const FidelityResult& result, int64_t width,
        const std::vector<int64_t>& rows) {
  if (stats.max_abs_index < 0 || width == 0) return nullptr;
  const int64_t row = stats.max_abs_index / width;
  const bool all = result.sample_rows == result.source_shape[0];
  return Json::array({all ? row : rows.at(static_cast<size_t>(row)), stats.max_abs_index % width});
}

Json ResultJson(const FidelityReport& report, const FidelityResult& result) {
  static const std::vector<int64_t> kAllRows;
  const std::vector<int64_t>* rows = &kAllRows;
  for (const auto& [height, indices] : report.sampled_rows) {
    if (height == result.source_shape[0]) rows = &indices;
  }
  const NameParts parts = PartsOf(result.format);
  Json json;
  json["component"] = result.component;
  json["tensor"] = result.tensor;
  if (result.matrix >= 0) json["matrix"] = result.matrix;
  json["source_shape"] = {result.source_shape[0], result.source_shape[1]};
  json["source_format"] = result.source;
  json["sample_rows"] = result.sample_rows;
  json["format"] = result.format;
  if (result.against) json["against"] = true;
  json["mode"] = FamilyOf(result.format).name;
  json["bits"] = parts.bits;
  json["group_size"] = parts.group_size;
  json["bits_per_weight"] = result.bits_per_weight;
  json["encoded_bytes"] = result.num_bytes;
  json["weight_relative_rmse"] = OrNull(result.weight.relative_rmse);
  const bool synthetic = report.options.activations.empty();
  const char* const key =
      synthetic ? "synthetic_matmul_relative_rmse" : "activation_matmul_relative_rmse";
  json[key] = result.matmul ? OrNull(result.matmul->relative_rmse) : Json(nullptr);
  if (!result.encode.samples().empty()) AddTiming(json, "encode", result.encode);
  if (!result.product.samples().empty()) {
    AddTiming(json, "matmul", result.product);
    json["matmul_implementation"] = result.implementation;
  }
  json["weight"] = ToJson(result.weight);
  json["weight"]["max_abs_at"] = At(result.weight, result, result.source_shape[1], *rows);
  if (result.matmul) {
    json["matmul"] = ToJson(*result.matmul);
    json["matmul"]["max_abs_at"] = At(*result.matmul, result, report.activation_tokens, *rows);
  }
  for (const auto& [name, value] : result.figures) {
    if (value == std::floor(value)) {
      json[name] = static_cast<int64_t>(value);
    } else {
      json[name] = value;
    }
  }
  if (result.bits_identical) json["weight_bits_identical"] = *result.bits_identical;
  if (!result.notes.empty()) json["notes"] = result.notes;
  if (!result.conversions.empty()) json["conversions"] = result.conversions;
  if (!result.fits_only.empty()) json["fits_only"] = result.fits_only;
  return json;
}

Json Worst(const FidelityReport& report, const std::vector<size_t>& indices, bool by_matmul) {
  Json worst = Json::array();
  for (const size_t index : indices) {
    const FidelityResult& result = report.results[index];
    Json entry;
    entry["tensor"] = result.tensor;
    if (result.matrix >= 0) entry["matrix"] = result.matrix;
    entry["relative_rmse"] =
        OrNull(by_matmul ? result.matmul->relative_rmse : result.weight.relative_rmse);
    worst.push_back(std::move(entry));
  }
  return worst;
}

Json TotalJson(const FidelityReport& report, const FidelityTotal& total) {
  Json json;
  json["format"] = total.format;
  json["matrices"] = total.num_matrices;
  json["parameters"] = total.num_values;
  json["encoded_bytes"] = total.num_bytes;
  json["bits_per_weight"] = total.bits_per_weight;
  json["weight_relative_rmse"] = OrNull(total.weight_relative_rmse);
  json["matmul_relative_rmse"] = OrNull(total.matmul_relative_rmse);
  json["sqnr_db"] = OrNull(total.sqnr_db);
  json["encode_ms"] = total.encode_ms;
  json["matmul_ms"] = total.matmul_ms;
  json["worst_by_weight"] = Worst(report, total.worst_by_weight, false);
  json["worst_by_matmul"] = Worst(report, total.worst_by_matmul, true);
  return json;
}

std::vector<std::string> Scope(const FidelityReport& report) {
  const FidelityOptions& options = report.options;
  std::vector<std::string> scope;
  scope.push_back(fmt::format("{} weights of {}, {} parameters; each matrix encoded whole, {}.",
                              report.num_weights, options.model, WithThousands(report.num_values),
                              report.sampled_rows.empty()
                                  ? "every row compared"
                                  : fmt::format("{} evenly spaced rows compared", options.rows)));
  scope.emplace_back(
      "Errors are of values decoded as upstream's dequantise gives them, against the source's.");
  if (report.activation_tokens > 0) {
    scope.push_back(options.activations.empty()
                        ? fmt::format("Products with {} rows of synthetic N(0, 1), seed {}, "
                                      "rounded to bf16.",
                                      report.activation_tokens, options.seed)
                        : fmt::format("Products with {} rows of {}, rounded to bf16.",
                                      report.activation_tokens, options.activations));
    scope.emplace_back(
        "Their error is that of the product with the decoded weight against the product "
        "with the source weight, both summed in one fixed order.");
    if (options.repeats > 0) {
      scope.push_back(fmt::format(
          "matmul_ms: product of the whole encoded matrix by strategy {}, preparation excluded; "
          "encode_ms: the whole matrix; medians of at most {} samples, fewer for large matrices.",
          NameOf(options.strategy), options.repeats));
    }
  }
  if (!options.against.empty())
    scope.emplace_back("Compared with the copy " + options.against + ".");
  return scope;
}

std::vector<std::string> Limitations(const FidelityReport& report) {
  std::vector<std::string> limits;
  if (!report.sampled_rows.empty()) limits.emplace_back("Sampled rows stand for whole matrices.");
  if (report.options.activations.empty() && report.activation_tokens > 0) {
    limits.emplace_back(
        "Synthetic activations have no outlier channels and no correlation with "
        "the weights, as real ones have.");
  }
  if (report.activation_tokens == 0) limits.emplace_back("No products were measured.");
  limits.emplace_back(
      "Each weight alone: nothing is said of how errors add up through a model, of "
      "its output quality, or of end-to-end speed.");
  return limits;
}

}  // namespace

Json FidelityJson(const FidelityReport& report, const std::string& command,
                  const Machine& machine) {
  Json json =
      MakeReport({"assay.fidelity/1", command, machine, Scope(report), Limitations(report)});
  const FidelityOptions& options = report.options;
  json["model_path"] = options.model;
  if (!options.against.empty()) json["against_path"] = options.against;
  // Of the report as a whole only where all formats agree, as when one family was asked for.
  Json mode = nullptr;
  Json group_size = nullptr;
  for (size_t i = 0; i < options.formats.size(); ++i) {
    const Json family = FamilyOf(options.formats[i]).name;
    const Json group = PartsOf(options.formats[i]).group_size;
    mode = i == 0 || mode == family ? family : Json(nullptr);
    group_size = i == 0 || group_size == group ? group : Json(nullptr);
  }
  json["group_size"] = group_size;
  json["mode"] = mode;
  json["weights"] = report.num_weights;
  json["tensors"] = report.num_tensors;
  json["parameters"] = report.num_values;
  json["model_bytes"] = report.model_bytes;
  json["kept_tensors"] = report.kept_tensors;
  json["kept_bytes"] = report.kept_bytes;
  json["activations"] =
      options.activations.empty() ? Json("synthetic N(0, 1)") : Json(options.activations);
  json["tokens"] = report.activation_tokens;
  json["seed"] = options.activations.empty() ? Json(options.seed) : Json(nullptr);
  json["strategy"] = NameOf(options.strategy);
  json["repeats"] = options.repeats;
  json["seconds"] = report.seconds;
  json["totals"] = Json::array();
  for (const FidelityTotal& total : report.totals)
    json["totals"].push_back(TotalJson(report, total));
  json["results"] = Json::array();
  for (const FidelityResult& result : report.results) {
    json["results"].push_back(ResultJson(report, result));
  }
  json["skipped"] = Json::array();
  for (const FidelitySkipped& skipped : report.skipped) {
    json["skipped"].push_back({{"tensor", skipped.tensor},
                               {"format", skipped.format.empty() ? Json() : Json(skipped.format)},
                               {"reason", skipped.reason},
                               {"bytes", skipped.num_bytes}});
  }
  json["sampled_rows"] = Json::array();
  for (const auto& [rows, indices] : report.sampled_rows) {
    json["sampled_rows"].push_back({{"rows", rows}, {"indices", indices}});
  }
  json["notes"] = report.notes;
  if (report.border) json["border"] = ToJson(*report.border);
  return json;
}

}  // namespace assay

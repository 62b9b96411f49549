#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "assay/report/border_report.h"
#include "assay/report/fidelity_report.h"
#include "assay/report/number.h"
#include "assay/report/skipped_text.h"

namespace assay {
namespace {

constexpr int kFidelityDigits = 3;

std::string Headline(const FidelityReport& report) {
  const FidelityOptions& options = report.options;
  std::filesystem::path path(options.model);
  if (path.filename().empty()) path = path.parent_path();
  std::map<std::string, int> sources;
  for (const FidelityResult& result : report.results) ++sources[result.source];
  std::string line = fmt::format(
      "{} · {} of {} tensors · {} parameters", Printable(path.filename().string()),
      report.num_weights == 1 ? "1 weight" : fmt::format("{} weights", report.num_weights),
      report.num_tensors, HumanCount(report.num_values));
  if (sources.size() == 1) line += " · " + sources.begin()->first;
  line +=
      report.sampled_rows.empty() ? " · all rows" : fmt::format(" · {} rows each", options.rows);
  if (report.activation_tokens > 0) {
    line += options.activations.empty()
                ? fmt::format(" · {} synthetic tokens (seed {})", report.activation_tokens,
                              options.seed)
                : fmt::format(
                      " · {} tokens of {}", report.activation_tokens,
                      Printable(std::filesystem::path(options.activations).filename().string()));
  }
  return line + "\n\n";
}

// A weight's name without the suffix that all of them have.
std::string ShortName(const FidelityResult& result) {
  std::string name = result.tensor;
  constexpr std::string_view kSuffix = ".weight";
  if (name.size() > kSuffix.size() && name.ends_with(kSuffix)) {
    name.resize(name.size() - kSuffix.size());
  }
  if (result.matrix >= 0) name += fmt::format("[{}]", result.matrix);
  return name;
}

std::string TotalsTable(const FidelityReport& report, const TableStyle& style) {
  Table table({{"format", Align::kLeft},
               {"bits/w"},
               {"weight error"},
               {"matmul error"},
               {"SQNR"},
               {"worst tensor", Align::kLeft, Shorten::kLeft},
               {"its error"}});
  for (const FidelityTotal& total : report.totals) {
    if (total.num_matrices == 0) {
      table.AddRow({total.format, "–", "–", "–", "–", "fits none of the weights"});
      continue;
    }
    const FidelityResult& worst = report.results[total.worst_by_weight.at(0)];
    table.AddRow({{total.format, Emphasis::kBold},
                  Fixed(total.bits_per_weight, 2),
                  Significant(total.weight_relative_rmse, kFidelityDigits),
                  Significant(total.matmul_relative_rmse, kFidelityDigits),
                  total.sqnr_db ? Fixed(total.sqnr_db, 1) + " dB" : "–",
                  ShortName(worst),
                  Significant(worst.weight.relative_rmse, kFidelityDigits)});
  }
  return table.Render(style);
}

// "encoder.layer.0" of "encoder.layer.0.output.dense.weight": up to the first part that is a
// number; without one, the first part.
std::string LayerOf(const std::string& name) {
  size_t first = 0;
  while (first < name.size()) {
    const size_t dot = std::min(name.find('.', first), name.size());
    const bool is_number = dot > first && name.find_first_not_of("0123456789", first) >= dot;
    if (is_number && dot < name.size()) return name.substr(0, dot);
    first = dot + 1;
  }
  const size_t dot = name.find('.');
  return dot == std::string::npos ? std::string() : name.substr(0, dot);
}

// Of one weight's matrix, a cell for each figure of each format.
struct MatrixRow {
  const FidelityResult* any = nullptr;
  std::vector<const FidelityResult*> by_total;
};

std::vector<MatrixRow> MatrixRows(const FidelityReport& report) {
  std::vector<MatrixRow> rows;
  for (const FidelityResult& result : report.results) {
    if (rows.empty() || rows.back().any->tensor != result.tensor ||
        rows.back().any->matrix != result.matrix) {
      rows.push_back({&result, std::vector<const FidelityResult*>(report.totals.size(), nullptr)});
    }
    for (size_t i = 0; i < report.totals.size(); ++i) {
      const bool is_copy = !report.options.against.empty() && i + 1 == report.totals.size();
      if (is_copy == result.against && (is_copy || report.totals[i].format == result.format)) {
        rows.back().by_total[i] = &result;
      }
    }
  }
  return rows;
}

// The figure, with a mark where it is the worst of its column.
Table::Cell Figure(const std::optional<double>& value, bool worst) {
  const std::string text = Significant(value, kFidelityDigits) + (worst ? "*" : " ");
  return {text, worst ? Emphasis::kBad : Emphasis::kNone};
}

std::string PerTensor(const FidelityReport& report, const TableStyle& style) {
  std::vector<Table::Column> columns = {{"tensor", Align::kLeft, Shorten::kLeft}, {"shape"}};
  for (const FidelityTotal& total : report.totals) {
    columns.push_back({total.format + " "});
    if (report.activation_tokens > 0) columns.push_back({"matmul "});
  }
  Table table(std::move(columns));
  std::string layer;
  const auto is_worst = [](const std::vector<size_t>& worst, const FidelityReport& all,
                           const FidelityResult* result) {
    return !worst.empty() && &all.results[worst[0]] == result;
  };
  for (const MatrixRow& row : MatrixRows(report)) {
    const std::string name = ShortName(*row.any);
    std::string new_layer = LayerOf(row.any->tensor);
    if (!name.starts_with(new_layer + ".")) new_layer.clear();
    if (new_layer != layer && !new_layer.empty()) table.AddHeading(new_layer);
    layer = new_layer;
    const Shape& shape = row.any->source_shape;
    std::vector<Table::Cell> cells = {"  " + (layer.empty() ? name : name.substr(layer.size() + 1)),
                                      fmt::format("{} × {}", shape[0], shape[1])};
    for (size_t i = 0; i < report.totals.size(); ++i) {
      const FidelityResult* result = row.by_total[i];
      const FidelityTotal& total = report.totals[i];
      if (result == nullptr) {
        cells.emplace_back("– ");
        if (report.activation_tokens > 0) cells.emplace_back("– ");
        continue;
      }
      cells.push_back(
          Figure(result->weight.relative_rmse, is_worst(total.worst_by_weight, report, result)));
      if (report.activation_tokens == 0) continue;
      cells.push_back(result->matmul ? Figure(result->matmul->relative_rmse,
                                              is_worst(total.worst_by_matmul, report, result))
                                     : Table::Cell("– "));
    }
    table.AddRow(std::move(cells));
  }
  return table.Render(style) + "\n* the worst of its column\n";
}

std::string Skipped(const FidelityReport& report) {
  SkippedText text;
  for (const FidelitySkipped& skipped : report.skipped) {
    text.Add(skipped.format, skipped.reason, skipped.tensor);
  }
  return text.Render();
}

/// Of copies across the border whose matrices are not what they should be.
std::string FitsOnly(const FidelityReport& report) {
  constexpr int64_t kShown = 5;
  std::string text;
  int64_t count = 0;
  for (const FidelityResult& result : report.results) {
    if (result.fits_only.empty() || ++count > kShown) continue;
    text += fmt::format("note: {}: {}\n", Printable(ShortName(result)), result.fits_only);
  }
  if (count > kShown) text += fmt::format("note: … and {} more\n", WithThousands(count - kShown));
  return text;
}

}  // namespace

std::string FidelityText(const FidelityReport& report, bool per_tensor, const TableStyle& style) {
  std::string text = Headline(report) + TotalsTable(report, style) + "\n";
  if (per_tensor) text += PerTensor(report, style) + "\n";
  text +=
      "error = relative RMSE, Σ(decoded − original)² over Σ original², square root; parameters "
      "weighted.\n";
  if (report.kept_tensors > 0) {
    text += fmt::format(
        "kept as they were: {} that {}, {} % of the bytes.\n",
        report.kept_tensors == 1 ? "1 tensor" : fmt::format("{} tensors", report.kept_tensors),
        report.kept_tensors == 1 ? "is no weight" : "are no weights",
        Significant(100.0 * static_cast<double>(report.kept_bytes) /
                        static_cast<double>(std::max<int64_t>(report.model_bytes, 1)),
                    2));
  }
  if (report.border) text += ToText(*report.border) + FitsOnly(report);
  text += Skipped(report);
  for (const std::string& note : report.notes) text += "note: " + Printable(note) + "\n";
  return text;
}

}  // namespace assay

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "assay/base/text.h"
#include "assay/report/kv_report.h"
#include "assay/report/number.h"
#include "assay/report/skipped_text.h"

namespace assay {
namespace {

constexpr int kKvDigits = 3;
constexpr int64_t kMostCaptures = 16;  // of the side-by-side table, unless it is asked for

std::string Counted(int64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", WithThousands(count), count == 1 ? one : many);
}

std::string Headline(const KvReport& report) {
  const std::vector<std::string>& paths = report.options.captures;
  std::string what = "synthetic N(0, 1)";
  if (paths.size() > 1) what = Counted(static_cast<int64_t>(paths.size()), "path", "paths");
  if (paths.size() == 1) {
    std::filesystem::path path(paths[0]);
    if (path.filename().empty()) path = path.parent_path();
    what = Printable(path.filename().string());
  }
  std::set<std::string> dtypes;
  for (const KvRecord& record : report.records) {
    dtypes.insert(Lower(NameOf(record.dtype)));
  }
  std::string line =
      fmt::format("{} · {} · {} values", what, Counted(report.num_captures, "capture", "captures"),
                  HumanCount(report.num_values));
  for (const std::string& dtype : dtypes) line += " · " + dtype;
  return line + "\n\n";
}

const KvTotal* FindTotal(const KvReport& report, const std::string& format, KvRounding rounding) {
  for (const KvTotal& total : report.totals) {
    if (total.format == format && total.rounding == rounding) return &total;
  }
  return nullptr;
}

std::vector<std::string> FormatsOf(const KvReport& report) {
  std::vector<std::string> formats;
  for (const KvTotal& total : report.totals) {
    if (std::ranges::find(formats, total.format) == formats.end()) formats.push_back(total.format);
  }
  return formats;
}

// "#17 0.0412": which one, and its error.
std::string WorstText(const std::vector<KvWorst>& worst) {
  if (worst.empty()) return "–";
  return fmt::format("#{} {}", worst[0].index, Significant(worst[0].relative_l2, kKvDigits));
}

std::string TotalsTable(const KvReport& report, const TableStyle& style) {
  const std::vector<KvRounding>& roundings = report.options.roundings;
  const bool has_heads = std::ranges::any_of(
      report.records, [](const KvRecord& record) { return !record.worst_heads.empty(); });
  std::vector<Table::Column> columns = {{"format", Align::kLeft}, {"bits/value"}, {"bytes/token"}};
  for (const KvRounding rounding : roundings) {
    columns.push_back({rounding == KvRounding::kNone ? "error" : "bf16 input"});
  }
  columns.insert(columns.end(),
                 {{"f16"}, {"worst capture", Align::kLeft, Shorten::kLeft}, {"worst token"}});
  if (has_heads) columns.push_back({"worst head"});
  Table table(std::move(columns));
  for (const std::string& format : FormatsOf(report)) {
    const KvTotal* first = FindTotal(report, format, roundings[0]);
    std::vector<Table::Cell> cells = {{format, Emphasis::kBold}};
    cells.emplace_back(
        Fixed(first == nullptr ? std::nullopt : std::optional(first->bits_per_value), 2));
    std::set<double> bytes;
    for (const KvRecord& record : report.records) {
      if (record.format == format && record.rounding == roundings[0]) {
        bytes.insert(record.BytesPerToken());
      }
    }
    cells.emplace_back(bytes.size() == 1 ? fmt::format("{:.6g}", *bytes.begin()) : "–");
    for (const KvRounding rounding : roundings) {
      const KvTotal* total = FindTotal(report, format, rounding);
      cells.emplace_back(
          Significant(total == nullptr ? std::nullopt : total->relative_l2, kKvDigits));
    }
    cells.emplace_back(Significant(first == nullptr ? std::nullopt : first->f16_relative_l2, 2));
    if (first != nullptr && !first->worst.empty()) {
      const KvRecord& worst = report.records[first->worst[0]];
      cells.emplace_back(
          fmt::format("{} {}", worst.name, Significant(worst.native.relative_rmse, kKvDigits)));
      cells.emplace_back(WorstText(worst.worst_positions));
      if (has_heads) cells.emplace_back(WorstText(worst.worst_heads));
    }
    table.AddRow(std::move(cells));
  }
  return table.Render(style);
}

std::string PerCapture(const KvReport& report, const TableStyle& style) {
  const std::vector<std::string> formats = FormatsOf(report);
  std::vector<Table::Column> columns = {{"capture", Align::kLeft, Shorten::kLeft}, {"shape"}};
  for (const std::string& format : formats) columns.push_back({format});
  columns.push_back({"f16"});
  Table table(std::move(columns));
  const KvRounding rounding = report.options.roundings[0];
  // Records of one capture follow each other.
  for (size_t i = 0; i < report.records.size();) {
    const KvRecord& any = report.records[i];
    std::map<std::string, const KvRecord*> by_format;
    for (; i < report.records.size() && report.records[i].name == any.name &&
           report.records[i].capture == any.capture;
         ++i) {
      if (report.records[i].rounding == rounding) {
        by_format[report.records[i].format] = &report.records[i];
      }
    }
    std::vector<Table::Cell> cells = {any.name, any.shape.ToString()};
    std::optional<double> f16;
    for (const std::string& format : formats) {
      const auto found = by_format.find(format);
      if (found == by_format.end()) {
        cells.emplace_back("–");
      } else if (!found->second->native.finite) {
        cells.push_back({"not finite", Emphasis::kBad});
      } else {
        cells.emplace_back(Significant(found->second->native.relative_rmse, kKvDigits));
      }
      // f16 of the values as they are, not of rotated ones, where both were measured.
      if (found != by_format.end() && found->second->f16.finite &&
          (!f16 || !found->second->rotated)) {
        f16 = found->second->f16.relative_rmse;
      }
    }
    cells.emplace_back(Significant(f16, 2));
    table.AddRow(std::move(cells));
  }
  return table.Render(style);
}

std::string NotFinite(const KvReport& report) {
  std::string text;
  for (const KvRecord& record : report.records) {
    if (record.native.finite || record.rounding != report.options.roundings[0]) continue;
    text += fmt::format("not finite: {} as {}: {} of {} values; no figures\n",
                        Printable(record.name), record.format,
                        WithThousands(record.native.num_values - record.native.num_finite),
                        WithThousands(record.native.num_values));
  }
  return text;
}

std::string Skipped(const KvReport& report) {
  SkippedText text;
  for (const KvSkipped& skipped : report.skipped) {
    text.Add(skipped.format, skipped.reason, skipped.name);
  }
  return text.Render();
}

}  // namespace

std::string KvText(const KvReport& report, bool per_capture, const TableStyle& style) {
  std::string text = Headline(report) + TotalsTable(report, style) + "\n";
  if (per_capture || (report.num_captures > 1 && report.num_captures <= kMostCaptures)) {
    text += PerCapture(report, style) + "\n";
  }
  text += "error = relative L2, Σ(decoded − capture)² over Σ capture², square root";
  const bool rounded = std::ranges::find(report.options.roundings, KvRounding::kBF16) !=
                       report.options.roundings.end();
  text += rounded ? "; bf16 input: the capture\nrounded to bf16 first, as the kernels get it.\n"
                  : ".\n";
  if (std::ranges::any_of(report.records, [](const KvRecord& record) { return record.rotated; })) {
    text += "ds4-index-fp4 is compared in the rotated domain.\n";
  }
  text += NotFinite(report) + Skipped(report);
  for (const std::string& note : report.notes) text += "note: " + Printable(note) + "\n";
  return text;
}

}  // namespace assay

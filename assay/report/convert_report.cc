#include "assay/report/convert_report.h"

#include <algorithm>
#include <map>

#include "assay/report/number.h"

namespace assay {
namespace {

constexpr size_t kShownKept = 12;

/// Sums over the tensors that ended in one kind.
struct KindSums {
  int64_t num_tensors = 0;
  int64_t num_values = 0;
  int64_t bytes_before = 0;
  int64_t bytes_after = 0;

  void Add(const ConvertedTensor& tensor) {
    ++num_tensors;
    num_values += tensor.num_values;
    bytes_before += tensor.bytes_before;
    bytes_after += tensor.bytes_after;
  }
  double Bits() const {
    return num_values == 0
               ? 0
               : 8.0 * static_cast<double>(bytes_after) / static_cast<double>(num_values);
  }
};

struct Totals {
  KindSums all;
  KindSums encoded;
  KindSums kept;  ///< not encoded, selected or not
  std::map<std::string, KindSums> kinds;
};

Totals TotalsOf(const ConvertReport& report) {
  Totals totals;
  for (const ConvertedTensor& tensor : report.tensors) {
    totals.all.Add(tensor);
    (tensor.encoded ? totals.encoded : totals.kept).Add(tensor);
    totals.kinds[tensor.to].Add(tensor);
  }
  return totals;
}

/// Bits per weight that the whole model has above those of its encoded part.
double CostOfKept(const Totals& totals) {
  return totals.encoded.num_values == 0 ? 0 : totals.all.Bits() - totals.encoded.Bits();
}

Json ToJson(const KindSums& sums) {
  return {{"tensors", sums.num_tensors},
          {"parameters", sums.num_values},
          {"bytes_before", sums.bytes_before},
          {"bytes", sums.bytes_after},
          {"bits_per_weight", sums.Bits()}};
}

Json TensorToJson(const ConvertedTensor& tensor) {
  Json json;
  json["tensor"] = tensor.name;
  json["shape"] = tensor.shape.dims();
  json["from"] = tensor.from;
  json["to"] = tensor.to;
  json["parameters"] = tensor.num_values;
  json["bytes_before"] = tensor.bytes_before;
  json["bytes"] = tensor.bytes_after;
  if (!tensor.kept_because.empty()) json["kept_because"] = tensor.kept_because;
  return json;
}

void AddRow(Table& table, const std::string& kind, const KindSums& sums) {
  table.AddRow({kind, WithThousands(sums.num_tensors), HumanCount(sums.num_values),
                HumanBytes(sums.bytes_before), HumanBytes(sums.bytes_after),
                Fixed(sums.Bits(), 2)});
}

std::string KeptLines(const ConvertReport& report, const Totals& totals) {
  std::vector<const ConvertedTensor*> kept;
  for (const ConvertedTensor& tensor : report.tensors) {
    if (!tensor.kept_because.empty()) kept.push_back(&tensor);
  }
  if (totals.encoded.num_tensors == 0 || totals.kept.num_tensors == 0) return {};
  const double share = 100.0 * static_cast<double>(totals.kept.bytes_after) /
                       static_cast<double>(std::max<int64_t>(1, totals.all.bytes_after));
  std::string text = fmt::format(
      "\nkept as they were: {} tensors, {} % of the bytes; they cost {} bits per weight: {} in "
      "all, "
      "{} where encoded\n",
      WithThousands(totals.kept.num_tensors), Significant(share, 2),
      Significant(CostOfKept(totals), 2), Fixed(totals.all.Bits(), 3),
      Fixed(totals.encoded.Bits(), 3));
  // The largest first: those are the ones to do something about.
  std::ranges::stable_sort(kept, [](const ConvertedTensor* a, const ConvertedTensor* b) {
    return a->bytes_after > b->bytes_after;
  });
  for (size_t i = 0; i < std::min(kept.size(), kShownKept); ++i) {
    text += fmt::format("  {}  {}  {}\n", Printable(kept[i]->name),
                        HumanBytes(kept[i]->bytes_after), Printable(kept[i]->kept_because));
  }
  if (kept.size() > kShownKept) {
    text += fmt::format("  … and {} more; all: --json\n",
                        WithThousands(static_cast<int64_t>(kept.size() - kShownKept)));
  }
  return text;
}

}  // namespace

Json ToJson(const ConvertReport& report, ReportHead head) {
  const Totals totals = TotalsOf(report);
  Json json = MakeReport(head);
  json["input"] = report.input;
  json["output"] = report.output;
  json["format"] = report.format.empty() ? Json(nullptr) : Json(report.format);
  json["files"] = report.num_files;
  json["copied_files"] = report.copied_files;
  json["seconds"] = report.seconds;
  json["totals"] = ToJson(totals.all);
  json["totals"]["encoded"] = ToJson(totals.encoded);
  json["totals"]["kept"] = ToJson(totals.kept);
  json["totals"]["kept_cost_bits_per_weight"] = CostOfKept(totals);
  json["notes"] = report.notes;
  json["tensors"] = Json::array();
  for (const ConvertedTensor& tensor : report.tensors) {
    json["tensors"].push_back(TensorToJson(tensor));
  }
  return json;
}

std::string ToText(const ConvertReport& report, const TableStyle& style) {
  const Totals totals = TotalsOf(report);
  const double rate =
      report.seconds > 0 ? static_cast<double>(totals.all.bytes_before) / 1e9 / report.seconds : 0;
  std::string text =
      fmt::format("{} · {} {} · {} from {} · {} at {} GB/s\n\n", Printable(report.output),
                  report.num_files, report.num_files == 1 ? "file" : "files",
                  HumanBytes(totals.all.bytes_after), HumanBytes(totals.all.bytes_before),
                  HumanMilliseconds(report.seconds * 1e3), Significant(rate, 2));
  Table table(
      {{"now", Align::kLeft}, {"tensors"}, {"parameters"}, {"before"}, {"stored"}, {"bits/w"}});
  for (const auto& [kind, sums] : totals.kinds) AddRow(table, kind, sums);
  AddRow(table, "total", totals.all);
  return text + table.Render(style) + KeptLines(report, totals);
}

}  // namespace assay

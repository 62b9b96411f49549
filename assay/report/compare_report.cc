#include "assay/report/compare_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "assay/report/border_report.h"
#include "assay/report/number.h"

namespace assay {
namespace {

constexpr size_t kShownFailures = 20;
constexpr size_t kShownWorst = 5;

double Fraction(int64_t part, int64_t whole) {
  return whole == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string Position(const std::vector<int64_t>& index) {
  return fmt::format("[{}]", fmt::join(index, ", "));
}

Json HistogramToJson(const UlpHistogram& histogram) {
  Json buckets = Json::array();
  for (size_t bucket = 0; bucket < UlpHistogram::kNumBuckets; ++bucket) {
    if (histogram.counts()[bucket] == 0) continue;
    buckets.push_back({{"from", UlpHistogram::FirstOf(bucket)},
                       {"to", UlpHistogram::LastOf(bucket)},
                       {"count", histogram.counts()[bucket]}});
  }
  return buckets;
}

Json GatesToJson(const CompareOptions& options) {
  const CompareGates& gates = options.gates;
  Json json = Json::object();
  if (gates.max_relative_rmse) json["max_relative_rmse"] = *gates.max_relative_rmse;
  if (gates.max_abs) json["max_abs"] = *gates.max_abs;
  if (gates.max_ulp) json["max_ulp"] = *gates.max_ulp;
  if (gates.min_cosine) json["min_cosine"] = *gates.min_cosine;
  json["equal"] = gates.equal;
  json["allow_missing"] = options.allow_missing;
  json["allow_dtype"] = options.allow_dtype;
  json["allow_shape"] = options.allow_shape;
  return json;
}

void AddDifference(Json& json, const TensorDifference& difference) {
  json["shape"] = difference.shape.dims();
  json["compared_as"] = NameOf(difference.dtype);
  json.update(ToJson(difference.stats));
  json["bits_equal_fraction"] = Fraction(difference.num_equal_bits, difference.num_elements);
  json["bits_identical"] = difference.num_equal_bits == difference.num_elements;
  json["sign_flips"] = difference.num_sign_flips;
  json["nonfinite_mismatches"] = difference.num_nonfinite_mismatches;
  json["max_ulp"] = difference.ulp ? Json(difference.ulp->max_ulp()) : Json(nullptr);
  if (difference.ulp) json["ulp_histogram"] = HistogramToJson(*difference.ulp);
  json["first_difference"] =
      difference.first_difference ? Json(*difference.first_difference) : Json(nullptr);
  if (difference.first_difference) json["first_difference_at"] = difference.first_index;
  if (!difference.pattern.empty()) json["pattern"] = difference.pattern;
  json["worst_rows"] = Json::array();
  for (const RowDifference& row : difference.worst_rows) {
    json["worst_rows"].push_back(
        {{"row", row.row},
         {"relative_rmse", row.relative_rmse ? Json(*row.relative_rmse) : Json(nullptr)},
         {"max_abs", row.max_abs},
         {"differing", row.num_differing}});
  }
}

Json TensorToJson(const ComparedTensor& tensor) {
  Json json;
  json["tensor"] = tensor.name;
  if (!tensor.reference.empty()) json["reference"] = tensor.reference;
  json["stored_as"] = tensor.stored_as_a;
  json["reference_stored_as"] = tensor.stored_as_b;
  json["passed"] = tensor.passed;
  json["reasons"] = tensor.reasons;
  if (!tensor.conversions.empty()) json["conversions"] = tensor.conversions;
  if (!tensor.fits_only.empty()) json["fits_only"] = tensor.fits_only;
  if (tensor.difference) AddDifference(json, *tensor.difference);
  return json;
}

bool Identical(const ComparedTensor& tensor) {
  return tensor.difference && tensor.difference->num_equal_bits == tensor.difference->num_elements;
}

double Badness(const ComparedTensor& tensor) {
  return tensor.difference ? tensor.difference->stats.relative_rmse.value_or(HUGE_VAL) : -1;
}

std::string Where(const TensorDifference& difference) {
  if (!difference.first_difference) return {};
  std::string text = fmt::format("first difference at {}", Position(difference.first_index));
  if (!difference.pattern.empty()) text += ": " + difference.pattern;
  return text;
}

std::string FailureLines(const CompareReport& report) {
  std::string text;
  size_t shown = 0;
  for (const ComparedTensor& tensor : report.tensors) {
    if (tensor.passed) continue;
    if (++shown > kShownFailures) continue;
    text += fmt::format("FAIL  {}  {}\n", Printable(tensor.name), fmt::join(tensor.reasons, "; "));
    if (tensor.difference && tensor.difference->first_difference) {
      text += fmt::format("      {}\n", Where(*tensor.difference));
    }
  }
  if (shown > kShownFailures) {
    text +=
        fmt::format("… and {} more\n", WithThousands(static_cast<int64_t>(shown - kShownFailures)));
  }
  return text;
}

std::string HistogramText(const UlpHistogram& histogram, int64_t num_elements) {
  constexpr int kPerLine = 6;
  std::string text = "    ULP distance";
  int shown = 0;
  for (size_t bucket = 0; bucket < UlpHistogram::kNumBuckets; ++bucket) {
    const int64_t count = histogram.counts()[bucket];
    if (count == 0) continue;
    if (shown++ != 0 && (shown - 1) % kPerLine == 0) text += "\n                ";
    const uint64_t first = UlpHistogram::FirstOf(bucket);
    const uint64_t last = UlpHistogram::LastOf(bucket);
    const double percent = 100.0 * Fraction(count, num_elements);
    text += fmt::format("  {}: {}",
                        first == last ? std::to_string(first) : fmt::format("{}–{}", first, last),
                        percent < 0.1 ? WithThousands(count) : Fixed(percent, 1) + " %");
  }
  if (histogram.num_unordered() > 0) {
    text += fmt::format("  NaN on one side: {}", WithThousands(histogram.num_unordered()));
  }
  return text + "\n";
}

/// Where one tensor differs, for a reader who wants to find the fault.
std::string DetailText(const ComparedTensor& tensor) {
  const TensorDifference& difference = *tensor.difference;
  std::string text =
      fmt::format("\n  {} {}\n", Printable(tensor.name), difference.shape.ToString());
  for (const std::string& conversion : tensor.conversions) {
    text += fmt::format("    {}\n", conversion);
  }
  if (difference.first_difference) text += fmt::format("    {}\n", Where(difference));
  if (difference.ulp) text += HistogramText(*difference.ulp, difference.num_elements);
  if (difference.num_sign_flips > 0) {
    text += fmt::format("    sign flips: {}\n", WithThousands(difference.num_sign_flips));
  }
  for (const RowDifference& row : difference.worst_rows) {
    text += fmt::format("    row {}: relative RMSE {}, max abs {}, {} of its elements differ\n",
                        row.row, Significant(row.relative_rmse, 3), Significant(row.max_abs, 3),
                        WithThousands(row.num_differing));
  }
  return text;
}

Table FigureTable(const std::vector<const ComparedTensor*>& tensors) {
  Table table({{"tensor", Align::kLeft, Shorten::kLeft},
               {"rel RMSE"},
               {"max abs"},
               {"max ULP"},
               {"equal"},
               {"cosine"},
               {"A as", Align::kLeft},
               {"B as", Align::kLeft}});
  for (const ComparedTensor* tensor : tensors) {
    const std::string name = Printable(tensor->name);
    const Emphasis emphasis = tensor->passed ? Emphasis::kNone : Emphasis::kBad;
    if (!tensor->difference) {
      table.AddRow({{name, emphasis},
                    "–",
                    "–",
                    "–",
                    "–",
                    "–",
                    tensor->stored_as_a.empty() ? "–" : tensor->stored_as_a,
                    tensor->stored_as_b.empty() ? "–" : tensor->stored_as_b});
      continue;
    }
    const TensorDifference& difference = *tensor->difference;
    const double equal = Fraction(difference.num_equal_bits, difference.num_elements);
    // 99.9996 % must not read as 100 %.
    const double percent = equal == 1.0 ? 100.0 : std::min(100.0 * equal, 99.99);
    table.AddRow({{name, emphasis},
                  Significant(difference.stats.relative_rmse, 3),
                  Significant(difference.stats.max_abs, 3),
                  difference.ulp ? WithThousands(static_cast<int64_t>(
                                       std::min<uint64_t>(difference.ulp->max_ulp(), INT64_MAX)))
                                 : "–",
                  Fixed(percent, 2) + " %",
                  Fixed(difference.stats.cosine, 6),
                  tensor->stored_as_a,
                  tensor->stored_as_b});
  }
  return table;
}

std::string Verdict(const CompareReport& report) {
  const auto num_tensors = static_cast<int64_t>(report.tensors.size());
  const auto num_identical = std::ranges::count_if(report.tensors, Identical);
  std::string text = fmt::format("{} of {} tensors compared · {} identical bit for bit · ",
                                 WithThousands(report.num_compared), WithThousands(num_tensors),
                                 WithThousands(num_identical));
  if (report.num_failed == 0) {
    text += report.options.gates.Any() ? "all pass\n" : "no gate asked for\n";
  } else {
    text +=
        fmt::format("{} pass, {} {}\n", WithThousands(report.num_passed),
                    WithThousands(report.num_failed), report.num_failed == 1 ? "fails" : "fail");
  }
  return text;
}

}  // namespace

Json ToJson(const CompareReport& report, ReportHead head) {
  const CompareOptions& options = report.options;
  head.schema = "assay.compare/1";
  head.scope = {fmt::format("Tensors of A ({}) against tensors of the same name in the reference B "
                            "({}){}.",
                            options.a, options.b,
                            report.border ? ", names of one side mapped to GGUF's and llama.cpp's "
                                            "conversions undone"
                                          : ""),
                options.stored ? "Planes of encoded weights are compared as they are stored."
                               : "Encoded weights are decoded first.",
                "d = A − B."};
  head.limitations = {
      "Equal weights are not equal models: configs, tokenizers and tensors without "
      "a partner are not compared."};
  Json json = MakeReport(head);
  json["a"] = options.a;
  json["b"] = options.b;
  json["gates"] = GatesToJson(options);
  json["passed"] = report.num_failed == 0;
  json["tensors_compared"] = report.num_compared;
  json["tensors_passed"] = report.num_passed;
  json["tensors_failed"] = report.num_failed;
  if (report.border) json["border"] = ToJson(*report.border);
  json["seconds"] = report.seconds;
  json["notes"] = report.notes;
  json["results"] = Json::array();
  for (const ComparedTensor& tensor : report.tensors) {
    json["results"].push_back(TensorToJson(tensor));
  }
  return json;
}

std::string ToText(const CompareReport& report, bool per_tensor, const TableStyle& style) {
  std::string text = Verdict(report);
  if (report.border) text += ToText(*report.border);
  text += FailureLines(report);
  std::vector<const ComparedTensor*> shown;
  for (const ComparedTensor& tensor : report.tensors) {
    if (per_tensor || (tensor.difference && !Identical(tensor))) shown.push_back(&tensor);
  }
  if (!per_tensor) {
    std::ranges::stable_sort(shown, [](const ComparedTensor* a, const ComparedTensor* b) {
      return Badness(*a) > Badness(*b);
    });
    shown.resize(std::min(shown.size(), kShownWorst));
  }
  if (!shown.empty()) text += "\n" + FigureTable(shown).Render(style);
  constexpr size_t kDetailed = 3;
  size_t detailed = 0;
  for (const ComparedTensor* tensor : shown) {
    const bool wanted = !tensor->passed || report.tensors.size() == 1;
    if (!wanted || !tensor->difference || Identical(*tensor) || ++detailed > kDetailed) continue;
    text += DetailText(*tensor);
  }
  const auto worse = std::ranges::count_if(report.tensors, [](const ComparedTensor& tensor) {
    return tensor.difference && !Identical(tensor);
  });
  if (!per_tensor && worse > static_cast<std::ptrdiff_t>(kShownWorst)) {
    text +=
        fmt::format("\nthe worst {} of {} that differ; all: --per-tensor\n", kShownWorst, worse);
  }
  return text;
}

}  // namespace assay

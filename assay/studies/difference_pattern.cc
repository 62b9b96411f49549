#include "assay/studies/difference_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace assay {
namespace {

std::string Ordinal(int64_t number) {
  const int64_t last_two = number % 100;
  const bool teen = last_two >= 11 && last_two <= 13;
  const char* ending = teen               ? "th"
                       : number % 10 == 1 ? "st"
                       : number % 10 == 2 ? "nd"
                       : number % 10 == 3 ? "rd"
                                          : "th";
  return fmt::format("{}{}", number, ending);
}

/// Smallest period ≤ kLongestPeriod with which the marks repeat from `first` to the end, seen at
/// least twice in full; 0 when there is none.
size_t PeriodFrom(const std::vector<bool>& marks, size_t first) {
  constexpr size_t kLongestPeriod = 4096;
  const size_t length = marks.size() - first;
  for (size_t period = 2; period <= std::min(kLongestPeriod, length / 2); ++period) {
    bool repeats = true;
    for (size_t i = first; repeats && i + period < marks.size(); ++i) {
      repeats = marks[i] == marks[i + period];
    }
    if (repeats) return period;
  }
  return 0;
}

/// The marked indices of one axis in words; empty when all are marked or no rule is seen.
std::string DescribeAxis(std::span<const int64_t> counts, std::string_view noun) {
  std::vector<bool> marks(counts.size());
  std::vector<size_t> marked;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    marks[i] = true;
    marked.push_back(i);
  }
  if (marked.empty() || marked.size() == counts.size()) return {};
  const size_t first = marked.front();
  const size_t last = marked.back();
  if (marked.size() == 1) return fmt::format("only {} {}", noun, first);
  if (last - first + 1 == marked.size()) {
    if (last + 1 == counts.size()) return fmt::format("every {} from {} on", noun, first);
    return fmt::format("{}s {} to {}", noun, first, last);
  }
  const size_t period = PeriodFrom(marks, first);
  if (period == 0) return {};
  size_t run = 1;
  while (run < period && marks[first + run]) ++run;
  const auto ends = marks.begin() + static_cast<std::ptrdiff_t>(first);
  if (std::count(ends, ends + static_cast<std::ptrdiff_t>(period), true) !=
      static_cast<std::ptrdiff_t>(run)) {
    return {};
  }
  if (run == 1) {
    return fmt::format("every {} {} from {}", Ordinal(static_cast<int64_t>(period)), noun, first);
  }
  return fmt::format("{}s {} to {}, then again every {}", noun, first, first + run - 1, period);
}

}  // namespace

std::string DescribeDifferences(std::span<const int64_t> row_counts,
                                std::span<const int64_t> column_counts) {
  constexpr double kDensityOfAPattern = 0.75;
  int64_t total = 0;
  int64_t rows = 0;
  for (const int64_t count : row_counts) {
    total += count;
    rows += count != 0 ? 1 : 0;
  }
  const auto columns = std::count_if(column_counts.begin(), column_counts.end(),
                                     [](int64_t count) { return count != 0; });
  const double crossings = static_cast<double>(rows) * static_cast<double>(columns);
  if (total == 0 || static_cast<double>(total) < kDensityOfAPattern * crossings) return {};
  std::string text = DescribeAxis(column_counts, "column");
  if (const std::string of_rows = DescribeAxis(row_counts, "row"); !of_rows.empty()) {
    if (!text.empty()) text += ", ";
    text += of_rows;
  }
  return text;
}

}  // namespace assay

#include "assay/base/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace assay {
namespace {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<std::string> NearestNames(std::string_view name, const std::vector<std::string>& names,
                                      size_t count) {
  // Beyond this a word is no typing error, and the table of distances would be large.
  constexpr size_t kLongest = 256;
  std::vector<std::pair<size_t, size_t>> order;
  for (size_t i = 0; i < names.size(); ++i) {
    order.emplace_back(EditDistance(name.substr(0, kLongest), names[i]), i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> nearest;
  for (size_t i = 0; i < std::min(count, order.size()); ++i) {
    nearest.push_back(names[order[i].second]);
  }
  return nearest;
}

}  // namespace assay

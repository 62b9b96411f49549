#include "assay/formats/catalogue.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "assay/base/error.h"
#include "assay/formats/affine.h"
#include "assay/formats/checkpoint_form.h"
#include "assay/formats/microscaling.h"
#include "assay/formats/mlx_fp.h"
#include "assay/formats/nvfp4.h"
#include "assay/formats/plain.h"

namespace assay {
namespace {

// One line a family: the only place outside its own files that knows it exists.
constexpr std::array kFamilies = {
    &kPlainFamily,
    &kAffineFamily,
    &kMicroscalingFamily,
    &kNvfp4Family,
    &kMlxFpFamily,
};

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

[[noreturn]] void ThrowUnknownFormat(std::string_view name) {
  std::vector<std::pair<size_t, std::string>> near;
  for (const FormatFamily* family : kFamilies) {
    for (std::string& known : family->names()) {
      const size_t distance = EditDistance(name, known);
      near.emplace_back(distance, std::move(known));
    }
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  constexpr size_t kSuggestions = 3;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(kSuggestions, near.size()); ++i) names.push_back(near[i].second);
  ThrowUsage("unknown format \"{}\"; nearest: {} (all: assay formats)", name,
             fmt::join(names, ", "));
}

}  // namespace

std::span<const FormatFamily* const> FormatCatalogue() { return kFamilies; }

const FormatFamily& FamilyOf(std::string_view format_name) {
  for (const FormatFamily* family : kFamilies) {
    if (family->parse(format_name)) return *family;
  }
  ThrowUnknownFormat(format_name);
}

FormatPtr Format::Parse(std::string_view name) {
  for (const FormatFamily* family : kFamilies) {
    if (FormatPtr format = family->parse(name)) return format;
  }
  ThrowUnknownFormat(name);
}

}  // namespace assay

#include "assay/measure/bootstrap.h"

#include <algorithm>
#include <vector>

#include "assay/base/error.h"
#include "assay/numeric/random.h"

namespace assay {
namespace {

double MedianOf(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 != 0) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

void Draw(std::span<const double> samples, SplitMix64& random, std::vector<double>& drawn) {
  drawn.clear();
  for (size_t i = 0; i < samples.size(); ++i) {
    // The remainder favours none of some hundred samples by more than 2^-56.
    drawn.push_back(samples[random.Next() % samples.size()]);
  }
}

}  // namespace

MedianRatio CompareMedians(std::span<const double> a, std::span<const double> b, uint64_t seed,
                           int resamples) {
  if (a.empty() || b.empty() || resamples < 40) ThrowInternal("medians: nothing to compare");
  for (const auto& samples : {a, b}) {
    if (*std::ranges::min_element(samples) <= 0) ThrowInternal("medians: a sample is not positive");
  }
  std::vector<double> drawn_a(a.begin(), a.end());
  std::vector<double> drawn_b(b.begin(), b.end());
  MedianRatio result;
  result.ratio = MedianOf(drawn_a) / MedianOf(drawn_b);
  constexpr size_t kFew = 5;
  if (std::min(a.size(), b.size()) < kFew) {
    result.low = *std::ranges::min_element(a) / *std::ranges::max_element(b);
    result.high = *std::ranges::max_element(a) / *std::ranges::min_element(b);
    return result;
  }
  SplitMix64 random(seed);
  std::vector<double> ratios;
  for (int i = 0; i < resamples; ++i) {
    Draw(a, random, drawn_a);
    Draw(b, random, drawn_b);
    ratios.push_back(MedianOf(drawn_a) / MedianOf(drawn_b));
  }
  std::ranges::sort(ratios);
  const size_t tail = ratios.size() / 40;
  result.low = ratios[tail];
  result.high = ratios[ratios.size() - 1 - tail];
  return result;
}

}  // namespace assay

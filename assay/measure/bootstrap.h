#pragma once

#include <cstdint>
#include <span>

namespace assay {

/// How two sets of samples compare: the ratio of their medians and where 95 % of its resampled
/// values lie.
struct MedianRatio {
  double ratio = 1;  ///< median of a / median of b
  double low = 1;
  double high = 1;

  /// The interval does not hold 1.
  bool differs() const noexcept { return low > 1 || high < 1; }
};

/// Percentile bootstrap: a and b are drawn again with replacement, `resamples` times, from
/// SplitMix64(seed); the interval runs from the 2.5th to the 97.5th percentile of the ratios.
/// Values: the same for the same samples and seed. With fewer than 5 samples on a side the interval
///         is what was seen: min a / max b … max a / min b.
/// Requires a, b not empty, all positive; resamples ≥ 40. Errors: internal.
/// Source:  Efron, Tibshirani: An Introduction to the Bootstrap, 1993, chapter 13.
MedianRatio CompareMedians(std::span<const double> a, std::span<const double> b, uint64_t seed = 1,
                           int resamples = 2000);

}  // namespace assay

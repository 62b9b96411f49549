#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "assay/tensor/dtype.h"

namespace assay {

/// Place of a NaN in UlpOrder: nowhere.
inline constexpr int64_t kUnordered = std::numeric_limits<int64_t>::min();

/// True for every type whose elements stand in one line (all but C64 and unknown ones).
bool HasUlpOrder(DType dtype) noexcept;

/// True when a negative place in UlpOrder means a negative value.
bool HasSign(DType dtype) noexcept;

/// Places of `out.size()` elements from `first` on the line of their type: neighbouring values
/// stand next to each other, so that a difference of places is a distance in units in the last
/// place of that very type.
/// Values: +0 and −0 both 0; the infinities one step beyond the largest finite value; NaN
/// kUnordered; integers at their own value (U64 at value − 2^63).
/// Layout: elements of F4 and F6 as safetensors packs them, least significant bits first.
/// Requires: HasUlpOrder(dtype), elements within `bytes`. Errors: internal.
void UlpOrder(DType dtype, std::span<const std::byte> bytes, int64_t first, std::span<int64_t> out);

/// Distance of two places; both unordered counts as 0, one unordered has none (callers check).
constexpr uint64_t UlpDistance(int64_t a, int64_t b) noexcept {
  return a < b ? static_cast<uint64_t>(b) - static_cast<uint64_t>(a)
               : static_cast<uint64_t>(a) - static_cast<uint64_t>(b);
}

/// How many element pairs lie how far apart.
/// Layout: bucket 0 holds distance 0, bucket 1 distance 1, bucket k ≥ 2 distances
///         2^(k−2) + 1 … 2^(k−1): 2, 3–4, 5–8, …
class UlpHistogram {
 public:
  static constexpr size_t kNumBuckets = 66;

  /// Requires a.size() = b.size().
  void Add(std::span<const int64_t> a, std::span<const int64_t> b) noexcept;
  void Merge(const UlpHistogram& other) noexcept;

  const std::array<int64_t, kNumBuckets>& counts() const noexcept { return counts_; }
  /// Pairs of which exactly one is NaN: no distance, outside every bucket.
  int64_t num_unordered() const noexcept { return num_unordered_; }
  /// Largest distance of an ordered pair.
  uint64_t max_ulp() const noexcept { return max_ulp_; }

  /// Smallest and largest distance that `bucket` holds.
  static uint64_t FirstOf(size_t bucket) noexcept;
  static uint64_t LastOf(size_t bucket) noexcept;

 private:
  std::array<int64_t, kNumBuckets> counts_{};
  int64_t num_unordered_ = 0;
  uint64_t max_ulp_ = 0;
};

}  // namespace assay

#include "assay/measure/error_stats.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/measure/error_chunk.h"

namespace assay {
namespace {

ErrorChunk MeasureErrorChunk(std::span<const double> a, std::span<const double> b) {
  ErrorChunk chunk;
  for (size_t i = 0; i < a.size(); ++i) {
    chunk.num_equal += a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ? 1 : 0;
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
    const double d = std::abs(a[i] - b[i]);
    const double rel = d / std::max(std::abs(b[i]), kRelativeFloor);
    ++chunk.num_finite;
    chunk.d2 += d * d;
    chunk.a2 += a[i] * a[i];
    chunk.b2 += b[i] * b[i];
    chunk.ab += a[i] * b[i];
    chunk.abs += d;
    chunk.rel += rel;
    chunk.max_abs = std::max(chunk.max_abs, d);
    chunk.max_rel = std::max(chunk.max_rel, rel);
  }
  return chunk;
}

}  // namespace

void ErrorSums::Sum::Add(double value) noexcept {
  const double total = high + value;
  low += std::abs(high) >= std::abs(value) ? (high - total) + value : (value - total) + high;
  high = total;
}

template <typename Value>
void ErrorSums::AddChunk(std::span<const Value> a, std::span<const Value> b) {
  const ErrorChunk chunk = MeasureErrorChunk(a, b);
  const auto size = static_cast<int64_t>(a.size());
  d2_.Add(chunk.d2);
  a2_.Add(chunk.a2);
  b2_.Add(chunk.b2);
  ab_.Add(chunk.ab);
  abs_.Add(chunk.abs);
  rel_.Add(chunk.rel);
  num_finite_ += chunk.num_finite;
  num_equal_ += chunk.num_equal;
  const bool new_max_abs = chunk.num_finite > 0 && chunk.max_abs > max_abs_;
  const bool new_max_rel = chunk.num_finite > 0 && chunk.max_rel > max_rel_;
  if (new_max_abs || new_max_rel || chunk.num_finite < size) {
    bool found_abs = !new_max_abs;
    bool found_rel = !new_max_rel;
    for (size_t i = 0; i < a.size(); ++i) {
      num_nan_ += std::isnan(a[i]) ? 1 : 0;
      num_inf_ += std::isinf(a[i]) ? 1 : 0;
      num_ref_nan_ += std::isnan(b[i]) ? 1 : 0;
      num_ref_inf_ += std::isinf(b[i]) ? 1 : 0;
      if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
      const double reference = static_cast<double>(b[i]);
      const double difference = std::abs(static_cast<double>(a[i]) - reference);
      if (!found_abs && difference == chunk.max_abs) {
        found_abs = true;
        max_abs_index_ = num_values_ + static_cast<int64_t>(i);
      }
      if (!found_rel &&
          difference / std::max(std::abs(reference), kRelativeFloor) == chunk.max_rel) {
        found_rel = true;
        max_rel_index_ = num_values_ + static_cast<int64_t>(i);
      }
    }
    if (new_max_abs) max_abs_ = chunk.max_abs;
    if (new_max_rel) max_rel_ = chunk.max_rel;
  }
  num_values_ += size;
}

template <typename Value>
void ErrorSums::AddChunks(std::span<const Value> a, std::span<const Value> b) {
  if (a.size() != b.size()) {
    ThrowInternal("errors: {} values against {} references", a.size(), b.size());
  }
  for (size_t first = 0; first < a.size(); first += kChunk) {
    const size_t count = std::min<size_t>(kChunk, a.size() - first);
    AddChunk(a.subspan(first, count), b.subspan(first, count));
  }
}

void ErrorSums::Add(std::span<const float> a, std::span<const float> b) { AddChunks(a, b); }

void ErrorSums::Add(std::span<const double> a, std::span<const double> b) { AddChunks(a, b); }

void ErrorSums::Merge(const ErrorSums& later) noexcept {
  const auto append = [](Sum& sum, const Sum& other) {
    sum.Add(other.high);
    sum.Add(other.low);
  };
  append(d2_, later.d2_);
  append(a2_, later.a2_);
  append(b2_, later.b2_);
  append(ab_, later.ab_);
  append(abs_, later.abs_);
  append(rel_, later.rel_);
  if (later.max_abs_ > max_abs_) {
    max_abs_ = later.max_abs_;
    max_abs_index_ = num_values_ + later.max_abs_index_;
  }
  if (later.max_rel_ > max_rel_) {
    max_rel_ = later.max_rel_;
    max_rel_index_ = num_values_ + later.max_rel_index_;
  }
  num_values_ += later.num_values_;
  num_finite_ += later.num_finite_;
  num_equal_ += later.num_equal_;
  num_nan_ += later.num_nan_;
  num_inf_ += later.num_inf_;
  num_ref_nan_ += later.num_ref_nan_;
  num_ref_inf_ += later.num_ref_inf_;
}

ErrorStats ErrorSums::Stats() const {
  ErrorStats stats;
  stats.num_values = num_values_;
  stats.num_finite = num_finite_;
  stats.num_nan = num_nan_;
  stats.num_inf = num_inf_;
  stats.num_ref_nan = num_ref_nan_;
  stats.num_ref_inf = num_ref_inf_;
  stats.finite = num_finite_ == num_values_;
  if (num_values_ > 0) {
    stats.equal_fraction = static_cast<double>(num_equal_) / static_cast<double>(num_values_);
  }
  const double d2 = d2_.Total();
  const double a2 = a2_.Total();
  const double b2 = b2_.Total();
  if (num_finite_ > 0) {
    const auto count = static_cast<double>(num_finite_);
    stats.rmse = std::sqrt(d2 / count);
    stats.rhs_rms = std::sqrt(b2 / count);
    stats.mean_abs = abs_.Total() / count;
    stats.mean_rel = rel_.Total() / count;
    stats.max_abs = max_abs_;
    stats.max_abs_index = max_abs_index_;
    stats.max_rel = max_rel_;
    stats.max_rel_index = max_rel_index_;
  }
  if (d2 == 0) {
    stats.relative_rmse = 0.0;
    stats.rmse_over_rhs_rms = 0.0;
  } else if (b2 > 0) {
    stats.relative_rmse = std::sqrt(d2 / b2);
    stats.rmse_over_rhs_rms = stats.rmse / stats.rhs_rms;
    stats.sqnr_db = -20.0 * std::log10(*stats.relative_rmse);
  }
  // √a2 · √b2 instead of √(a2 · b2): the product of two sums of squares may overflow.
  if (a2 > 0 && b2 > 0) stats.cosine = ab_.Total() / (std::sqrt(a2) * std::sqrt(b2));
  return stats;
}

ErrorStats MeasureErrors(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) {
    ThrowInternal("errors: {} values against {} references", a.size(), b.size());
  }
  constexpr int64_t kGrain = 64 * ErrorSums::kChunk;
  const auto size = static_cast<int64_t>(a.size());
  std::vector<ErrorSums> parts(static_cast<size_t>((size + kGrain - 1) / kGrain));
  ParallelFor(0, size, kGrain, [&](int64_t first, int64_t last) {
    const auto offset = static_cast<size_t>(first);
    const auto count = static_cast<size_t>(last - first);
    parts[static_cast<size_t>(first / kGrain)].Add(a.subspan(offset, count),
                                                   b.subspan(offset, count));
  });
  ErrorSums total;
  for (const ErrorSums& part : parts) total.Merge(part);
  return total.Stats();
}

}  // namespace assay

#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace assay {

/// How far values `a` lie from their reference `b`, d = a − b. The figures every report shares.
/// Values: sums run over the pairs of which both are finite, in double. A relative figure has no
///         value when Σb² is 0 and some d is not; it is 0 when every d is 0.
/// Accuracy: see ErrorSums.
struct ErrorStats {
  int64_t num_values = 0;   ///< pairs seen
  int64_t num_finite = 0;   ///< pairs both of which are finite; the `n` of every mean
  int64_t num_nan = 0;      ///< NaNs among a
  int64_t num_inf = 0;      ///< infinities among a
  int64_t num_ref_nan = 0;  ///< NaNs among b
  int64_t num_ref_inf = 0;  ///< infinities among b
  bool finite = true;       ///< every a and every b is

  std::optional<double> relative_rmse;      ///< √(Σd² / Σb²), also called relative L2
  double rmse = 0;                          ///< √(Σd² / n)
  double max_abs = 0;                       ///< largest |d|
  int64_t max_abs_index = -1;               ///< the first pair that has it; −1 without pairs
  double mean_abs = 0;                      ///< Σ|d| / n
  double max_rel = 0;                       ///< largest |d| / max(|b|, 1e-6)
  int64_t max_rel_index = -1;               ///< the first pair that has it; −1 without pairs
  double mean_rel = 0;                      ///< mean of |d| / max(|b|, 1e-6)
  double rhs_rms = 0;                       ///< √(Σb² / n)
  std::optional<double> rmse_over_rhs_rms;  ///< equals relative_rmse but for its last bits
  std::optional<double> cosine;   ///< Σab / √(Σa² Σb²); none when a or b is 0 everywhere
  double equal_fraction = 1;      ///< of all pairs, with −0 = +0 and NaN = NaN
  std::optional<double> sqnr_db;  ///< −20 log10(relative_rmse); none when that is 0 or none
};

/// Below this |b|, relative differences are taken against it instead.
inline constexpr double kRelativeFloor = 1e-6;

/// The sums behind ErrorStats, fed piece by piece.
/// Accuracy: every chunk of kChunk pairs is summed in 8 double lanes (lane = index mod 8), the
///           lanes are added as a fixed tree, and chunks follow each other in compensated
///           (Neumaier) sums. So the same pieces in the same order give the same bits on every
///           instruction set and thread count; other pieces change last bits only.
/// Cost: one pass; no allocation.
class ErrorSums {
 public:
  static constexpr int64_t kChunk = 1024;

  /// Appends pairs. Requires a.size() = b.size(). Errors: internal.
  void Add(std::span<const float> a, std::span<const float> b);

  /// The same for values that f32 cannot hold: f64 and wide integers. Scalar.
  void Add(std::span<const double> a, std::span<const double> b);

  /// Appends everything `later` saw, as if it stood behind this.
  void Merge(const ErrorSums& later) noexcept;

  ErrorStats Stats() const;

 private:
  struct Sum {
    double high = 0;
    double low = 0;

    void Add(double value) noexcept;
    double Total() const noexcept { return high + low; }
  };

  template <typename Value>
  void AddChunks(std::span<const Value> a, std::span<const Value> b);
  template <typename Value>
  void AddChunk(std::span<const Value> a, std::span<const Value> b);

  int64_t num_values_ = 0;
  int64_t num_finite_ = 0;
  int64_t num_equal_ = 0;
  int64_t num_nan_ = 0;
  int64_t num_inf_ = 0;
  int64_t num_ref_nan_ = 0;
  int64_t num_ref_inf_ = 0;
  Sum d2_;
  Sum a2_;
  Sum b2_;
  Sum ab_;
  Sum abs_;
  Sum rel_;
  double max_abs_ = -1;
  double max_rel_ = -1;
  int64_t max_abs_index_ = -1;
  int64_t max_rel_index_ = -1;
};

/// Errors of whole arrays, on all threads; the same bits for every number of them.
/// Requires a.size() = b.size(). Errors: internal.
ErrorStats MeasureErrors(std::span<const float> a, std::span<const float> b);

}  // namespace assay

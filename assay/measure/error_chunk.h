#pragma once

#include <cstdint>
#include <span>

namespace assay {

/// Sums over one short run of pairs; the vectorised inside of ErrorSums.
/// Pairs of which one is not finite count for nothing but num_equal.
struct ErrorChunk {
  double d2 = 0;
  double a2 = 0;
  double b2 = 0;
  double ab = 0;
  double abs = 0;
  double rel = 0;
  double max_abs = 0;
  double max_rel = 0;
  int64_t num_finite = 0;
  int64_t num_equal = 0;
};

/// Requires a.size() = b.size() ≤ ErrorSums::kChunk (not checked).
/// Accuracy: 8 lanes by index mod 8, added as ((0+4)+(2+6))+((1+5)+(3+7)); the same bits on every
///           instruction set. Products of two f32 are exact in double, so whether they are fused
///           into a sum changes nothing; d² is not, and is never fused.
ErrorChunk MeasureErrorChunk(std::span<const float> a, std::span<const float> b);

}  // namespace assay

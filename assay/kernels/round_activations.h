#pragma once

#include <cstdint>

namespace assay {

/// x rounded to int8 per group of `group` columns, and widened again: what fused-a8 multiplies.
/// Values: scale = absmax / 127 in f32 (one division); code = nearest even of x / scale by one
/// division, so |code| ≤ 127; result = code · scale. A group of zeros, or with an infinity or NaN,
/// or whose absmax is below 2^-100 (its scale would lose bits) is left as it is.
/// The last group of a row may be short.
void RoundActivations(const float* x, int64_t num_rows, int64_t cols, int64_t group, float* out);

/// Scale of one group as RoundActivations takes it; 0 when the group is left as it is.
float A8Scale(const float* x, int64_t count) noexcept;

/// Smallest absmax of a group that is rounded.
inline constexpr float kMinA8AbsMax = 0x1p-100f;

}  // namespace assay

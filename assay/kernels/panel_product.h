#pragma once

#include <cstdint>

namespace assay {

/// y[m · y_stride + r] = Σ_k x[m · x_stride + k] · w[r · w_stride + k] for every m and r.
/// Each sum is one chain of f32 multiply-adds per vector lane, then a pairwise sum of the lanes: it
/// does not depend on num_x, num_w or the position in the panel.
/// Accuracy: bounded: coefficient PanelProductCoefficient(k).
void PanelProduct(const float* x, int64_t num_x, int64_t x_stride, const float* w, int64_t num_w,
                  int64_t w_stride, int64_t k, float* y, int64_t y_stride);

/// (K/4 + 8) · 2^-24: 4 lanes on the narrowest target; the product's own rounding where the target
/// has no fused multiply-add; the sum of the lanes.
double PanelProductCoefficient(int64_t k) noexcept;

/// The target PanelProduct runs on at the moment: "avx512_dl".
const char* PanelProductTarget();

}  // namespace assay

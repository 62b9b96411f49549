#include "assay/kernels/panel_product.h"

#include "assay/base/neon_for_sve.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/kernels/panel_product.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

/// kX × kW sums at once: 8 independent chains hide the latency of the multiply-add.
template <size_t kX, size_t kW>
HWY_INLINE void Block(const float* HWY_RESTRICT x, int64_t x_stride, const float* HWY_RESTRICT w,
                      int64_t w_stride, int64_t k, float* HWY_RESTRICT y, int64_t y_stride) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[kX * kW];
  for (V& sum : sums) sum = hn::Zero(d);
  int64_t c = 0;
  for (; c + lanes <= k; c += lanes) {
    V xs[kX];
    for (size_t i = 0; i < kX; ++i)
      xs[i] = hn::LoadU(d, x + static_cast<int64_t>(i) * x_stride + c);
    for (size_t j = 0; j < kW; ++j) {
      const V row = hn::LoadU(d, w + static_cast<int64_t>(j) * w_stride + c);
      for (size_t i = 0; i < kX; ++i) sums[i * kW + j] = hn::MulAdd(xs[i], row, sums[i * kW + j]);
    }
  }
  if (c < k) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(k - c));
    for (size_t j = 0; j < kW; ++j) {
      const V row = hn::MaskedLoad(mask, d, w + static_cast<int64_t>(j) * w_stride + c);
      for (size_t i = 0; i < kX; ++i) {
        const V value = hn::MaskedLoad(mask, d, x + static_cast<int64_t>(i) * x_stride + c);
        sums[i * kW + j] = hn::MulAdd(value, row, sums[i * kW + j]);
      }
    }
  }
  for (size_t i = 0; i < kX; ++i) {
    for (size_t j = 0; j < kW; ++j) {
      y[static_cast<int64_t>(i) * y_stride + static_cast<int64_t>(j)] =
          hn::GetLane(hn::SumOfLanes(d, sums[i * kW + j]));
    }
  }
}

template <size_t kX>
HWY_INLINE void Rows(const float* x, int64_t x_stride, const float* w, int64_t num_w,
                     int64_t w_stride, int64_t k, float* y, int64_t y_stride) {
  int64_t r = 0;
  for (; r + 4 <= num_w; r += 4) {
    Block<kX, 4>(x, x_stride, w + r * w_stride, w_stride, k, y + r, y_stride);
  }
  for (; r < num_w; ++r) {
    Block<kX, 1>(x, x_stride, w + r * w_stride, w_stride, k, y + r, y_stride);
  }
}

}  // namespace

void PanelProductImpl(const float* x, int64_t num_x, int64_t x_stride, const float* w,
                      int64_t num_w, int64_t w_stride, int64_t k, float* y, int64_t y_stride) {
  int64_t m = 0;
  for (; m + 2 <= num_x; m += 2) {
    Rows<2>(x + m * x_stride, x_stride, w, num_w, w_stride, k, y + m * y_stride, y_stride);
  }
  if (m < num_x) {
    Rows<1>(x + m * x_stride, x_stride, w, num_w, w_stride, k, y + m * y_stride, y_stride);
  }
}

const char* PanelProductTargetImpl() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace assay {

HWY_EXPORT(PanelProductImpl);
HWY_EXPORT(PanelProductTargetImpl);

void PanelProduct(const float* x, int64_t num_x, int64_t x_stride, const float* w, int64_t num_w,
                  int64_t w_stride, int64_t k, float* y, int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(PanelProductImpl)
  (x, num_x, x_stride, w, num_w, w_stride, k, y, y_stride);
}

double PanelProductCoefficient(int64_t k) noexcept {
  return (static_cast<double>(k) / 4 + 8) * 0x1p-24;
}

const char* PanelProductTarget() { return HWY_DYNAMIC_DISPATCH(PanelProductTargetImpl)(); }

}  // namespace assay

#endif

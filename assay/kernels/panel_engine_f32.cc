#include "assay/kernels/panel_engine_f32.h"

#include "assay/base/neon_for_sve.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/kernels/panel_engine_f32.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Sums fill the registers beside two of x and one of W.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
constexpr size_t kRowTile = 14;
constexpr int64_t kPanelRows = 14;
constexpr int64_t kBlockK = 512;
#elif HWY_TARGET == HWY_AVX2
constexpr size_t kRowTile = 6;
constexpr int64_t kPanelRows = 96;
constexpr int64_t kBlockK = 256;
#else
constexpr size_t kRowTile = 4;
constexpr int64_t kPanelRows = 96;
constexpr int64_t kBlockK = 256;
#endif
// Rows a power of two apart would share the sets of the first-level cache.
constexpr int64_t kStride = kBlockK + 16;

/// kRowTile rows of W times kVectors vectors of rows of x.
template <size_t kVectors>
HWY_INLINE void MultiplyTile(const float* HWY_RESTRICT w, const float* HWY_RESTRICT x, int64_t k,
                             bool add, float* HWY_RESTRICT c, int64_t c_stride) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V sums[kRowTile * kVectors];
  for (V& sum : sums) sum = hn::Zero(d);
  for (int64_t i = 0; i < k; ++i) {
    V xs[kVectors];
    for (size_t v = 0; v < kVectors; ++v) xs[v] = hn::Load(d, x + v * lanes);
    x += kVectors * lanes;
    HWY_UNROLL(kRowTile)
    for (size_t r = 0; r < kRowTile; ++r) {
      const V weight = hn::Set(d, w[static_cast<int64_t>(r) * kStride + i]);
      for (size_t v = 0; v < kVectors; ++v) {
        sums[r * kVectors + v] = hn::MulAdd(weight, xs[v], sums[r * kVectors + v]);
      }
    }
  }
  for (size_t r = 0; r < kRowTile; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      float* out = c + static_cast<int64_t>(r) * c_stride + v * lanes;
      const V sum = sums[r * kVectors + v];
      hn::Store(add ? hn::Add(hn::Load(d, out), sum) : sum, d, out);
    }
  }
}

using D4 = hn::CappedTag<float, 4>;
using V4 = hn::Vec<D4>;

/// 4 × 4 values: `to` gets column i of the rows at `from`.
template <class StoreRow>
HWY_INLINE void Turn4(const float* from, int64_t stride, const StoreRow& store_row) {
  const D4 d;
  const V4 a = hn::LoadU(d, from);
  const V4 b = hn::LoadU(d, from + stride);
  const V4 e = hn::LoadU(d, from + 2 * stride);
  const V4 f = hn::LoadU(d, from + 3 * stride);
  const V4 low_ab = hn::InterleaveLower(d, a, b);
  const V4 low_ef = hn::InterleaveLower(d, e, f);
  const V4 high_ab = hn::InterleaveUpper(d, a, b);
  const V4 high_ef = hn::InterleaveUpper(d, e, f);
  store_row(0, hn::ConcatLowerLower(d, low_ef, low_ab));
  store_row(1, hn::ConcatUpperUpper(d, low_ef, low_ab));
  store_row(2, hn::ConcatLowerLower(d, high_ef, high_ab));
  store_row(3, hn::ConcatUpperUpper(d, high_ef, high_ab));
}

void PackX(const float* x, int64_t num_x, int64_t x_stride, int64_t k, int64_t width, float* out) {
  const D4 d;
  int64_t j = 0;
  for (; j + 4 <= num_x; j += 4) {
    const float* rows = x + j * x_stride;
    int64_t i = 0;
    for (; i + 4 <= k; i += 4) {
      float* to = out + i * width + j;
      Turn4(rows + i, x_stride,
            [&](int64_t row, V4 values) { hn::Store(values, d, to + row * width); });
    }
    for (; i < k; ++i) {
      for (int64_t row = 0; row < 4; ++row) out[i * width + j + row] = rows[row * x_stride + i];
    }
  }
  for (; j < width; ++j) {
    for (int64_t i = 0; i < k; ++i) out[i * width + j] = j < num_x ? x[j * x_stride + i] : 0.0f;
  }
}

void Multiply(const float* panel, int64_t row_tiles, const float* x, int64_t width, int64_t k,
              bool add, float* c, int64_t c_stride) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  constexpr int64_t kTile = kRowTile;
  int64_t j = 0;
  for (; j + 2 * lanes <= width; j += 2 * lanes) {
    for (int64_t t = 0; t < row_tiles; ++t) {
      MultiplyTile<2>(panel + t * kTile * kStride, x + j * k, k, add, c + t * kTile * c_stride + j,
                      c_stride);
    }
  }
  if (j == width) return;
  for (int64_t t = 0; t < row_tiles; ++t) {
    MultiplyTile<1>(panel + t * kTile * kStride, x + j * k, k, add, c + t * kTile * c_stride + j,
                    c_stride);
  }
}

template <bool kStream>
void WriteBlocks(const float* c, int64_t c_stride, int64_t num_w, int64_t num_x, float* y,
                 int64_t y_stride) {
  const D4 d;
  // 16 × 16: whole lines of C and of y, few enough to stay in the first-level cache.
  constexpr int64_t kBlock = 16;
  for (int64_t m = 0; m < num_x; m += kBlock) {
    const int64_t m_end = HWY_MIN(m + kBlock, num_x);
    for (int64_t n = 0; n < num_w; n += kBlock) {
      const int64_t n_end = HWY_MIN(n + kBlock, num_w);
      int64_t i = m;
      for (; i + 4 <= m_end; i += 4) {
        int64_t r = n;
        for (; r + 4 <= n_end; r += 4) {
          float* to = y + i * y_stride + r;
          Turn4(c + r * c_stride + i, c_stride, [&](int64_t row, V4 values) {
            if constexpr (kStream) {
              hn::Stream(values, d, to + row * y_stride);
            } else {
              hn::StoreU(values, d, to + row * y_stride);
            }
          });
        }
        for (; r < n_end; ++r) {
          for (int64_t row = i; row < i + 4; ++row) y[row * y_stride + r] = c[r * c_stride + row];
        }
      }
      for (; i < m_end; ++i) {
        for (int64_t r = n; r < n_end; ++r) y[i * y_stride + r] = c[r * c_stride + i];
      }
    }
  }
}

void WriteY(const float* c, int64_t c_stride, int64_t num_w, int64_t num_x, bool stream, float* y,
            int64_t y_stride) {
  if (stream) {
    WriteBlocks<true>(c, c_stride, num_w, num_x, y, y_stride);
    hwy::FlushStream();
  } else {
    WriteBlocks<false>(c, c_stride, num_w, num_x, y, y_stride);
  }
}

}  // namespace

F32PanelKernel F32PanelKernelImpl() {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  return {hwy::TargetName(HWY_TARGET),
          kRowTile,
          kPanelRows,
          2 * lanes,
          lanes,
          kBlockK,
          kStride,
          PackX,
          Multiply,
          WriteY};
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace assay {

HWY_EXPORT(F32PanelKernelImpl);

F32PanelKernel ActiveF32PanelKernel() { return HWY_DYNAMIC_DISPATCH(F32PanelKernelImpl)(); }

}  // namespace assay

#endif

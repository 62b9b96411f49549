#pragma once

// Rows of weights that are decoded to f32 in registers and multiplied by f32 x, AVX-512. Included
// by the files that instantiate it with their decoder.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "assay/base/aligned_buffer.h"
#include "assay/base/checked.h"
#include "assay/base/parallel.h"
#include "assay/kernels/kernel_family.h"
#include "assay/kernels/scales_avx512-inl.h"

namespace assay {
namespace {

/// What a decoder D supplies:
///   kColumns            columns of one step
///   kVectors            f32 vectors they make
///   Column(v, lane)     the column of the step that stands there: x is laid out in that order
///   kScales             scales of a step; vector v belongs to scale v · kScales / kVectors;
///                       0 for none
///   Row(planes, row)    where a row starts, with
///     Decode(step, out), DecodeTail(step, columns, out): columns past the end become +0
///     Scale(step, i)    scale i over the lanes
///     Prefetch(step)    ASSAY_ALWAYS_INLINE
///   Planes              what Row is made of

template <typename D>
constexpr int64_t FloatXStride(int64_t cols) {
  return CeilDiv<int64_t>(cols, D::kColumns) * D::kColumns;
}

/// num_x rows of x in the decoder's order, padded with zeros.
template <typename D>
void ArrangeX(const float* x, int64_t num_x, int64_t cols, float* out) {
  std::array<int32_t, D::kColumns> source;
  for (int v = 0; v < static_cast<int>(D::kVectors); ++v) {
    for (int lane = 0; lane < 16; ++lane) {
      source[static_cast<size_t>(v * 16 + lane)] = D::Column(v, lane);
    }
  }
  for (int64_t m = 0; m < num_x; ++m) {
    const float* row = x + m * cols;
    for (int64_t first = 0; first < cols; first += D::kColumns, out += D::kColumns) {
      const int64_t count = std::min<int64_t>(D::kColumns, cols - first);
      for (size_t i = 0; i < D::kColumns; ++i) {
        out[i] = source[i] < count ? row[first + source[i]] : 0.0f;
      }
    }
  }
}

ASSAY_AVX512_BEGIN

template <typename D>
struct FloatRows {
  static constexpr auto kVectors = static_cast<size_t>(D::kVectors);
  static constexpr auto kScales = static_cast<size_t>(D::kScales);

  /// One row of W against kX rows of x.
  template <size_t kX>
  static void Row(const typename D::Planes& planes, int64_t cols, const float* x, int64_t row,
                  float* y, int64_t y_stride) {
    // Independent chains: the sums of one row of x alone would wait for each other.
    constexpr size_t kChains = kX == 1 ? (kVectors < 4 ? kVectors : 4) : 2;
    const int64_t x_stride = FloatXStride<D>(cols);
    const typename D::Row w(planes, row);
    __m512 sums[kX][kChains];
    for (auto& chains : sums) {
      for (__m512& sum : chains) sum = _mm512_setzero_ps();
    }
    const auto add = [&](const __m512(&weights)[kVectors], int64_t step) {
      for (size_t m = 0; m < kX; ++m) {
        const float* x_at = x + static_cast<int64_t>(m) * x_stride + step * D::kColumns;
        if constexpr (kScales == 0) {
          for (size_t v = 0; v < kVectors; ++v) {
            __m512& sum = sums[m][v % kChains];
            sum = _mm512_fmadd_ps(weights[v], _mm512_load_ps(x_at + v * 16), sum);
          }
        } else {
          constexpr size_t kSpan = kVectors / kScales;
          for (size_t s = 0; s < kScales; ++s) {
            __m512 part = _mm512_mul_ps(weights[s * kSpan], _mm512_load_ps(x_at + s * kSpan * 16));
            for (size_t v = s * kSpan + 1; v < (s + 1) * kSpan; ++v) {
              part = _mm512_fmadd_ps(weights[v], _mm512_load_ps(x_at + v * 16), part);
            }
            __m512& sum = sums[m][s % kChains];
            sum = _mm512_fmadd_ps(part, w.Scale(step, static_cast<int>(s)), sum);
          }
        }
      }
    };
    const int64_t steps = cols / D::kColumns;
    for (int64_t step = 0; step < steps; ++step) {
      w.Prefetch(step);
      __m512 weights[kVectors];
      w.Decode(step, weights);
      add(weights, step);
    }
    if (const int64_t rest = cols - steps * D::kColumns; rest > 0) {
      __m512 weights[kVectors];
      w.DecodeTail(steps, rest, weights);
      add(weights, steps);
    }
    for (size_t m = 0; m < kX; ++m) {
      __m512 sum = sums[m][0];
      for (size_t i = 1; i < kChains; ++i) sum = _mm512_add_ps(sum, sums[m][i]);
      y[static_cast<int64_t>(m) * y_stride + row] = _mm512_reduce_add_ps(sum);
    }
  }

  static void Rows(const typename D::Planes& planes, int64_t rows, int64_t cols, const float* x,
                   int64_t num_x, int64_t first, int64_t last, float* y) {
    const int64_t x_stride = FloatXStride<D>(cols);
    for (int64_t n = first; n < last; ++n) {
      int64_t m = 0;
      for (; m + 4 <= num_x; m += 4) {
        Row<4>(planes, cols, x + m * x_stride, n, y + m * rows, rows);
      }
      for (; m + 2 <= num_x; m += 2) {
        Row<2>(planes, cols, x + m * x_stride, n, y + m * rows, rows);
      }
      if (m < num_x) Row<1>(planes, cols, x + m * x_stride, n, y + m * rows, rows);
    }
  }
};

ASSAY_AVX512_END

/// The kernel over a decoder; `what` names it. A family may derive to add what the dense pass
/// leaves out, or to change x first.
template <typename D>
class FloatProduct : public ProductKernel {
 public:
  FloatProduct(const EncodedMatrix& weight, const typename D::Planes& planes, std::string what)
      : weight_(weight), planes_(planes), what_(std::move(what)) {}

  std::string Name() const override { return fmt::format("{}, AVX-512", what_); }

  Accuracy Bound() const override {
    // Chains of K / 16, the lanes, scales.
    return {false, (static_cast<double>(weight_.cols) / 16 + 24) * 0x1p-24, 1,
            "(K/16 + 24) · 2^-24"};
  }

  bool Run(const Activations& x, float* y) override {
    constexpr int64_t kMaxXRows = 16;
    if (x.num_rows() > kMaxXRows) return false;
    const float* source = ChangedX(x);
    if (source == nullptr) return false;
    x_.Resize(static_cast<size_t>(x.num_rows() * FloatXStride<D>(weight_.cols)));
    ArrangeX<D>(source, x.num_rows(), weight_.cols, x_.data());
    ParallelFor(0, weight_.rows, RowGrain(weight_.rows, 1), [&](int64_t first, int64_t last) {
      FloatRows<D>::Rows(planes_, weight_.rows, weight_.cols, x_.data(), x.num_rows(), first, last,
                         y);
      Correct(x, first, last, y);
    });
    return true;
  }

 protected:
  /// x as the dense pass multiplies it; null to decline.
  virtual const float* ChangedX(const Activations& x) {
    return D::kScales != 0 && x.HasTiny() ? nullptr : x.F32();
  }
  /// Adds to rows [first, last) what the dense pass left out.
  virtual void Correct(const Activations& /*x*/, int64_t /*first*/, int64_t /*last*/,
                       float* /*y*/) const {}

  EncodedMatrix weight_;
  typename D::Planes planes_;

 private:
  std::string what_;
  AlignedBuffer<float> x_;
};

}  // namespace
}  // namespace assay

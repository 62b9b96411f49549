#include "assay/kernels/plain_gemv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "assay/base/checked.h"
#include "assay/base/neon_for_sve.h"
#include "assay/base/parallel.h"
#include "assay/base/target.h"
#include "assay/formats/plain.h"
#include "assay/numeric/bulk.h"
#include "assay/tensor/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/kernels/plain_gemv.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef ASSAY_KERNELS_PLAIN_GEMV_ONCE
#define ASSAY_KERNELS_PLAIN_GEMV_ONCE

namespace assay {
namespace {

/// Weights of one of the three types, row by row, any alignment.
struct PlainWeights {
  const std::byte* values;
  int64_t rows;
  int64_t cols;
};

/// A row of x takes PlainXStride floats: whole steps of columns, padded with zeros.
constexpr int64_t kPlainStep = 64;
constexpr int64_t PlainXStride(int64_t cols) {
  return CeilDiv<int64_t>(cols, kPlainStep) * kPlainStep;
}

/// Far enough ahead that some 100 lines are in flight while few instructions fit the window.
constexpr int64_t kPlainPrefetchBytes = 4096;

}  // namespace
}  // namespace assay

#endif

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

/// Two f32 vectors out of one register of bf16: the even and the odd elements, by a shift and a
/// mask; x is laid out in that order once per call.
struct BF16 {
  static constexpr int64_t kBytes = 2;

  static HWY_INLINE void Load2(D d, const std::byte* p, V& even, V& odd) {
    const hn::RebindToUnsigned<D> du;
    const auto words = hn::BitCast(
        du, hn::LoadU(hn::Repartition<uint8_t, D>(), reinterpret_cast<const uint8_t*>(p)));
    even = hn::BitCast(d, hn::ShiftLeft<16>(words));
    odd = hn::BitCast(d, hn::And(words, hn::Set(du, 0xFFFF0000u)));
  }

  static void ArrangeX(const float* x, int64_t count, float* out) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
    for (int64_t c = 0; c < count; ++c) {
      const int64_t at = c % (2 * lanes);
      out[c - at + at % 2 * lanes + at / 2] = x[c];
    }
  }
};

struct F16 {
  static constexpr int64_t kBytes = 2;

  static HWY_INLINE void Load2(D d, const std::byte* p, V& low, V& high) {
    const hn::Rebind<hwy::float16_t, D> dh;
    const auto* values = reinterpret_cast<const hwy::float16_t*>(p);
    low = hn::PromoteTo(d, hn::LoadU(dh, values));
    high = hn::PromoteTo(d, hn::LoadU(dh, values + hn::Lanes(d)));
  }

  static void ArrangeX(const float* x, int64_t count, float* out) { std::copy_n(x, count, out); }
};

struct F32 {
  static constexpr int64_t kBytes = 4;

  static HWY_INLINE void Load2(D d, const std::byte* p, V& low, V& high) {
    const auto* values = reinterpret_cast<const float*>(p);
    low = hn::LoadU(d, values);
    high = hn::LoadU(d, values + hn::Lanes(d));
  }

  static void ArrangeX(const float* x, int64_t count, float* out) { std::copy_n(x, count, out); }
};

/// kRows rows of W against kX rows of x; with one of each, four chains per sum hide the latency.
template <typename T, size_t kRows, size_t kX>
HWY_INLINE void Block(const PlainWeights& w, const float* x, int64_t row, float* y) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t row_bytes = w.cols * T::kBytes;
  const int64_t x_stride = PlainXStride(w.cols);
  const std::byte* rows = w.values + row * row_bytes;
  V sums[kRows][kX];
  V others[kRows][kX];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t m = 0; m < kX; ++m) sums[r][m] = others[r][m] = hn::Zero(d);
  }
  const int64_t step = 2 * lanes;
  const auto add = [&](const std::byte* at, int64_t stride, int64_t c) HWY_ATTR {
    for (size_t r = 0; r < kRows; ++r) {
      V first, second;
      T::Load2(d, at + static_cast<int64_t>(r) * stride, first, second);
      for (size_t m = 0; m < kX; ++m) {
        const float* x_at = x + static_cast<int64_t>(m) * x_stride + c;
        sums[r][m] = hn::MulAdd(first, hn::LoadU(d, x_at), sums[r][m]);
        others[r][m] = hn::MulAdd(second, hn::LoadU(d, x_at + lanes), others[r][m]);
      }
    }
  };
  int64_t c = 0;
  constexpr int64_t kLine = 64 / T::kBytes;
  for (; c + kPlainStep <= w.cols; c += kPlainStep) {
    const std::byte* at = rows + c * T::kBytes;
    for (size_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < kPlainStep; i += kLine) {
        hwy::Prefetch(at + static_cast<int64_t>(r) * row_bytes + i * T::kBytes +
                      kPlainPrefetchBytes);
      }
    }
    for (int64_t i = 0; i < kPlainStep; i += step) add(at + i * T::kBytes, row_bytes, c + i);
  }
  if (c < w.cols) {
    // The last columns by a copy padded with zeros, which meets the zeros behind x.
    alignas(64) std::byte tail[kRows * kPlainStep * T::kBytes] = {};
    constexpr int64_t kTailStride = kPlainStep * T::kBytes;
    for (size_t r = 0; r < kRows; ++r) {
      const auto row_index = static_cast<int64_t>(r);
      std::copy_n(rows + row_index * row_bytes + c * T::kBytes, (w.cols - c) * T::kBytes,
                  tail + row_index * kTailStride);
    }
    for (int64_t i = 0; i < kPlainStep; i += step) {
      add(tail + i * T::kBytes, kTailStride, c + i);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t m = 0; m < kX; ++m) {
      y[static_cast<int64_t>(m) * w.rows + row + static_cast<int64_t>(r)] =
          hn::GetLane(hn::SumOfLanes(d, hn::Add(sums[r][m], others[r][m])));
    }
  }
}

template <typename T>
void RowsOf(const PlainWeights& w, const float* x, int64_t num_x, int64_t first, int64_t last,
            float* y) {
  const int64_t x_stride = PlainXStride(w.cols);
  // More rows of x: four rows of W share each load of it, and stay in the cache meanwhile.
  for (; num_x > 1 && first + 4 <= last; first += 4) {
    int64_t m = 0;
    for (; m + 2 <= num_x; m += 2) Block<T, 4, 2>(w, x + m * x_stride, first, y + m * w.rows);
    if (m < num_x) Block<T, 4, 1>(w, x + m * x_stride, first, y + m * w.rows);
  }
  // x beyond a first-level cache: two rows share each load of it.
  constexpr int64_t kCacheFloats = 10 << 10;
  for (; num_x == 1 && x_stride > kCacheFloats && first + 2 <= last; first += 2) {
    Block<T, 2, 1>(w, x, first, y);
  }
  for (; first < last; ++first) {
    for (int64_t m = 0; m < num_x; ++m) {
      Block<T, 1, 1>(w, x + m * x_stride, first, y + m * w.rows);
    }
  }
}

template <typename T>
void ArrangeXOf(const float* x, int64_t num_x, int64_t cols, float* out) {
  const int64_t stride = PlainXStride(cols);
  std::fill_n(out, num_x * stride, 0.0f);
  for (int64_t m = 0; m < num_x; ++m) T::ArrangeX(x + m * cols, cols, out + m * stride);
}

}  // namespace

void PlainRows(DType dtype, const PlainWeights& w, const float* x, int64_t num_x, int64_t first,
               int64_t last, float* y) {
  if (dtype == DType::kBF16) {
    RowsOf<BF16>(w, x, num_x, first, last, y);
  } else if (dtype == DType::kF16) {
    RowsOf<F16>(w, x, num_x, first, last, y);
  } else {
    RowsOf<F32>(w, x, num_x, first, last, y);
  }
}

void PlainArrangeX(DType dtype, const float* x, int64_t num_x, int64_t cols, float* out) {
  if (dtype == DType::kBF16) {
    ArrangeXOf<BF16>(x, num_x, cols, out);
  } else {
    ArrangeXOf<F32>(x, num_x, cols, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace assay {
namespace {

HWY_EXPORT(PlainRows);
HWY_EXPORT(PlainArrangeX);

constexpr int64_t kMaxXRows = 16;

class PlainGemv final : public ProductKernel {
 public:
  PlainGemv(const EncodedMatrix& weight, const Tensor& values)
      : values_(values),
        weights_{values_.bytes().data(), weight.rows, weight.cols},
        target_(ActiveTargetName()),
        arrange_x_(&HWY_DYNAMIC_DISPATCH(PlainArrangeX)),
        rows_(&HWY_DYNAMIC_DISPATCH(PlainRows)) {}

  std::string Name() const override {
    return fmt::format("{} rows times f32 x, {}", NameOf(values_.dtype()), target_);
  }

  Accuracy Bound() const override {
    // Two chains of K / 8 on the narrowest target, a rounding of the product where it is not fused.
    return {false, (static_cast<double>(weights_.cols) / 8 + 16) * 0x1p-24, 1,
            "(K/8 + 16) · 2^-24"};
  }

  bool Run(const Activations& x, float* y) override {
    if (x.num_rows() > kMaxXRows) return false;
    x_.Resize(static_cast<size_t>(x.num_rows() * PlainXStride(weights_.cols)));
    arrange_x_(values_.dtype(), x.F32(), x.num_rows(), weights_.cols, x_.data());
    ParallelFor(0, weights_.rows, RowGrain(weights_.rows, 4), [&](int64_t first, int64_t last) {
      rows_(values_.dtype(), weights_, x_.data(), x.num_rows(), first, last, y);
    });
    return true;
  }

 private:
  Tensor values_;
  PlainWeights weights_;
  std::string target_;
  void (*arrange_x_)(DType, const float*, int64_t, int64_t, float*);
  void (*rows_)(DType, const PlainWeights&, const float*, int64_t, int64_t, int64_t, float*);
  AlignedBuffer<float> x_;
};

/// Any columns of the stored values.
class PlainDecoder final : public PanelDecoder {
 public:
  explicit PlainDecoder(const EncodedMatrix& weight)
      : values_(weight.planes.front().tensor), cols_(weight.cols) {}

  int64_t ColumnGrain() const noexcept override { return 1; }

  void DecodeF32(int64_t first_row, int64_t num_rows, int64_t first_col, int64_t num_cols,
                 float* out, int64_t row_stride) const override {
    for (int64_t r = 0; r < num_rows; ++r) {
      Widen(ElementOf(values_.dtype()), Values(first_row + r, first_col, num_cols),
            {out + r * row_stride, static_cast<size_t>(num_cols)});
    }
  }

  void DecodeBF16(int64_t first_row, int64_t num_rows, int64_t first_col, int64_t num_cols,
                  uint16_t* out, int64_t row_stride) const override {
    if (values_.dtype() != DType::kBF16) {
      PanelDecoder::DecodeBF16(first_row, num_rows, first_col, num_cols, out, row_stride);
      return;
    }
    for (int64_t r = 0; r < num_rows; ++r) {
      const auto words = Values(first_row + r, first_col, num_cols);
      std::memcpy(out + r * row_stride, words.data(), words.size());
    }
  }

 private:
  std::span<const std::byte> Values(int64_t row, int64_t col, int64_t count) const {
    const int64_t bytes = BitsOf(values_.dtype()) / 8;
    return values_.bytes().subspan(static_cast<size_t>((row * cols_ + col) * bytes),
                                   static_cast<size_t>(count * bytes));
  }

  Tensor values_;
  int64_t cols_;
};

/// Plain values decode to themselves under either rounding.
std::unique_ptr<PanelDecoder> MakeDecoder(const EncodedMatrix& weight,
                                          DecodeRounding /*rounding*/) {
  if (FamilyOf(weight.format->Name()).name != kPlainFamily.name) return nullptr;
  return std::make_unique<PlainDecoder>(weight);
}

void AddPlainKernels(const KernelRequest& request,
                     std::vector<std::unique_ptr<ProductKernel>>& kernels) {
  if (request.a8 || FamilyOf(request.weight.format->Name()).name != kPlainFamily.name) return;
  kernels.push_back(
      std::make_unique<PlainGemv>(request.weight, request.weight.planes.front().tensor));
}

}  // namespace

const KernelFamily kPlainKernels = {
    .name = "plain", .add_kernels = AddPlainKernels, .make_decoder = MakeDecoder};

}  // namespace assay

#endif  // HWY_ONCE

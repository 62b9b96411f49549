#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "assay/base/checked.h"
#include "assay/base/parallel.h"
#include "assay/base/target.h"
#include "assay/formats/affine.h"
#include "assay/kernels/affine_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/kernels/affine_lanes.cc"
#include <hwy/foreach_target.h>
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#ifndef ASSAY_KERNELS_AFFINE_LANES_ONCE
#define ASSAY_KERNELS_AFFINE_LANES_ONCE

namespace assay {
namespace {

// Codes stay where they are in their 32-bit word: a mask takes every 32 / bits-th of them out, the
// conversion to f32 is exact (at most 8 significant bits), and the power of two that stands before
// the code is divided out of x once per call. Three vector instructions a vector of codes.

/// Planes and x of one call. Unit: the codes of one vector of words.
struct LaneProduct {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* biases;
  DType dtype;  ///< of scales and biases
  int64_t rows;
  int64_t cols;
  int64_t group;
  int group_shift;    ///< log2(group)
  const float* x;     ///< [num_x][unit][code of the word][lane], times 2^-shift
  const float* sums;  ///< [num_x][padded groups]
  int64_t num_x;
  int64_t x_stride;
  int64_t sums_stride;
};

constexpr int64_t kLanePrefetchBytes = 4096;
constexpr int64_t kGroupPadding = 16;

}  // namespace
}  // namespace assay

#endif

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<D>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;

/// Widens `count` scales; out has room for kGroupPadding more.
void WidenScales(DType dtype, const std::byte* from, int64_t count, float* out) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) {
    // The last vector of the plane must not read past its end.
    alignas(64) float values[16] = {};
    const auto left = std::min(lanes, count - i);
    const int64_t bytes = dtype == DType::kF32 ? 4 : 2;
    const std::byte* at = from + i * bytes;
    if (left < lanes) {
      std::copy_n(at, left * bytes, reinterpret_cast<std::byte*>(values));
      at = reinterpret_cast<const std::byte*>(values);
    }
    V wide;
    if (dtype == DType::kBF16) {
      const hn::Rebind<uint16_t, D> dh;
      const auto words = hn::LoadU(dh, reinterpret_cast<const uint16_t*>(at));
      wide = hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(DU(), words)));
    } else if (dtype == DType::kF16) {
      const hn::Rebind<hwy::float16_t, D> dh;
      wide = hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(at)));
    } else {
      wide = hn::LoadU(d, reinterpret_cast<const float*>(at));
    }
    hn::StoreU(wide, d, out + i);
  }
}

template <int kBits, size_t kX>
HWY_INLINE void Row(const LaneProduct& p, int64_t row, int64_t m, const float* scales,
                    const float* biases, float* y) {
  const D d;
  const DU du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int kPerWord = 32 / kBits;
  const int64_t unit = kPerWord * lanes;
  const int64_t unit_bytes = 4 * lanes;
  const std::byte* codes = p.codes + row * (p.cols * kBits / 8);
  const float* x = p.x + m * p.x_stride;
  // A word's codes share a group; the words of a unit may not.
  const bool one_group = p.group >= unit;
  alignas(64) int32_t offsets[16] = {};
  for (int64_t l = 0; l < lanes && !one_group; ++l) {
    offsets[l] = static_cast<int32_t>(l * kPerWord >> p.group_shift);
  }
  const auto group_of_lane = hn::SetTableIndices(d, offsets);
  V sums[kX];
  for (V& sum : sums) sum = hn::Zero(d);
  const auto add = [&](hn::Vec<DU> words, int64_t u) HWY_ATTR {
    V parts[kX];
    for (V& part : parts) part = hn::Zero(d);
    const float* x_unit = x + u * unit;
    for (int j = 0; j < kPerWord; ++j) {
      // The sign bit belongs to the last code: that one is shifted down instead.
      const bool last = j == kPerWord - 1;
      const auto code = last ? hn::ShiftRight<32 - kBits>(words)
                             : hn::And(words, hn::Set(du, ((1u << kBits) - 1) << (kBits * j)));
      const V value = hn::ConvertTo(d, hn::BitCast(DI(), code));
      for (size_t i = 0; i < kX; ++i) {
        parts[i] = hn::MulAdd(
            value, hn::LoadU(d, x_unit + static_cast<int64_t>(i) * p.x_stride + j * lanes),
            parts[i]);
      }
    }
    const float* scale_at = scales + (u * unit >> p.group_shift);
    const V scale = one_group ? hn::Set(d, *scale_at)
                              : hn::TableLookupLanes(hn::LoadU(d, scale_at), group_of_lane);
    for (size_t i = 0; i < kX; ++i) sums[i] = hn::MulAdd(parts[i], scale, sums[i]);
  };
  const int64_t units = p.cols / unit;
  for (int64_t u = 0; u < units; ++u) {
    const std::byte* at = codes + u * unit_bytes;
    hwy::Prefetch(at + kLanePrefetchBytes);
    add(hn::BitCast(du,
                    hn::LoadU(hn::Repartition<uint8_t, D>(), reinterpret_cast<const uint8_t*>(at))),
        u);
  }
  if (const int64_t rest = p.cols - units * unit; rest > 0) {
    alignas(64) uint8_t tail[64] = {};
    std::copy_n(reinterpret_cast<const uint8_t*>(codes + units * unit_bytes), rest * kBits / 8,
                tail);
    add(hn::BitCast(du, hn::Load(hn::Repartition<uint8_t, D>(), tail)), units);
  }
  const int64_t groups = p.cols / p.group;
  for (int64_t g = 0; g < groups; g += lanes) {
    const V bias = hn::LoadU(d, biases + g);
    for (size_t i = 0; i < kX; ++i) {
      const float* x_sums = p.sums + (m + static_cast<int64_t>(i)) * p.sums_stride;
      sums[i] = hn::MulAdd(bias, hn::LoadU(d, x_sums + g), sums[i]);
    }
  }
  for (size_t i = 0; i < kX; ++i) {
    y[(m + static_cast<int64_t>(i)) * p.rows + row] = hn::GetLane(hn::SumOfLanes(d, sums[i]));
  }
}

template <int kBits>
void RowsOf(const LaneProduct& p, int64_t first, int64_t last, float* y) {
  const int64_t groups = p.cols / p.group;
  thread_local AlignedBuffer<float> widened;
  widened.Resize(static_cast<size_t>(2 * (groups + 2 * kGroupPadding)));
  float* scales = widened.data();
  float* biases = scales + groups + 2 * kGroupPadding;
  std::fill_n(scales, widened.size(), 0.0f);
  const int64_t row_bytes = groups * (p.dtype == DType::kF32 ? 4 : 2);
  for (int64_t n = first; n < last; ++n) {
    WidenScales(p.dtype, p.scales + n * row_bytes, groups, scales);
    WidenScales(p.dtype, p.biases + n * row_bytes, groups, biases);
    int64_t m = 0;
    for (; m + 4 <= p.num_x; m += 4) Row<kBits, 4>(p, n, m, scales, biases, y);
    for (; m + 2 <= p.num_x; m += 2) Row<kBits, 2>(p, n, m, scales, biases, y);
    if (m < p.num_x) Row<kBits, 1>(p, n, m, scales, biases, y);
  }
}

template <int kBits>
void ArrangeOf(const float* x, int64_t cols, float* out) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  constexpr int64_t kPerWord = 32 / kBits;
  const int64_t unit = kPerWord * lanes;
  for (int64_t c = 0; c < cols; ++c) {
    const int64_t in_unit = c % unit;
    const int64_t j = in_unit % kPerWord;
    const int64_t shift = j == kPerWord - 1 ? 0 : kBits * j;
    const float down = 1.0f / static_cast<float>(uint32_t{1} << shift);
    out[c - in_unit + j * lanes + in_unit / kPerWord] = x[c] * down;
  }
}

}  // namespace

void AffineLaneRows(int bits, const LaneProduct& p, int64_t first, int64_t last, float* y) {
  if (bits == 2) {
    RowsOf<2>(p, first, last, y);
  } else if (bits == 4) {
    RowsOf<4>(p, first, last, y);
  } else {
    RowsOf<8>(p, first, last, y);
  }
}

/// One row of x into words' order; returns the floats it takes, zeros behind the last column.
int64_t AffineLaneArrange(int bits, const float* x, int64_t cols, float* out) {
  const int64_t unit = 32 / bits * static_cast<int64_t>(hn::Lanes(D()));
  const int64_t stride = CeilDiv(cols, unit) * unit;
  if (out == nullptr) return stride;
  std::fill_n(out, stride, 0.0f);
  if (bits == 2) {
    ArrangeOf<2>(x, cols, out);
  } else if (bits == 4) {
    ArrangeOf<4>(x, cols, out);
  } else {
    ArrangeOf<8>(x, cols, out);
  }
  return stride;
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace assay {
namespace {

HWY_EXPORT(AffineLaneRows);
HWY_EXPORT(AffineLaneArrange);

constexpr int64_t kMaxXRows = 16;

class AffineLanes final : public ProductKernel {
 public:
  AffineLanes(const EncodedMatrix& weight, const AffineFormat& format)
      : weight_(weight),
        bits_(format.bits()),
        target_(ActiveTargetName()),
        arrange_(&HWY_DYNAMIC_DISPATCH(AffineLaneArrange)),
        rows_(&HWY_DYNAMIC_DISPATCH(AffineLaneRows)),
        product_{weight_.Get("codes").bytes().data(),
                 weight_.Get("scales").bytes().data(),
                 weight_.Get("biases").bytes().data(),
                 weight.dtype,
                 weight.rows,
                 weight.cols,
                 format.group_size(),
                 std::countr_zero(static_cast<unsigned>(format.group_size())),
                 nullptr,
                 nullptr,
                 0,
                 arrange_(bits_, nullptr, weight.cols, nullptr),
                 weight.cols / format.group_size() + kGroupPadding} {}

  std::string Name() const override {
    return fmt::format("affine{} codes masked in their words times f32 x, {}", bits_, target_);
  }

  Accuracy Bound() const override {
    // Chains of K / 16 on the narrowest target, products rounded apart where not fused.
    return {false, (static_cast<double>(weight_.cols) / 8 + 40) * 0x1p-24, 1, "(K/8 + 40) · 2^-24"};
  }

  bool Run(const Activations& x, float* y) override {
    // Infinities would meet codes of 0; tiny x would lose bits to the division by powers of two.
    if (x.num_rows() > kMaxXRows || !x.AllFinite() || x.HasTiny()) return false;
    const float* values = x.F32();
    product_.num_x = x.num_rows();
    x_.Resize(static_cast<size_t>(x.num_rows() * product_.x_stride));
    sums_.Resize(static_cast<size_t>(x.num_rows() * product_.sums_stride));
    std::fill_n(sums_.data(), sums_.size(), 0.0f);
    for (int64_t m = 0; m < x.num_rows(); ++m) {
      const float* row = values + m * x.cols();
      arrange_(bits_, row, x.cols(), x_.data() + m * product_.x_stride);
      for (int64_t g = 0; g < x.cols() / product_.group; ++g) {
        double sum = 0;
        for (int64_t i = 0; i < product_.group; ++i) {
          sum += static_cast<double>(row[g * product_.group + i]);
        }
        sums_[static_cast<size_t>(m * product_.sums_stride + g)] = static_cast<float>(sum);
      }
    }
    product_.x = x_.data();
    product_.sums = sums_.data();
    ParallelFor(0, weight_.rows, RowGrain(weight_.rows, 1),
                [&](int64_t first, int64_t last) { rows_(bits_, product_, first, last, y); });
    return true;
  }

 private:
  EncodedMatrix weight_;
  int bits_;
  std::string target_;
  int64_t (*arrange_)(int, const float*, int64_t, float*);
  void (*rows_)(int, const LaneProduct&, int64_t, int64_t, float*);
  LaneProduct product_;
  AlignedBuffer<float> x_;
  AlignedBuffer<float> sums_;
};

}  // namespace

std::unique_ptr<ProductKernel> MakeAffineLanes(const EncodedMatrix& weight) {
  const auto* format = dynamic_cast<const AffineFormat*>(weight.format.get());
  if (format == nullptr) return nullptr;
  if (format->bits() != 2 && format->bits() != 4 && format->bits() != 8) return nullptr;
  return std::make_unique<AffineLanes>(weight, *format);
}

}  // namespace assay

#endif  // HWY_ONCE

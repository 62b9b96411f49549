#include "assay/kernels/code_lanes.h"

#include <algorithm>
#include <bit>

#include "assay/base/aligned_buffer.h"
#include "assay/base/checked.h"
#include "assay/base/neon_for_sve.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/kernels/code_lanes.cc"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<D>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;

constexpr int64_t kLanePrefetchBytes = 4096;

/// Widens `count` scales; out has room for kGroupPadding more.
void WidenScales(const LaneProduct& p, const std::byte* from, int64_t count, float* out) {
  const DType dtype = p.dtype;
  if (p.scale_table != nullptr) {
    for (int64_t i = 0; i < count; ++i) out[i] = p.scale_table[static_cast<size_t>(from[i])];
    return;
  }
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

/// The codes of a vector of words as f32, one vector for each code of a word, times a power of two
/// that x was divided by.
template <LaneCodes kCodes>
struct Words {
  static constexpr int kBits = BitsOf(kCodes);
  static constexpr int kPerWord = 32 / kBits;

  HWY_INLINE Words(hn::Vec<DU> packed, const int8_t* /*table*/) : words(packed) {}

  HWY_INLINE V Value(int j) const {
    // The sign bit belongs to the last code: that one is shifted down instead.
    const auto code = j == kPerWord - 1
                          ? hn::ShiftRight<32 - kBits>(words)
                          : hn::And(words, hn::Set(DU(), ((1u << kBits) - 1) << (kBits * j)));
    return hn::ConvertTo(D(), hn::BitCast(DI(), code));
  }
  /// log2 of what Value(j) is too large by.
  static constexpr int Shift(int j) { return j == kPerWord - 1 ? 0 : kBits * j; }

  hn::Vec<DU> words;
};

/// The byte at place `j` of each word, counted from the lowest, at its top, the others 0.
HWY_INLINE V SignedByte(hn::Vec<DU> bytes, int j) {
  const auto top = hn::Set(DU(), 0xFF000000u);
  const auto moved = j == 0   ? hn::ShiftLeft<24>(bytes)
                     : j == 1 ? hn::And(hn::ShiftLeft<16>(bytes), top)
                     : j == 2 ? hn::And(hn::ShiftLeft<8>(bytes), top)
                              : hn::And(bytes, top);
  return hn::ConvertTo(D(), hn::BitCast(DI(), moved));
}

/// Nibbles by way of a byte table.
template <>
struct Words<LaneCodes::kTable4> {
  static constexpr int kPerWord = 8;

  HWY_INLINE Words(hn::Vec<DU> packed, const int8_t* entries) : even(packed), odd(packed) {
    const hn::Repartition<uint8_t, D> d8;
    const auto table = hn::LoadDup128(d8, reinterpret_cast<const uint8_t*>(entries));
    const auto low = hn::Set(DU(), 0x0F0F0F0Fu);
    even = hn::BitCast(DU(), hn::TableLookupBytes(table, hn::BitCast(d8, hn::And(packed, low))));
    odd = hn::BitCast(DU(), hn::TableLookupBytes(
                                table, hn::BitCast(d8, hn::And(hn::ShiftRight<4>(packed), low))));
  }

  HWY_INLINE V Value(int j) const { return SignedByte(j % 2 == 0 ? even : odd, j / 2); }
  static constexpr int Shift(int /*j*/) { return 24; }

  hn::Vec<DU> even;
  hn::Vec<DU> odd;
};

template <>
struct Words<LaneCodes::kInt8> {
  static constexpr int kPerWord = 4;

  HWY_INLINE Words(hn::Vec<DU> packed, const int8_t* /*table*/) : words(packed) {}

  HWY_INLINE V Value(int j) const { return SignedByte(words, j); }
  static constexpr int Shift(int /*j*/) { return 24; }

  hn::Vec<DU> words;
};

template <LaneCodes kCodes, size_t kX>
HWY_INLINE void Row(const LaneProduct& p, int64_t row, int64_t m, const float* scales,
                    const float* biases, float* y) {
  const D d;
  const DU du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int kBits = BitsOf(kCodes);
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
    const Words<kCodes> unpacked(words, p.table);
    for (int j = 0; j < kPerWord; ++j) {
      const V value = unpacked.Value(j);
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
  const int64_t groups = p.biases == nullptr ? 0 : p.cols / p.group;
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

template <LaneCodes kCodes>
void RowsOf(const LaneProduct& p, int64_t first, int64_t last, float* y) {
  const int64_t groups = p.cols / p.group;
  thread_local AlignedBuffer<float> widened;
  widened.Resize(static_cast<size_t>(2 * (groups + 2 * kGroupPadding)));
  float* scales = widened.data();
  float* biases = scales + groups + 2 * kGroupPadding;
  std::fill_n(scales, widened.size(), 0.0f);
  const int64_t row_bytes = groups * (p.scale_table != nullptr ? 1
                                      : p.dtype == DType::kF32 ? 4
                                                               : 2);
  for (int64_t n = first; n < last; ++n) {
    WidenScales(p, p.scales + n * row_bytes, groups, scales);
    if (p.biases != nullptr) WidenScales(p, p.biases + n * row_bytes, groups, biases);
    int64_t m = 0;
    for (; m + 4 <= p.num_x; m += 4) Row<kCodes, 4>(p, n, m, scales, biases, y);
    for (; m + 2 <= p.num_x; m += 2) Row<kCodes, 2>(p, n, m, scales, biases, y);
    if (m < p.num_x) Row<kCodes, 1>(p, n, m, scales, biases, y);
  }
}

template <LaneCodes kCodes>
void ArrangeOf(float factor, const float* x, int64_t cols, float* out) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  constexpr int64_t kPerWord = Words<kCodes>::kPerWord;
  const int64_t unit = kPerWord * lanes;
  for (int64_t c = 0; c < cols; ++c) {
    const int64_t in_unit = c % unit;
    const int64_t j = in_unit % kPerWord;
    const float down =
        factor / static_cast<float>(uint32_t{1} << Words<kCodes>::Shift(static_cast<int>(j)));
    out[c - in_unit + j * lanes + in_unit / kPerWord] = x[c] * down;
  }
}

}  // namespace

void CodeLaneRows(LaneCodes codes, const LaneProduct& p, int64_t first, int64_t last, float* y) {
  switch (codes) {
    case LaneCodes::kAffine2:
      return RowsOf<LaneCodes::kAffine2>(p, first, last, y);
    case LaneCodes::kAffine4:
      return RowsOf<LaneCodes::kAffine4>(p, first, last, y);
    case LaneCodes::kAffine8:
      return RowsOf<LaneCodes::kAffine8>(p, first, last, y);
    case LaneCodes::kTable4:
      return RowsOf<LaneCodes::kTable4>(p, first, last, y);
    case LaneCodes::kInt8:
      return RowsOf<LaneCodes::kInt8>(p, first, last, y);
  }
}

int64_t CodeLaneArrange(LaneCodes codes, float factor, const float* x, int64_t cols, float* out) {
  const int64_t unit = 32 / BitsOf(codes) * static_cast<int64_t>(hn::Lanes(D()));
  const int64_t stride = CeilDiv(cols, unit) * unit;
  if (out == nullptr) return stride;
  std::fill_n(out, stride, 0.0f);
  switch (codes) {
    case LaneCodes::kAffine2:
      ArrangeOf<LaneCodes::kAffine2>(factor, x, cols, out);
      break;
    case LaneCodes::kAffine4:
      ArrangeOf<LaneCodes::kAffine4>(factor, x, cols, out);
      break;
    case LaneCodes::kAffine8:
      ArrangeOf<LaneCodes::kAffine8>(factor, x, cols, out);
      break;
    case LaneCodes::kTable4:
      ArrangeOf<LaneCodes::kTable4>(factor, x, cols, out);
      break;
    case LaneCodes::kInt8:
      ArrangeOf<LaneCodes::kInt8>(factor, x, cols, out);
      break;
  }
  return stride;
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace assay {

HWY_EXPORT(CodeLaneRows);
HWY_EXPORT(CodeLaneArrange);

LaneFunctions ActiveLaneFunctions() {
  return {&HWY_DYNAMIC_DISPATCH(CodeLaneArrange), &HWY_DYNAMIC_DISPATCH(CodeLaneRows)};
}

}  // namespace assay

#endif  // HWY_ONCE

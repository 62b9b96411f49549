// The Walsh–Hadamard transform of hadamard.h, for inclusion in files that are compiled once per
// target.

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

#if defined(ASSAY_NUMERIC_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_NUMERIC_HADAMARD_INL_H_
#undef ASSAY_NUMERIC_HADAMARD_INL_H_
#else
#define ASSAY_NUMERIC_HADAMARD_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Butterflies between lanes kStride apart. Requires kStride < Lanes(df), a power of two.
/// A lane becomes its partner plus itself, itself negated in the upper lane of each pair: b + a
/// below and a + (−b) above, the bits of a + b and a − b.
template <int32_t kStride, class DF>
HWY_INLINE hn::Vec<DF> ButterflyLanes(DF df, hn::Vec<DF> v) {
  const hn::RebindToSigned<DF> di;
  const auto lane = hn::Iota(di, 0);
  const auto stride = hn::Set(di, kStride);
  const auto is_upper = hn::Ne(hn::And(lane, stride), hn::Zero(di));
  const auto sign = hn::IfThenElseZero(hn::RebindMask(df, is_upper), hn::SignBit(df));
  hn::Vec<DF> partner;
  if constexpr (kStride == 1) {
    partner = hn::Shuffle2301(v);
  } else if constexpr (kStride == 2) {
    partner = hn::Shuffle1032(v);
  } else {
    partner = hn::TableLookupLanes(v, hn::IndicesFromVec(df, hn::Xor(lane, stride)));
  }
  return hn::Add(partner, hn::Xor(v, sign));
}

/// All strides below the number of lanes.
template <class DF>
HWY_INLINE hn::Vec<DF> TransformLanes(DF df, hn::Vec<DF> v) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  static_assert(kLanes == 1 || (kLanes >= 4 && kLanes <= 16), "vectors of 16 to 64 bytes");
  if constexpr (kLanes >= 4) v = ButterflyLanes<2>(df, ButterflyLanes<1>(df, v));
  if constexpr (kLanes >= 8) v = ButterflyLanes<4>(df, v);
  if constexpr (kLanes >= 16) v = ButterflyLanes<8>(df, v);
  return v;
}

/// Transforms kBlock values in registers. Requires a power of two ≥ Lanes(df), at most 128.
template <size_t kBlock, class DF>
HWY_INLINE void WalshHadamardFixed(DF df, float* HWY_RESTRICT values) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  constexpr size_t kVectors = kBlock / kLanes;
  hn::Vec<DF> v[kVectors];
  for (size_t i = 0; i < kVectors; ++i) {
    v[i] = TransformLanes(df, hn::LoadU(df, values + i * kLanes));
  }
  for (size_t stride = 1; stride < kVectors; stride *= 2) {
    for (size_t i = 0; i < kVectors; ++i) {
      if ((i & stride) != 0) continue;
      const auto a = v[i];
      const auto b = v[i + stride];
      v[i] = hn::Add(a, b);
      v[i + stride] = hn::Sub(a, b);
    }
  }
  for (size_t i = 0; i < kVectors; ++i) hn::StoreU(v[i], df, values + i * kLanes);
}

/// Transforms values[0, block). Requires a power of two ≥ Lanes(df).
template <class DF>
HWY_INLINE void WalshHadamardBlock(DF df, float* HWY_RESTRICT values, size_t block) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  for (size_t i = 0; i < block; i += kLanes) {
    hn::StoreU(TransformLanes(df, hn::LoadU(df, values + i)), df, values + i);
  }
  for (size_t stride = kLanes; stride < block; stride *= 2) {
    for (size_t pair = 0; pair < block; pair += 2 * stride) {
      for (size_t i = pair; i < pair + stride; i += kLanes) {
        const auto a = hn::LoadU(df, values + i);
        const auto b = hn::LoadU(df, values + i + stride);
        hn::StoreU(hn::Add(a, b), df, values + i);
        hn::StoreU(hn::Sub(a, b), df, values + i + stride);
      }
    }
  }
}

}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ASSAY_NUMERIC_HADAMARD_INL_H_

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

/// Butterflies between lanes `stride` apart. Requires stride < Lanes(df), both powers of two.
/// A lane becomes its partner plus itself, itself negated in the upper lane of each pair: b + a
/// below and a + (−b) above, the bits of a + b and a − b.
template <class DF>
HWY_INLINE hn::Vec<DF> ButterflyLanes(DF df, hn::Vec<DF> v, int32_t stride) {
  const hn::RebindToSigned<DF> di;
  const auto lane = hn::Iota(di, 0);
  const auto partner = hn::IndicesFromVec(df, hn::Xor(lane, hn::Set(di, stride)));
  const auto is_upper = hn::Ne(hn::And(lane, hn::Set(di, stride)), hn::Zero(di));
  const auto sign = hn::IfThenElseZero(hn::RebindMask(df, is_upper), hn::SignBit(df));
  return hn::Add(hn::TableLookupLanes(v, partner), hn::Xor(v, sign));
}

/// Transforms values[0, block). Requires a power of two ≥ Lanes(df).
template <class DF>
HWY_INLINE void WalshHadamardBlock(DF df, float* HWY_RESTRICT values, size_t block) {
  const size_t lanes = hn::Lanes(df);
  for (size_t i = 0; i < block; i += lanes) {
    auto v = hn::LoadU(df, values + i);
    for (size_t stride = 1; stride < lanes; stride *= 2) {
      v = ButterflyLanes(df, v, static_cast<int32_t>(stride));
    }
    hn::StoreU(v, df, values + i);
  }
  for (size_t stride = lanes; stride < block; stride *= 2) {
    for (size_t pair = 0; pair < block; pair += 2 * stride) {
      for (size_t i = pair; i < pair + stride; i += lanes) {
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

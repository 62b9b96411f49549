#include "assay/formats/ggml_search.h"

#include "assay/formats/ggml_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/formats/ggml_search.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using ggml_internal::Found;
using ggml_internal::kLanes;
using ggml_internal::kMaxSubBlock;
using ggml_internal::ScaleMinSearch;
using ggml_internal::SubBlocks;

using Tag = hn::CappedTag<float, kLanes>;
using Vec = hn::Vec<Tag>;
using Mask = hn::Mask<Tag>;

constexpr float kTiny = 1e-15F;  ///< a sub-block below it counts as zeros

HWY_INLINE Vec Constant(float value) { return hn::Set(Tag(), value); }
HWY_INLINE Vec ValueAt(const SubBlocks& sub, size_t i, size_t lane) {
  return hn::Load(Tag(), &sub.x[i][lane]);
}
/// Nearest even; exact below 2^22, beyond it still on the right side of every clamp.
HWY_INLINE Vec Nearest(Vec x) {
  const Vec magic = Constant(12582912.0F);  // 1.5 · 2^23
  return hn::Sub(hn::Add(x, magic), magic);
}
HWY_INLINE Vec NearestIn(Vec x, float low, float high) {
  return hn::Min(hn::Max(Nearest(x), Constant(low)), Constant(high));
}
/// Upstream divides only where the divisor is positive.
HWY_INLINE Vec QuotientOrZero(Vec a, Vec b) {
  return hn::IfThenElseZero(hn::Gt(b, hn::Zero(Tag())), hn::Div(a, b));
}
HWY_INLINE void Refuse(Mask mask, size_t lane, Found& found) {
  uint8_t bits[8] = {};
  hn::StoreMaskBits(Tag(), mask, bits);
  found.refused |= static_cast<uint32_t>(bits[0] | bits[1] << 8) << lane;
}
HWY_INLINE Mask NotFinite(Vec a, Vec b) {
  return hn::Not(hn::And(hn::IsFinite(a), hn::IsFinite(b)));
}

/// The value of largest magnitude, the first of equals; +0 when there is none.
HWY_INLINE Vec LargestOf(const SubBlocks& sub, size_t lane) {
  Vec largest = hn::Zero(Tag());
  Vec magnitude = largest;
  for (size_t i = 0; i < sub.size; ++i) {
    const Vec x = ValueAt(sub, i, lane);
    const Mask larger = hn::Gt(hn::Abs(x), magnitude);
    magnitude = hn::IfThenElse(larger, hn::Abs(x), magnitude);
    largest = hn::IfThenElse(larger, x, largest);
  }
  return largest;
}

// Vectors of SVE cannot be members: pairs of them are pairs of arguments.

/// Σ (x² · x) · q and Σ (x² · q) · q over a sub-block.
HWY_INLINE void Accumulate(Vec x, Vec q, Vec& xq, Vec& qq) {
  const Vec w = hn::Mul(x, x);
  xq = hn::Add(xq, hn::Mul(hn::Mul(w, x), q));
  qq = hn::Add(qq, hn::Mul(hn::Mul(w, q), q));
}

/// Takes the sums of a try when they explain more of Σ w · x² than the best so far, with its scale.
HWY_INLINE Mask Offer(Vec xq, Vec qq, Vec& scale, Vec& explained) {
  const Mask better =
      hn::And(hn::Gt(qq, hn::Zero(Tag())), hn::Gt(hn::Mul(xq, xq), hn::Mul(explained, qq)));
  scale = hn::IfThenElse(better, hn::Div(xq, qq), scale);
  explained = hn::IfThenElse(better, hn::Mul(scale, xq), explained);
  return better;
}

}  // namespace

void SearchSymmetricOnTarget(const SubBlocks& sub, Found& found) {
  constexpr float kTop = 32;
  constexpr int kTries = 9;
  const Tag df;
  found.refused = 0;
  for (size_t lane = 0; lane < kLanes; lane += hn::Lanes(df)) {
    const Vec largest = LargestOf(sub, lane);
    const Mask tiny = hn::Lt(hn::Abs(largest), Constant(kTiny));
    const auto sums_at = [&](Vec factor, Vec& xq, Vec& qq) HWY_ATTR {
      xq = qq = hn::Zero(df);
      for (size_t i = 0; i < sub.size; ++i) {
        const Vec x = ValueAt(sub, i, lane);
        Accumulate(x, NearestIn(hn::Mul(factor, x), -kTop, kTop - 1), xq, qq);
      }
    };
    Vec best_factor = hn::Div(Constant(-kTop), largest);
    Vec xq;
    Vec qq;
    sums_at(best_factor, xq, qq);
    Refuse(hn::AndNot(tiny, NotFinite(xq, qq)), lane, found);
    Vec scale = QuotientOrZero(xq, qq);
    Vec explained = hn::Mul(scale, xq);
    for (int t = -kTries; t <= kTries; ++t) {
      if (t == 0) continue;
      const Vec factor = hn::Div(Constant(-(kTop + 0.1F * static_cast<float>(t))), largest);
      sums_at(factor, xq, qq);
      best_factor = hn::IfThenElse(Offer(xq, qq, scale, explained), factor, best_factor);
    }
    hn::Store(hn::IfThenZeroElse(tiny, scale), df, found.scale + lane);
    hn::Store(hn::Zero(df), df, found.min + lane);
    for (size_t i = 0; i < sub.size; ++i) {
      const Vec code = NearestIn(hn::Mul(best_factor, ValueAt(sub, i, lane)), -kTop, kTop - 1);
      hn::Store(hn::IfThenZeroElse(tiny, hn::Add(code, Constant(kTop))), df, &found.codes[i][lane]);
    }
  }
}

void SearchThreeBitsOnTarget(const SubBlocks& sub, Found& found) {
  constexpr float kTop = 4;
  constexpr int kPasses = 5;
  const Tag df;
  const Vec zero = hn::Zero(df);
  found.refused = 0;
  for (size_t lane = 0; lane < kLanes; lane += hn::Lanes(df)) {
    const Vec largest = LargestOf(sub, lane);
    const Mask tiny = hn::Lt(hn::Abs(largest), Constant(kTiny));
    const Vec factor = hn::Div(Constant(-kTop), largest);
    Vec sum_xq = zero;
    Vec sum_qq = zero;
    for (size_t i = 0; i < sub.size; ++i) {
      const Vec x = ValueAt(sub, i, lane);
      const Vec code = NearestIn(hn::Mul(factor, x), -kTop, kTop - 1);
      Accumulate(x, code, sum_xq, sum_qq);
      hn::Store(code, df, &found.codes[i][lane]);
    }
    Refuse(hn::AndNot(tiny, NotFinite(sum_xq, sum_qq)), lane, found);
    for (int pass = 0; pass < kPasses; ++pass) {
      Mask changed = hn::FirstN(df, 0);
      for (size_t i = 0; i < sub.size; ++i) {
        const Vec x = ValueAt(sub, i, lane);
        const Vec w = hn::Mul(x, x);
        const Vec wx = hn::Mul(w, x);
        const Vec code = hn::Load(df, &found.codes[i][lane]);
        const Vec xq = hn::Sub(sum_xq, hn::Mul(wx, code));
        const Vec qq = hn::Sub(sum_qq, hn::Mul(hn::Mul(w, code), code));
        const Vec other = NearestIn(hn::Div(hn::Mul(x, qq), xq), -kTop, kTop - 1);
        const Vec new_xq = hn::Add(xq, hn::Mul(wx, other));
        const Vec new_qq = hn::Add(qq, hn::Mul(hn::Mul(w, other), other));
        const Mask differs = hn::And(hn::Gt(xq, zero), hn::Ne(other, code));
        const Mask better = hn::Gt(hn::Mul(hn::Mul(new_xq, new_xq), sum_qq),
                                   hn::Mul(hn::Mul(sum_xq, sum_xq), new_qq));
        const Mask take = hn::And(differs, hn::And(hn::Gt(new_qq, zero), better));
        hn::Store(hn::IfThenElse(take, other, code), df, &found.codes[i][lane]);
        sum_xq = hn::IfThenElse(take, new_xq, sum_xq);
        sum_qq = hn::IfThenElse(take, new_qq, sum_qq);
        changed = hn::Or(changed, take);
      }
      if (hn::AllFalse(df, changed)) break;
    }
    hn::Store(hn::IfThenZeroElse(tiny, QuotientOrZero(sum_xq, sum_qq)), df, found.scale + lane);
    hn::Store(zero, df, found.min + lane);
    for (size_t i = 0; i < sub.size; ++i) {
      const Vec code = hn::Add(hn::Load(df, &found.codes[i][lane]), Constant(kTop));
      hn::Store(hn::IfThenZeroElse(tiny, code), df, &found.codes[i][lane]);
    }
  }
}

void SearchScaleMinOnTarget(const SubBlocks& sub, const ScaleMinSearch& search, Found& found) {
  const Tag df;
  const Vec zero = hn::Zero(df);
  found.refused = 0;
  for (size_t lane = 0; lane < kLanes; lane += hn::Lanes(df)) {
    Vec mean_root = zero;
    if (!search.absolute) {
      for (size_t i = 0; i < sub.size; ++i) {
        const Vec x = ValueAt(sub, i, lane);
        mean_root = hn::Add(mean_root, hn::Mul(x, x));
      }
      mean_root = hn::Sqrt(hn::Div(mean_root, Constant(static_cast<float>(sub.size))));
    }
    alignas(64) float weights[kMaxSubBlock][kLanes];
    alignas(64) float codes[kMaxSubBlock][kLanes];
    // With `absolute` this adds +0 to a magnitude.
    const auto weight_of = [&](Vec x) HWY_ATTR { return hn::Add(mean_root, hn::Abs(x)); };
    for (size_t i = 0; i < sub.size; ++i) {
      hn::Store(weight_of(ValueAt(sub, i, lane)), df, weights[i]);
    }
    const auto code_of = [&](Vec factor, Vec min, Vec x) HWY_ATTR {
      return NearestIn(hn::Mul(factor, hn::Sub(x, min)), 0, search.top);
    };
    // Of the codes that are in `codes`.
    const auto error_of = [&](Vec scale, Vec min) HWY_ATTR {
      Vec error = zero;
      for (size_t i = 0; i < sub.size; ++i) {
        const Vec fit = hn::Add(hn::Mul(scale, hn::Load(df, codes[i])), min);
        const Vec difference = hn::Sub(fit, ValueAt(sub, i, lane));
        const Vec loss = search.absolute ? hn::Abs(difference) : hn::Mul(difference, difference);
        error = hn::Add(error, hn::Mul(hn::Load(df, weights[i]), loss));
      }
      return error;
    };
    Vec min = ValueAt(sub, 0, lane);
    Vec max = min;
    Vec sum_w = weight_of(min);
    Vec sum_x = hn::Mul(sum_w, min);
    for (size_t i = 1; i < sub.size; ++i) {
      const Vec x = ValueAt(sub, i, lane);
      min = hn::IfThenElse(hn::Lt(x, min), x, min);
      max = hn::IfThenElse(hn::Gt(x, max), x, max);
      const Vec w = hn::Load(df, weights[i]);
      sum_w = hn::Add(sum_w, w);
      sum_x = hn::Add(sum_x, hn::Mul(w, x));
    }
    min = hn::IfThenElse(hn::Gt(min, zero), zero, min);
    const Mask constant = hn::Eq(max, min);
    const Vec constant_min = min;
    Vec code_factor = hn::Div(Constant(search.top), hn::Sub(max, min));
    Vec code_min = min;
    Vec scale = hn::Div(Constant(1), code_factor);
    Mask bad = NotFinite(code_factor, scale);
    for (size_t i = 0; i < sub.size; ++i) {
      hn::Store(code_of(code_factor, min, ValueAt(sub, i, lane)), df, codes[i]);
    }
    Vec error = error_of(scale, min);
    for (int s = 0; s <= search.num_steps; ++s) {
      const float wide = search.first + search.step * static_cast<float>(s) + search.top;
      const Vec factor = hn::Div(Constant(wide), hn::Sub(max, min));
      bad = hn::Or(bad, hn::Not(hn::IsFinite(factor)));
      Vec sum_l = zero;
      Vec sum_l2 = zero;
      Vec sum_xl = zero;
      for (size_t i = 0; i < sub.size; ++i) {
        const Vec x = ValueAt(sub, i, lane);
        const Vec code = code_of(factor, min, x);
        hn::Store(code, df, codes[i]);
        const Vec wl = hn::Mul(hn::Load(df, weights[i]), code);
        sum_l = hn::Add(sum_l, wl);
        sum_l2 = hn::Add(sum_l2, hn::Mul(wl, code));
        sum_xl = hn::Add(sum_xl, hn::Mul(wl, x));
      }
      const Vec determinant = hn::Sub(hn::Mul(sum_w, sum_l2), hn::Mul(sum_l, sum_l));
      Vec new_scale = hn::Div(hn::Sub(hn::Mul(sum_w, sum_xl), hn::Mul(sum_x, sum_l)), determinant);
      Vec new_min = hn::Div(hn::Sub(hn::Mul(sum_l2, sum_x), hn::Mul(sum_l, sum_xl)), determinant);
      const Mask above = hn::Gt(new_min, zero);
      new_scale = hn::IfThenElse(above, hn::Div(sum_xl, sum_l2), new_scale);
      new_min = hn::IfThenZeroElse(above, new_min);
      const Vec new_error = error_of(new_scale, new_min);
      const Mask take = hn::And(hn::Gt(determinant, zero), hn::Lt(new_error, error));
      code_factor = hn::IfThenElse(take, factor, code_factor);
      code_min = hn::IfThenElse(take, min, code_min);
      error = hn::IfThenElse(take, new_error, error);
      scale = hn::IfThenElse(take, new_scale, scale);
      min = hn::IfThenElse(take, new_min, min);
    }
    bad = hn::Or(bad, NotFinite(scale, min));
    Refuse(hn::AndNot(constant, bad), lane, found);
    hn::Store(hn::IfThenZeroElse(constant, scale), df, found.scale + lane);
    hn::Store(hn::Neg(hn::IfThenElse(constant, constant_min, min)), df, found.min + lane);
    for (size_t i = 0; i < sub.size; ++i) {
      const Vec code = code_of(code_factor, code_min, ValueAt(sub, i, lane));
      hn::Store(hn::IfThenZeroElse(constant, code), df, &found.codes[i][lane]);
    }
  }
}

void SearchIq4OnTarget(const SubBlocks& sub, Found& found) {
  constexpr int kTries = 7;
  constexpr auto& kValues = ggml_internal::kIq4Values;
  const Tag df;
  found.refused = 0;
  for (size_t lane = 0; lane < kLanes; lane += hn::Lanes(df)) {
    const Vec largest = LargestOf(sub, lane);
    const Mask tiny = hn::Lt(hn::Abs(largest), Constant(kTiny));
    const auto sums_at = [&](Vec factor, Vec& xq, Vec& qq) HWY_ATTR {
      xq = qq = hn::Zero(df);
      for (size_t i = 0; i < sub.size; ++i) {
        const Vec x = ValueAt(sub, i, lane);
        const Vec scaled = hn::Mul(factor, x);
        Vec q = Constant(kValues[0]);
        for (size_t k = 1; k < kValues.size(); ++k) {
          const float middle = 0.5F * static_cast<float>(kValues[k - 1] + kValues[k]);
          q = hn::IfThenElse(hn::Ge(scaled, Constant(middle)), Constant(kValues[k]), q);
        }
        const Vec wq = hn::Mul(hn::Mul(x, x), q);
        xq = hn::Add(xq, hn::Mul(wq, x));
        qq = hn::Add(qq, hn::Mul(wq, q));
      }
    };
    const Vec d0 = hn::Div(hn::Neg(largest), Constant(kValues[0]));
    Vec xq;
    Vec qq;
    sums_at(hn::Div(Constant(1), d0), xq, qq);
    Refuse(hn::AndNot(tiny, NotFinite(xq, qq)), lane, found);
    Vec scale = QuotientOrZero(xq, qq);
    Vec explained = hn::Mul(scale, xq);
    for (int t = -kTries; t <= kTries; ++t) {
      sums_at(hn::Div(Constant(static_cast<float>(t + kValues[0])), largest), xq, qq);
      Offer(xq, qq, scale, explained);
    }
    hn::Store(hn::IfThenZeroElse(tiny, scale), df, found.scale + lane);
  }
}

void RequantiseOnTarget(const SubBlocks& sub, const float* scales, const float* mins, float low,
                        float high, Found& found) {
  const Tag df;
  for (size_t lane = 0; lane < kLanes; lane += hn::Lanes(df)) {
    const Vec scale = hn::LoadU(df, scales + lane);
    const Vec min = hn::LoadU(df, mins + lane);
    const Mask kept = hn::Eq(scale, hn::Zero(df));
    for (size_t i = 0; i < sub.size; ++i) {
      const Vec quotient = hn::Div(hn::Add(ValueAt(sub, i, lane), min), scale);
      const Vec code = hn::Sub(NearestIn(quotient, low, high), Constant(low));
      const Vec before = hn::Load(df, &found.codes[i][lane]);
      hn::Store(hn::IfThenElse(kept, before, code), df, &found.codes[i][lane]);
    }
  }
}

}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
namespace {
HWY_EXPORT(SearchSymmetricOnTarget);
HWY_EXPORT(SearchThreeBitsOnTarget);
HWY_EXPORT(SearchScaleMinOnTarget);
HWY_EXPORT(SearchIq4OnTarget);
HWY_EXPORT(RequantiseOnTarget);
}  // namespace

namespace ggml_internal {

void SearchSymmetric(const SubBlocks& sub, Found& found) {
  HWY_DYNAMIC_DISPATCH(SearchSymmetricOnTarget)(sub, found);
}

void SearchThreeBits(const SubBlocks& sub, Found& found) {
  HWY_DYNAMIC_DISPATCH(SearchThreeBitsOnTarget)(sub, found);
}

void SearchScaleMin(const SubBlocks& sub, const ScaleMinSearch& search, Found& found) {
  HWY_DYNAMIC_DISPATCH(SearchScaleMinOnTarget)(sub, search, found);
}

void SearchIq4(const SubBlocks& sub, Found& found) {
  HWY_DYNAMIC_DISPATCH(SearchIq4OnTarget)(sub, found);
}

void Requantise(const SubBlocks& sub, const float* scales, const float* mins, float low, float high,
                Found& found) {
  HWY_DYNAMIC_DISPATCH(RequantiseOnTarget)(sub, scales, mins, low, high, found);
}

}  // namespace ggml_internal
}  // namespace assay
#endif  // HWY_ONCE

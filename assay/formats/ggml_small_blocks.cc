#include "assay/formats/ggml_small_blocks.h"

#include "assay/formats/ggml_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/formats/ggml_small_blocks.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using ggml_internal::CodeRounding;
using ggml_internal::CodeRule;
using ggml_internal::kGroup;
using ggml_internal::kSmallBlock;

void FindRangesOnTarget(const float* HWY_RESTRICT values, size_t num_blocks,
                        float* HWY_RESTRICT low, float* HWY_RESTRICT high) {
  const hn::CappedTag<float, 16> df;
  for (size_t b = 0; b < num_blocks; ++b, values += kSmallBlock) {
    auto min = hn::LoadU(df, values);
    auto max = min;
    for (size_t i = hn::Lanes(df); i < kSmallBlock; i += hn::Lanes(df)) {
      const auto x = hn::LoadU(df, values + i);
      min = hn::Min(min, x);
      max = hn::Max(max, x);
    }
    low[b] = hn::GetLane(hn::MinOfLanes(df, min));
    high[b] = hn::GetLane(hn::MaxOfLanes(df, max));
  }
}

template <CodeRounding kRounding>
HWY_INLINE void ChooseCodesBy(const float* HWY_RESTRICT values, size_t num_blocks,
                              const CodeRule& rule, int8_t* HWY_RESTRICT codes) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<int8_t, decltype(df)> d8;
  const auto below_half = hn::Set(df, 0x1.FFFFFEp-2F);
  const auto limit = hn::Set(di, rule.limit);
  const auto add = hn::Set(df, rule.add);
  for (size_t b = 0; b < num_blocks; ++b) {
    const auto factor = hn::Set(df, rule.factor[b]);
    const auto subtract = hn::Set(df, rule.subtract[b]);
    for (size_t i = b * kSmallBlock; i < (b + 1) * kSmallBlock; i += hn::Lanes(df)) {
      const auto scaled = hn::Mul(hn::Sub(hn::LoadU(df, values + i), subtract), factor);
      // Truncating |x| + ½ would round 0.49999997 up: the sum does. The largest value below ½ makes
      // the sum of every other value what it should be.
      const auto more =
          kRounding == CodeRounding::kTruncate ? add : hn::CopySign(below_half, scaled);
      const auto code = hn::ConvertTo(di, hn::Add(scaled, more));
      hn::StoreU(hn::DemoteTo(d8, hn::Min(code, limit)), d8, codes + i);
    }
  }
}

void ChooseCodesOnTarget(const float* values, size_t num_blocks, const CodeRule& rule,
                         int8_t* codes) {
  if (rule.rounding == CodeRounding::kTruncate) {
    ChooseCodesBy<CodeRounding::kTruncate>(values, num_blocks, rule, codes);
  } else {
    ChooseCodesBy<CodeRounding::kAwayFromZero>(values, num_blocks, rule, codes);
  }
}

void NearestE2M1OnTarget(const float* HWY_RESTRICT values, size_t num_groups,
                         const float* HWY_RESTRICT half_scales, uint8_t* HWY_RESTRICT codes) {
  constexpr float kMiddles[] = {0.5F, 1.5F, 2.5F, 3.5F, 5.0F, 7.0F, 10.0F};
  const hn::CappedTag<float, kGroup> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<uint8_t, decltype(df)> d8;
  const auto zero = hn::Zero(di);
  const auto sign_code = hn::Set(di, 8);
  for (size_t group = 0; group < num_groups; ++group) {
    const auto half_scale = hn::Set(df, half_scales[group]);
    const auto none = hn::Eq(half_scale, hn::Zero(df));
    for (size_t i = group * kGroup; i < (group + 1) * kGroup; i += hn::Lanes(df)) {
      const auto x = hn::LoadU(df, values + i);
      const auto magnitude = hn::IfThenZeroElse(none, hn::Abs(x));
      auto code = zero;
      for (const float middle : kMiddles) {
        const auto above = hn::Gt(magnitude, hn::Mul(hn::Set(df, middle), half_scale));
        code = hn::Sub(code, hn::VecFromMask(di, hn::RebindMask(di, above)));
      }
      const auto negative =
          hn::And(hn::RebindMask(di, hn::Lt(x, hn::Zero(df))), hn::Ne(code, zero));
      code = hn::Or(code, hn::IfThenElseZero(negative, sign_code));
      hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
    }
  }
}

void NearestIq4OnTarget(const float* HWY_RESTRICT values, float factor,
                        uint8_t* HWY_RESTRICT codes) {
  constexpr auto& kEntries = ggml_internal::kIq4Values;
  const hn::CappedTag<float, kGroup> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<uint8_t, decltype(df)> d8;
  for (size_t i = 0; i < kSmallBlock; i += hn::Lanes(df)) {
    const auto x = hn::Mul(hn::Set(df, factor), hn::LoadU(df, values + i));
    auto code = hn::Zero(di);
    for (size_t k = 1; k < kEntries.size(); ++k) {
      const float middle = 0.5F * static_cast<float>(kEntries[k - 1] + kEntries[k]);
      const auto reached = hn::Ge(x, hn::Set(df, middle));
      code = hn::Sub(code, hn::VecFromMask(di, hn::RebindMask(di, reached)));
    }
    hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
  }
}

}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
namespace {
HWY_EXPORT(FindRangesOnTarget);
HWY_EXPORT(ChooseCodesOnTarget);
HWY_EXPORT(NearestE2M1OnTarget);
HWY_EXPORT(NearestIq4OnTarget);
}  // namespace

void ggml_internal::FindRanges(const float* values, size_t num_blocks, float* low, float* high) {
  HWY_DYNAMIC_DISPATCH(FindRangesOnTarget)(values, num_blocks, low, high);
}

void ggml_internal::ChooseCodes(const float* values, size_t num_blocks, const CodeRule& rule,
                                int8_t* codes) {
  HWY_DYNAMIC_DISPATCH(ChooseCodesOnTarget)(values, num_blocks, rule, codes);
}

void ggml_internal::NearestE2M1(const float* values, std::span<const float> half_scales,
                                uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(NearestE2M1OnTarget)
  (values, half_scales.size(), half_scales.data(), codes);
}

void ggml_internal::NearestIq4(const float* values, float factor, uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(NearestIq4OnTarget)(values, factor, codes);
}

}  // namespace assay
#endif  // HWY_ONCE

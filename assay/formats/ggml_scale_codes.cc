#include "assay/formats/ggml_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/formats/ggml_scale_codes.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void ScaleCodesOnTarget(ggml_internal::Parts parts, size_t num_groups, float* HWY_RESTRICT values) {
  const hn::CappedTag<float, ggml_internal::kGroup> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<int8_t, decltype(df)> d8;
  for (size_t group = 0; group < num_groups; ++group) {
    const auto scale = hn::Set(df, parts.scales[group]);
    const auto min = hn::Set(df, parts.mins[group]);
    const size_t end = (group + 1) * ggml_internal::kGroup;
    for (size_t i = group * ggml_internal::kGroup; i < end; i += hn::Lanes(df)) {
      const auto codes = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, parts.codes + i)));
      hn::StoreU(hn::Sub(hn::Mul(scale, codes), min), df, values + i);
    }
  }
}

}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
namespace {
HWY_EXPORT(ScaleCodesOnTarget);
}  // namespace

void ggml_internal::ScaleCodes(Parts parts, size_t num_groups, float* values) {
  HWY_DYNAMIC_DISPATCH(ScaleCodesOnTarget)(parts, num_groups, values);
}

}  // namespace assay
#endif  // HWY_ONCE

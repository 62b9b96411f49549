#include "assay/numeric/hadamard.h"

#include <bit>

#include "assay/base/error.h"
#include "assay/base/neon_for_sve.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/numeric/hadamard.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "assay/numeric/hadamard-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {

template <size_t kBlock>
void TransformFixed(float* values, size_t num_values) {
  const hn::ScalableTag<float> df;
  for (size_t i = 0; i < num_values; i += kBlock) WalshHadamardFixed<kBlock>(df, values + i);
}

void TransformBlocks(float* values, size_t num_values, size_t block) {
  const hn::ScalableTag<float> df;
  // The group sizes that formats use.
  if (block == 32) return TransformFixed<32>(values, num_values);
  if (block == 64) return TransformFixed<64>(values, num_values);
  if (block == 128) return TransformFixed<128>(values, num_values);
  if (block >= hn::Lanes(df)) {
    for (size_t i = 0; i < num_values; i += block) WalshHadamardBlock(df, values + i, block);
    return;
  }
  const hn::CappedTag<float, 1> d1;
  for (size_t i = 0; i < num_values; i += block) WalshHadamardBlock(d1, values + i, block);
}

}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
namespace {
HWY_EXPORT(TransformBlocks);
}  // namespace

void WalshHadamard(std::span<float> values) { WalshHadamardBlocks(values.size(), values); }

void WalshHadamardBlocks(size_t block, std::span<float> values) {
  if (!std::has_single_bit(block) || values.size() % block != 0) {
    ThrowInternal("Walsh-Hadamard: {} values in blocks of {}: expected a power of two that divides",
                  values.size(), block);
  }
  HWY_DYNAMIC_DISPATCH(TransformBlocks)(values.data(), values.size(), block);
}

}  // namespace assay
#endif  // HWY_ONCE

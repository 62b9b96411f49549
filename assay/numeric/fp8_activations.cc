#include "assay/numeric/fp8_activations.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "assay/base/error.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

constexpr float kLargest = 448.0F;
constexpr float kFloor = 1e-4F;
constexpr float kReciprocal = 1.0F / kLargest;

float ScaleOf(float amax, Fp8ActivationScale rule) {
  if (rule == Fp8ActivationScale::kDivide) return amax / kLargest;
  const float scale = amax * kReciprocal;
  if (rule == Fp8ActivationScale::kLinear) return scale;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(scale) + 0x7FFFFFU) & 0x7F800000U);
}

}  // namespace

void QuantiseFp8Activations(std::span<const float> values, size_t block, Fp8ActivationScale rule,
                            std::span<uint8_t> codes, std::span<float> scales) {
  if (block == 0 || values.size() % block != 0 || codes.size() != values.size() ||
      scales.size() != values.size() / block) {
    ThrowInternal("fp8 activations: {} values, blocks of {}, {} codes, {} scales", values.size(),
                  block, codes.size(), scales.size());
  }
  for (size_t b = 0; b < scales.size(); ++b) {
    const std::span<const float> in_block = values.subspan(b * block, block);
    float amax = kFloor;
    for (const float value : in_block) amax = std::max(amax, std::abs(value));
    scales[b] = ScaleOf(amax, rule);
    for (size_t i = 0; i < block; ++i) {
      codes[b * block + i] = FloatToE4M3(std::clamp(in_block[i] / scales[b], -kLargest, kLargest));
    }
  }
}

}  // namespace assay

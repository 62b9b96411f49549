#include "assay/formats/mx_scale_rules.h"

#include <algorithm>
#include <bit>

namespace assay {
namespace {

constexpr uint32_t kMantissaMask = 0x7FFFFFu;

int Field(uint32_t bits) noexcept { return static_cast<int>(bits >> 23); }

/// Scales of the rules ⌊log2 m'⌋ − emax, where m' is m with `added` put to its bits: fields count
/// from 2^−127, as bytes do. (A subnormal m has field 0 for a true exponent of −127 or less; it may
/// round up to field 1, which only an emax of 0 would leave above byte 0, and that has floor only.)
void ChooseByField(std::span<const uint32_t> amax_bits, uint32_t added, int emax,
                   std::span<uint8_t> scales) noexcept {
  for (size_t i = 0; i < scales.size(); ++i) {
    const int byte = static_cast<int>((amax_bits[i] + added) >> 23) - emax;
    scales[i] = static_cast<uint8_t>(byte < 0 ? 0 : byte);
  }
}

/// ⌈f32(log2 d)⌉ as a byte. For d = 2^n · (1 + j · 2^−23) the f32 result is n itself while
/// j · 2^−23 / ln 2 is below half a unit in the last place of n; the largest such j by ⌊log2⌋ of
/// the magnitude that the logarithm starts from.
int CeilLog2Byte(float d) noexcept {
  if (!(d > 0)) return 0;
  uint32_t bits = std::bit_cast<uint32_t>(d);
  int exponent = Field(bits) - 127;
  if (exponent == -127) {  // subnormal: normalise
    bits = std::bit_cast<uint32_t>(d * 0x1p23f);
    exponent = Field(bits) - 127 - 23;
  }
  const uint32_t excess = bits & kMantissaMask;
  const int magnitude = exponent > 0 ? exponent : -exponent - 1;
  constexpr uint32_t kSwallowed[] = {0, 0, 1, 2, 5, 11, 22, 22};
  const int binade =
      magnitude > 0 ? static_cast<int>(std::bit_width(static_cast<unsigned>(magnitude))) - 1 : 0;
  const uint32_t swallowed = kSwallowed[std::min(binade, 7)];
  return exponent + 127 + (excess > swallowed ? 1 : 0);
}

}  // namespace

std::string_view NameOf(MxScaleRule rule) noexcept {
  switch (rule) {
    case MxScaleRule::kFloor:
      return "floor";
    case MxScaleRule::kCeil:
      return "ceil";
    case MxScaleRule::kRCeil:
      return "rceil";
    case MxScaleRule::kRCeilLog2:
      return "rceil-log2";
    case MxScaleRule::kEven:
      return "even";
    case MxScaleRule::kCt:
      return "ct";
  }
  return "?";
}

bool Defines(MxScaleRule rule, BlockElement element) noexcept {
  if (element == BlockElement::kInt8) return rule == MxScaleRule::kFloor;
  const bool ct = element != BlockElement::kE3M2 && element != BlockElement::kE5M2;
  return rule != MxScaleRule::kCt || ct;
}

void ChooseMxScales(MxScaleRule rule, BlockElement element, std::span<const uint32_t> amax_bits,
                    std::span<uint8_t> scales) noexcept {
  const BlockElementFacts facts = FactsOf(element);
  // Half a unit of a mantissa of so many bits.
  const auto half_unit = [](int mantissa_bits) { return 1u << (22 - mantissa_bits); };
  switch (rule) {
    case MxScaleRule::kFloor:
      return ChooseByField(amax_bits, 0, facts.emax, scales);
    case MxScaleRule::kCeil:
      return ChooseByField(amax_bits, kMantissaMask, facts.emax, scales);
    case MxScaleRule::kEven:
      return ChooseByField(amax_bits, half_unit(facts.mantissa_bits), facts.emax, scales);
    case MxScaleRule::kCt:
      return ChooseByField(amax_bits, half_unit(facts.bits == 6 ? 3 : 1), facts.emax, scales);
    case MxScaleRule::kRCeil:
      for (size_t i = 0; i < scales.size(); ++i) {
        scales[i] = CeilPowerOfTwoByte(std::bit_cast<float>(amax_bits[i]) / facts.max);
      }
      return;
    case MxScaleRule::kRCeilLog2:
      for (size_t i = 0; i < scales.size(); ++i) {
        const int byte = CeilLog2Byte(std::bit_cast<float>(amax_bits[i]) / facts.max);
        scales[i] = static_cast<uint8_t>(std::clamp(byte, 0, 254));
      }
      return;
  }
}

void InverseScales(std::span<const uint8_t> scales, std::span<float> factors) noexcept {
  for (size_t i = 0; i < scales.size(); ++i) {
    const uint32_t field = 254u - scales[i];
    factors[i] = std::bit_cast<float>(field == 0 ? 0x00400000u : field << 23);
  }
}

}  // namespace assay

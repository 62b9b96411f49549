#include "assay/formats/mx_scale_rules.h"

#include <algorithm>
#include <bit>

namespace assay {
namespace {

constexpr uint32_t kMantissaMask = 0x7FFFFFu;

/// Exponent fields count from 2^−127, as e8m0 bytes do: field − emax is the byte of ⌊log2 m⌋ −
/// emax. (A subnormal m has field 0 and a true exponent of −127 or less: byte 0 in every rule.)
uint8_t ClampByte(int byte) noexcept { return static_cast<uint8_t>(std::clamp(byte, 0, 254)); }

int Field(uint32_t bits) noexcept { return static_cast<int>(bits >> 23); }

/// Exponent field of m after adding half a unit of a mantissa of `mantissa_bits`.
int RoundedField(uint32_t amax_bits, int mantissa_bits) noexcept {
  return Field(amax_bits + (1u << (22 - mantissa_bits)));
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

uint8_t CeilPowerOfTwoByte(float r) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(r);
  const uint32_t mantissa = bits & kMantissaMask;
  // Subnormals: 2^−127 has mantissa 0x400000, and only above it is the next power 2^−126.
  if (bits >> 23 == 0) return mantissa > 0x400000u ? 1 : 0;
  return ClampByte(Field(bits) + (mantissa != 0 ? 1 : 0));
}

uint8_t MxScaleByte(MxScaleRule rule, BlockElement element, uint32_t amax_bits) noexcept {
  const BlockElementFacts facts = FactsOf(element);
  switch (rule) {
    case MxScaleRule::kFloor:
      return ClampByte(Field(amax_bits) - facts.emax);
    case MxScaleRule::kCeil:
      return ClampByte(Field(amax_bits) + ((amax_bits & kMantissaMask) != 0 ? 1 : 0) - facts.emax);
    case MxScaleRule::kRCeil:
      return CeilPowerOfTwoByte(std::bit_cast<float>(amax_bits) / facts.max);
    case MxScaleRule::kRCeilLog2:
      return ClampByte(CeilLog2Byte(std::bit_cast<float>(amax_bits) / facts.max));
    case MxScaleRule::kEven:
      return ClampByte(RoundedField(amax_bits, facts.mantissa_bits) - facts.emax);
    case MxScaleRule::kCt:
      return ClampByte(RoundedField(amax_bits, facts.bits == 6 ? 3 : 1) - facts.emax);
  }
  return 0;
}

float InverseOfE8M0(uint8_t byte) noexcept {
  if (byte == 254) return 0x1p-127f;
  return std::bit_cast<float>(static_cast<uint32_t>(254 - byte) << 23);
}

}  // namespace assay

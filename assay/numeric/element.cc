#include "assay/numeric/element.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace assay {
namespace {

struct ElementFacts {
  Element element;
  std::string_view name;
  int bits;
  float max;
};

constexpr std::array kFacts = {
    ElementFacts{Element::kF32, "f32", 32, std::numeric_limits<float>::max()},
    ElementFacts{Element::kBF16, "bf16", 16, BF16ToFloat(0x7F7F)},
    ElementFacts{Element::kF16, "f16", 16, F16ToFloat(0x7BFF)},
    ElementFacts{Element::kE4M3, "e4m3fn", 8, E4M3ToFloat(0x7E)},
    ElementFacts{Element::kE5M2, "e5m2", 8, E5M2ToFloat(0x7B)},
    ElementFacts{Element::kE4M3Fnuz, "e4m3fnuz", 8, E4M3FnuzToFloat(0x7F)},
    ElementFacts{Element::kE5M2Fnuz, "e5m2fnuz", 8, E5M2FnuzToFloat(0x7F)},
    ElementFacts{Element::kE8M0, "e8m0", 8, E8M0ToFloat(0xFE)},
    ElementFacts{Element::kE2M1, "e2m1", 4, E2M1ToFloat(0x7)},
    ElementFacts{Element::kE2M3, "e2m3", 6, E2M3ToFloat(0x1F)},
    ElementFacts{Element::kE3M2, "e3m2", 6, E3M2ToFloat(0x1F)},
};

constexpr bool InEnumOrder() {
  for (size_t i = 0; i < kFacts.size(); ++i) {
    if (static_cast<size_t>(kFacts[i].element) != i) return false;
  }
  return true;
}
static_assert(InEnumOrder());

const ElementFacts& FactsOf(Element element) noexcept {
  return kFacts[static_cast<size_t>(element)];
}

}  // namespace

int BitsOf(Element element) noexcept { return FactsOf(element).bits; }

std::string_view NameOf(Element element) noexcept { return FactsOf(element).name; }

float MaxOf(Element element) noexcept { return FactsOf(element).max; }

float ToFloat(Element element, uint32_t code) noexcept {
  const auto byte = static_cast<uint8_t>(code);
  const auto half = static_cast<uint16_t>(code);
  switch (element) {
    case Element::kF32:
      return std::bit_cast<float>(code);
    case Element::kBF16:
      return BF16ToFloat(half);
    case Element::kF16:
      return F16ToFloat(half);
    case Element::kE4M3:
      return E4M3ToFloat(byte);
    case Element::kE5M2:
      return E5M2ToFloat(byte);
    case Element::kE4M3Fnuz:
      return E4M3FnuzToFloat(byte);
    case Element::kE5M2Fnuz:
      return E5M2FnuzToFloat(byte);
    case Element::kE8M0:
      return E8M0ToFloat(byte);
    case Element::kE2M1:
      return E2M1ToFloat(byte);
    case Element::kE2M3:
      return E2M3ToFloat(byte);
    case Element::kE3M2:
      return E3M2ToFloat(byte);
  }
  return 0;
}

uint32_t FromFloat(Element element, float x) noexcept {
  switch (element) {
    case Element::kF32:
      return std::bit_cast<uint32_t>(x);
    case Element::kBF16:
      return FloatToBF16(x);
    case Element::kF16:
      return FloatToF16(x);
    case Element::kE4M3:
      return FloatToE4M3(x);
    case Element::kE5M2:
      return FloatToE5M2(x);
    case Element::kE4M3Fnuz:
      return FloatToE4M3Fnuz(x);
    case Element::kE5M2Fnuz:
      return FloatToE5M2Fnuz(x);
    case Element::kE8M0:
      return FloatToE8M0(x);
    case Element::kE2M1:
      return FloatToE2M1(x);
    case Element::kE2M3:
      return FloatToE2M3(x);
    case Element::kE3M2:
      return FloatToE3M2(x);
  }
  return 0;
}

uint32_t FromFloatSaturating(Element element, float x) noexcept {
  switch (element) {
    case Element::kE4M3:
      return FloatToE4M3Saturating(x);
    case Element::kE5M2:
      return FloatToE5M2Saturating(x);
    case Element::kE4M3Fnuz:
      return FloatToE4M3FnuzSaturating(x);
    case Element::kE5M2Fnuz:
      return FloatToE5M2FnuzSaturating(x);
    case Element::kE8M0:
      return FloatToE8M0Saturating(x);
    case Element::kF32:
    case Element::kBF16:
    case Element::kF16:
      // Clamping leaves NaN alone: every comparison with it is false.
      return FromFloat(element, std::clamp(x, -MaxOf(element), MaxOf(element)));
    case Element::kE2M1:
    case Element::kE2M3:
    case Element::kE3M2:
      return FromFloat(element, x);
  }
  return 0;
}

}  // namespace assay

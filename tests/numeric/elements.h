#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "assay/numeric/element.h"
#include "assay/tensor/tensor.h"

namespace assay::test {

inline constexpr std::array kAllElements = {
    Element::kF32,  Element::kBF16,     Element::kF16,      Element::kE4M3,
    Element::kE5M2, Element::kE4M3Fnuz, Element::kE5M2Fnuz, Element::kE8M0,
    Element::kE2M1, Element::kE2M3,     Element::kE3M2,
};

/// Those of 8 bits or less.
inline constexpr std::array kByteElements = {
    Element::kE4M3, Element::kE5M2, Element::kE4M3Fnuz, Element::kE5M2Fnuz,
    Element::kE8M0, Element::kE2M1, Element::kE2M3,     Element::kE3M2,
};

inline bool IsNaN(uint32_t f32_bits) { return (f32_bits & 0x7FFFFFFFu) > 0x7F800000u; }

/// Entries of a U8, U16 or U32 tensor.
inline std::vector<uint32_t> Codes(const Tensor& tensor) {
  const size_t width = static_cast<size_t>(BitsOf(tensor.dtype())) / 8;
  std::vector<uint32_t> codes(tensor.bytes().size() / width);
  for (size_t i = 0; i < codes.size(); ++i) {
    std::memcpy(&codes[i], tensor.bytes().data() + i * width, width);
  }
  return codes;
}

/// Inputs that cross every decision of every type: all values and midpoints of the element with
/// their f32 neighbours (16-bit types: a part of them), limits, subnormals, NaN with payloads, and
/// hashed bit patterns.
inline std::vector<float> HardValues(Element element) {
  std::vector<uint32_t> bits = {0,          0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000,
                                0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF,
                                0x7FA12345, 0xFFD54321, 0x00000001, 0x80000001, 0x007FFFFF,
                                0x807FFFFF, 0x00400000, 0x00400001, 0x003FFFFF, 0x00800000,
                                0x7F7FFFFF, 0xFF7FFFFF, 0x7F000000, 0x7F400000, 0x7F3FFFFF,
                                0x7F7F8000, 0x7F7F7FFF, 0x477FEFFF, 0x477FF000, 0xC77FF000};
  const int width = BitsOf(element);
  const uint32_t num_codes = width >= 16 ? 0x10000u : 1u << width;
  const uint32_t step = width >= 16 ? 37 : 1;
  for (uint32_t code = 0; code < num_codes; code += step) {
    const float value = ToFloat(element, element == Element::kF32 ? code << 16 : code);
    const float next = ToFloat(element, element == Element::kF32 ? (code + 1) << 16 : code + 1);
    const float middle = value / 2 + next / 2;
    for (const float x : {value, middle}) {
      const auto center = std::bit_cast<uint32_t>(x);
      bits.insert(bits.end(), {center, center - 1, center + 1});
    }
  }
  for (uint32_t i = 0; i < 4096; ++i) {
    bits.push_back(i * 2654435761u ^ i << 7);
    // Exponents around 1, where the small types live.
    bits.push_back(((i * 2654435761u) & 0x83FFFFFFu) | 0x3C000000u);
  }
  std::vector<float> values(bits.size());
  std::memcpy(values.data(), bits.data(), bits.size() * sizeof(uint32_t));
  return values;
}

}  // namespace assay::test

#include "assay/formats/ggml_blocks.h"

#include <algorithm>
#include <bit>

#include "assay/formats/ggml_encode.h"
#include "assay/numeric/element.h"

namespace assay::ggml_internal {
namespace {

constexpr struct {
  std::string_view name;
  EncodeFunction encode;
} kEncoders[] = {
    {"Q4_0", EncodeQ4_0},     {"Q4_1", EncodeQ4_1},     {"Q5_0", EncodeQ5_0},
    {"Q5_1", EncodeQ5_1},     {"Q8_0", EncodeQ8_0},     {"Q8_1", EncodeQ8_1},
    {"Q2_K", EncodeQ2_K},     {"Q3_K", EncodeQ3_K},     {"Q4_K", EncodeQ4_K},
    {"Q5_K", EncodeQ5_K},     {"Q6_K", EncodeQ6_K},     {"Q8_K", EncodeQ8_K},
    {"IQ4_NL", EncodeIQ4_NL}, {"IQ4_XS", EncodeIQ4_XS}, {"TQ1_0", EncodeTQ1_0},
    {"TQ2_0", EncodeTQ2_0},   {"MXFP4", EncodeMXFP4},   {"NVFP4", EncodeNVFP4},
    {"Q1_0", EncodeQ1_0},     {"Q2_0", EncodeQ2_0},
};

}  // namespace

EncodeFunction EncoderOf(const GgmlType& type) noexcept {
  const auto* found = std::find_if(std::begin(kEncoders), std::end(kEncoders),
                                   [&](const auto& known) { return known.name == type.name; });
  return found == std::end(kEncoders) ? nullptr : found->encode;
}

float HalfE8M0(uint8_t e) noexcept {
  constexpr uint32_t kSmallest = 0x00200000;  // 2^−128
  return std::bit_cast<float>(e < 2 ? kSmallest << e : (e - 1U) << 23);
}

float HalfUE4M3(uint8_t code) noexcept {
  if (code == 0x7F) return 0.0F;
  if (code == 0xFF) return 240.0F;
  return 0.5F * E4M3ToFloat(code & 0x7F);
}

}  // namespace assay::ggml_internal

#include <algorithm>
#include <array>

#include "assay/formats/ggml_bytes.h"
#include "assay/formats/ggml_encode.h"
#include "assay/formats/ggml_search.h"
#include "assay/formats/ggml_small_blocks.h"

// IQ4_NL and IQ4_XS: codes of unevenly spaced values, whose scale is searched for.

namespace assay::ggml_internal {
namespace {

/// Nibbles of 32 values in split halves: the nearest entries of x · factor.
void PackIq4(const float* x, float factor, uint8_t* nibbles) {
  std::array<uint8_t, 32> codes;
  NearestIq4(x, factor, codes.data());
  for (size_t j = 0; j < 16; ++j) {
    nibbles[j] = static_cast<uint8_t>(codes[j] | codes[j + 16] << 4);
  }
}

}  // namespace

Encoded EncodeIQ4_NL(const float* values, size_t num_blocks, uint8_t* out) {
  SubBlocks sub;
  Found found;
  for (size_t first = 0; first < num_blocks; first += kLanes) {
    const size_t here = std::min(kLanes, num_blocks - first);
    Transpose(values + first * 32, here * 32, 32, sub);
    SearchIq4(sub, found);
    for (size_t lane = 0; lane < here; ++lane) {
      const float d = found.scale[lane];
      const float inverse = d != 0 ? 1.0F / d : 0.0F;
      uint8_t* block = out + (first + lane) * 18;
      if (AnyRefused(found, lane, 1)) return {first + lane, Refusal::kOverflow};
      if (!PutF16(block, d)) return {first + lane, Refusal::kScale};
      PackIq4(values + (first + lane) * 32, inverse, block + 2);
    }
  }
  return {num_blocks};
}

Encoded EncodeIQ4_XS(const float* values, size_t num_blocks, uint8_t* out) {
  constexpr size_t kBlock = 256;
  constexpr size_t kSubBlocks = 8;
  SubBlocks sub;
  Found found;
  for (size_t first = 0; first < num_blocks; first += 2) {
    const size_t here = std::min<size_t>(2, num_blocks - first);
    Transpose(values + first * kBlock, here * kBlock, 32, sub);
    SearchIq4(sub, found);
    for (size_t b = 0; b < here; ++b) {
      const float* scales = found.scale + b * kSubBlocks;
      uint8_t* block = out + (first + b) * 136;
      if (AnyRefused(found, b * kSubBlocks, kSubBlocks)) return {first + b, Refusal::kOverflow};
      const float d = -LargestScale(scales, kSubBlocks) / 32.0F;
      const float inverse = d != 0 ? 1.0F / d : 0.0F;
      if (!PutF16(block, d)) return {first + b, Refusal::kScale};
      std::fill_n(block + 2, 6, uint8_t{0});
      uint32_t high = 0;
      for (size_t j = 0; j < kSubBlocks; ++j) {
        const int scale = std::clamp(NearestInt(inverse * scales[j]), -32, 31);
        const float sub_scale = d * static_cast<float>(scale);
        PackIq4(values + (first + b) * kBlock + 32 * j, sub_scale != 0 ? 1.0F / sub_scale : 0.0F,
                block + 8 + 16 * j);
        const auto field = static_cast<uint32_t>(scale + 32);
        block[4 + j / 2] |= static_cast<uint8_t>((field & 15) << (4 * (j % 2)));
        high |= field >> 4 << (2 * j);
      }
      PutU16(block + 2, high);
    }
  }
  return {num_blocks};
}

}  // namespace assay::ggml_internal

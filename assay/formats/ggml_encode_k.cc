#include <algorithm>
#include <bit>
#include <cmath>

#include "assay/formats/ggml_bytes.h"
#include "assay/formats/ggml_encode.h"
#include "assay/formats/ggml_search.h"

// The K types, whose scales are searched for. What follows a search is the same for all:
// the scales of a block's sub-blocks are rounded to small integers, and the values are rounded once
// more by what these integers stand for.

namespace assay::ggml_internal {
namespace {

constexpr size_t kBlock = 256;
constexpr float kTiny = 1e-15F;

/// Codes of a block whose first sub-block has lane `first`, in the order of its values.
std::array<uint8_t, kBlock> CodesOf(const SubBlocks& sub, const Found& found, size_t first) {
  std::array<uint8_t, kBlock> codes;
  uint8_t* out = codes.data();
  for (size_t lane = first; lane < first + kBlock / sub.size; ++lane) {
    for (size_t i = 0; i < sub.size; ++i) *out++ = static_cast<uint8_t>(found.codes[i][lane]);
  }
  return codes;
}

/// The largest above 0, or 0.
float LargestAboveZero(const float* scales, size_t count) {
  return std::max(0.0F, *std::max_element(scales, scales + count));
}

void PackPairs(const std::array<uint8_t, kBlock>& codes, uint8_t* bytes) {
  for (size_t half = 0; half < 2; ++half) {
    for (size_t l = 0; l < 32; ++l) {
      const uint8_t* code = codes.data() + 128 * half + l;
      bytes[32 * half + l] = static_cast<uint8_t>((code[0] & 3) | (code[32] & 3) << 2 |
                                                  (code[64] & 3) << 4 | (code[96] & 3) << 6);
    }
  }
}

/// Q4_K and Q5_K: two blocks fill the lanes.
template <bool kFiveBits>
Encoded EncodeSixBitPairs(const float* values, size_t num_blocks, uint8_t* out) {
  constexpr size_t kSubBlocks = 8;
  constexpr size_t kBytes = kFiveBits ? 176 : 144;
  constexpr ScaleMinSearch kSearch = kFiveBits ? ScaleMinSearch{31, -0.5F, 0.1F, 15, false}
                                               : ScaleMinSearch{15, -1.0F, 0.1F, 20, false};
  SubBlocks sub;
  Found found;
  for (size_t first = 0; first < num_blocks; first += 2) {
    const size_t here = std::min<size_t>(2, num_blocks - first);
    Transpose(values + first * kBlock, here * kBlock, 32, sub);
    SearchScaleMin(sub, kSearch, found);
    alignas(64) float scales[kLanes] = {};
    alignas(64) float mins[kLanes] = {};
    for (size_t b = 0; b < here; ++b) {
      const size_t lane = b * kSubBlocks;
      if (AnyRefused(found, lane, kSubBlocks)) return {first + b, Refusal::kOverflow};
      const float max_scale = LargestAboveZero(found.scale + lane, kSubBlocks);
      const float max_min = LargestAboveZero(found.min + lane, kSubBlocks);
      const float inverse_scale = max_scale > 0 ? 63.0F / max_scale : 0.0F;
      const float inverse_min = max_min > 0 ? 63.0F / max_min : 0.0F;
      if (!std::isfinite(inverse_scale) || !std::isfinite(inverse_min)) {
        return {first + b, Refusal::kUnderflow};
      }
      uint8_t* block = out + (first + b) * kBytes;
      if (!PutF16(block, max_scale / 63.0F) || !PutF16(block + 2, max_min / 63.0F)) {
        return {first + b, Refusal::kScale};
      }
      uint8_t* packed = block + 4;
      std::fill_n(packed, 12, uint8_t{0});
      for (size_t j = 0; j < kSubBlocks; ++j) {
        // Through a byte, as upstream: a negative scale ends at 63.
        const auto scale = std::min<uint8_t>(
            63, static_cast<uint8_t>(NearestInt(inverse_scale * found.scale[lane + j])));
        const auto min = std::min<uint8_t>(
            63, static_cast<uint8_t>(NearestInt(inverse_min * found.min[lane + j])));
        if (j < 4) {
          packed[j] = scale;
          packed[j + 4] = min;
        } else {
          packed[j + 4] = static_cast<uint8_t>((scale & 15) | (min & 15) << 4);
          packed[j - 4] |= static_cast<uint8_t>(scale >> 4 << 6);
          packed[j] |= static_cast<uint8_t>(min >> 4 << 6);
        }
      }
      const float d = F16At(block);
      const float dmin = F16At(block + 2);
      for (int j = 0; j < 8; ++j) {
        const SixBitPair pair = SixBitPairAt(packed, j);
        scales[lane + static_cast<size_t>(j)] = d * static_cast<float>(pair.scale);
        mins[lane + static_cast<size_t>(j)] = dmin * static_cast<float>(pair.min);
      }
    }
    Requantise(sub, scales, mins, 0, kSearch.top, found);
    for (size_t b = 0; b < here; ++b) {
      const std::array<uint8_t, kBlock> codes = CodesOf(sub, found, b * kSubBlocks);
      uint8_t* high = out + (first + b) * kBytes + 16;
      uint8_t* nibbles = high + (kFiveBits ? 32 : 0);
      if constexpr (kFiveBits) std::fill_n(high, 32, uint8_t{0});
      for (size_t c = 0; c < 4; ++c) {
        for (size_t l = 0; l < 32; ++l) {
          const uint32_t low = codes[64 * c + l];
          const uint32_t upper = codes[64 * c + 32 + l];
          nibbles[32 * c + l] = static_cast<uint8_t>((low & 15) | (upper & 15) << 4);
          if constexpr (kFiveBits) {
            high[l] |= static_cast<uint8_t>((low >> 4) << (2 * c) | (upper >> 4) << (2 * c + 1));
          }
        }
      }
    }
  }
  return {num_blocks};
}

/// Calls body(block, sub, found) for each block of sixteen sub-blocks until one is refused.
template <typename Search, typename Body>
Encoded EachOfSixteen(const float* values, size_t num_blocks, const Search& search,
                      const Body& body) {
  SubBlocks sub;
  Found found;
  for (size_t b = 0; b < num_blocks; ++b) {
    Transpose(values + b * kBlock, kBlock, kGroup, sub);
    search(sub, found);
    if (AnyRefused(found, 0, kLanes)) return {b, Refusal::kOverflow};
    const Refusal refusal = body(b, sub, found);
    if (refusal != Refusal::kNone) return {b, refusal};
  }
  return {num_blocks};
}

alignas(64) constexpr float kNoMins[kLanes] = {};

}  // namespace

Encoded EncodeQ4_K(const float* values, size_t num_blocks, uint8_t* out) {
  return EncodeSixBitPairs<false>(values, num_blocks, out);
}

Encoded EncodeQ5_K(const float* values, size_t num_blocks, uint8_t* out) {
  return EncodeSixBitPairs<true>(values, num_blocks, out);
}

Encoded EncodeQ2_K(const float* values, size_t num_blocks, uint8_t* out) {
  constexpr ScaleMinSearch kSearch{3, -0.5F, 0.1F, 15, true};
  const auto search = [&](const SubBlocks& sub, Found& found) {
    SearchScaleMin(sub, kSearch, found);
  };
  return EachOfSixteen(
      values, num_blocks, search, [&](size_t b, const SubBlocks& sub, Found& found) {
        uint8_t* block = out + b * 84;
        const float max_scale = LargestAboveZero(found.scale, kLanes);
        const float max_min = LargestAboveZero(found.min, kLanes);
        const float inverse_scale = max_scale > 0 ? 15.0F / max_scale : 0.0F;
        const float inverse_min = max_min > 0 ? 15.0F / max_min : 0.0F;
        if (!std::isfinite(inverse_scale) || !std::isfinite(inverse_min))
          return Refusal::kUnderflow;
        if (!PutF16(block + 80, max_scale / 15.0F) || !PutF16(block + 82, max_min / 15.0F)) {
          return Refusal::kScale;
        }
        alignas(64) float scales[kLanes];
        alignas(64) float mins[kLanes];
        for (size_t j = 0; j < kLanes; ++j) {
          block[j] = static_cast<uint8_t>(NearestInt(inverse_scale * found.scale[j]) |
                                          NearestInt(inverse_min * found.min[j]) << 4);
          scales[j] = F16At(block + 80) * static_cast<float>(block[j] & 15);
          mins[j] = F16At(block + 82) * static_cast<float>(block[j] >> 4);
        }
        Requantise(sub, scales, mins, 0, kSearch.top, found);
        PackPairs(CodesOf(sub, found, 0), block + 16);
        return Refusal::kNone;
      });
}

Encoded EncodeQ3_K(const float* values, size_t num_blocks, uint8_t* out) {
  return EachOfSixteen(
      values, num_blocks, SearchThreeBits, [&](size_t b, const SubBlocks& sub, Found& found) {
        uint8_t* block = out + b * 110;
        uint8_t* packed = block + 96;
        std::fill_n(packed, 12, uint8_t{0});
        const float max_scale = LargestScale(found.scale, kLanes);
        const float inverse = max_scale != 0 ? -32.0F / max_scale : 0.0F;
        if (!std::isfinite(inverse)) return Refusal::kUnderflow;
        if (!PutF16(block + 108, inverse != 0 ? 1.0F / inverse : 0.0F)) return Refusal::kScale;
        alignas(64) float scales[kLanes] = {};
        for (size_t j = 0; j < kLanes && inverse != 0; ++j) {
          const int field = std::clamp(NearestInt(inverse * found.scale[j]), -32, 31) + 32;
          packed[j % 8] |= static_cast<uint8_t>((field & 15) << (j < 8 ? 0 : 4));
          packed[8 + j % 4] |= static_cast<uint8_t>(field >> 4 << (2 * (j / 4)));
          scales[j] = F16At(block + 108) * static_cast<float>(field - 32);
        }
        Requantise(sub, scales, kNoMins, -4, 3, found);
        const std::array<uint8_t, kBlock> codes = CodesOf(sub, found, 0);
        std::fill_n(block, 32, uint8_t{0});
        for (size_t k = 0; k < kBlock; ++k) {
          block[k % 32] |= static_cast<uint8_t>((codes[k] >> 2) << (k / 32));
        }
        PackPairs(codes, block + 32);
        return Refusal::kNone;
      });
}

Encoded EncodeQ6_K(const float* values, size_t num_blocks, uint8_t* out) {
  return EachOfSixteen(
      values, num_blocks, SearchSymmetric, [&](size_t b, const SubBlocks& sub, Found& found) {
        uint8_t* block = out + b * 210;
        const float max_scale = LargestScale(found.scale, kLanes);
        if (std::abs(max_scale) < kTiny) {
          std::fill_n(block, 210, uint8_t{0});
          return Refusal::kNone;
        }
        const float inverse = -128.0F / max_scale;
        if (!PutF16(block + 208, 1.0F / inverse)) return Refusal::kScale;
        alignas(64) float scales[kLanes];
        for (size_t j = 0; j < kLanes; ++j) {
          const int scale = std::min(127, NearestInt(inverse * found.scale[j]));
          block[192 + j] = static_cast<uint8_t>(scale);
          scales[j] = F16At(block + 208) * static_cast<float>(scale);
        }
        Requantise(sub, scales, kNoMins, -32, 31, found);
        const std::array<uint8_t, kBlock> codes = CodesOf(sub, found, 0);
        for (size_t half = 0; half < 2; ++half) {
          uint8_t* low = block + 64 * half;
          uint8_t* high = block + 128 + 32 * half;
          for (size_t l = 0; l < 32; ++l) {
            const uint8_t* code = codes.data() + 128 * half + l;
            low[l] = static_cast<uint8_t>((code[0] & 15) | code[64] << 4);
            low[l + 32] = static_cast<uint8_t>((code[32] & 15) | code[96] << 4);
            high[l] = static_cast<uint8_t>(code[0] >> 4 | code[32] >> 4 << 2 | code[64] >> 4 << 4 |
                                           code[96] >> 4 << 6);
          }
        }
        return Refusal::kNone;
      });
}

Encoded EncodeQ8_K(const float* values, size_t num_blocks, uint8_t* out) {
  for (size_t b = 0; b < num_blocks; ++b) {
    const float* x = values + b * kBlock;
    uint8_t* block = out + b * 292;
    std::fill_n(block, 292, uint8_t{0});
    const float largest = LargestScale(x, kBlock);
    if (largest == 0) continue;
    const float inverse = -127.0F / largest;
    if (!std::isfinite(inverse)) return {b, Refusal::kUnderflow};
    PutU32(block, std::bit_cast<uint32_t>(1.0F / inverse));
    for (size_t group = 0; group < kBlock / kGroup; ++group) {
      int sum = 0;
      for (size_t i = group * kGroup; i < (group + 1) * kGroup; ++i) {
        const int code = std::min(127, NearestInt(inverse * x[i]));
        block[4 + i] = static_cast<uint8_t>(code);
        sum += code;
      }
      PutU16(block + 260 + 2 * group, static_cast<uint32_t>(sum));
    }
  }
  return {num_blocks};
}

}  // namespace assay::ggml_internal

#include "assay/formats/ggml_encode.h"

#include <algorithm>
#include <bit>

#include "assay/formats/ggml_small_blocks.h"

// Types whose scale follows from the largest magnitude or from the mean, the 32-value ones of
// ggml_encode_small.cc aside.

namespace assay::ggml_internal {
namespace {

/// 1 / d, and 0 of 0.
float InverseOrZero(float d) noexcept { return d != 0 ? 1.0F / d : 0.0F; }

/// Half away from zero, as roundf.
int RoundAway(float x) noexcept {
  const auto whole = static_cast<float>(static_cast<int>(x));
  const float rest = x - whole;
  return static_cast<int>(whole) + (rest >= 0.5F ? 1 : 0) - (rest <= -0.5F ? 1 : 0);
}

/// As integers, whose largest the compiler finds with vectors.
float MagnitudeOf(const float* x, size_t count) noexcept {
  int32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF);
  }
  return std::bit_cast<float>(largest);
}

template <size_t kValues, size_t kBytes, typename Body>
Encoded EachBlock(const float* values, size_t num_blocks, uint8_t* out, const Body& body) {
  for (size_t b = 0; b < num_blocks; ++b) {
    const Refusal refusal = body(values + b * kValues, out + b * kBytes);
    if (refusal != Refusal::kNone) return {b, refusal};
  }
  return {num_blocks};
}

/// NearestE2M1 for any values. Beside values far beyond the largest code the differences round to
/// the same number, and upstream takes the first code.
void NearestE2M1OfFar(const float* x, size_t count, float half_scale, uint8_t* codes) {
  for (size_t i = 0; i < count; ++i) {
    codes[i] = 0;
    float least = std::abs(x[i]);
    for (uint8_t code = 1; code < kTwiceE2M1.size(); ++code) {
      const float error = std::abs(static_cast<float>(kTwiceE2M1[code]) * half_scale - x[i]);
      if (error < least) codes[i] = code;
      least = std::min(least, error);
    }
  }
}

/// ⌊log2 x⌋ of the f32 nearest to log2 x: a value a few ulps below 2^k already gives k.
/// Requires x normal and positive.
int FloorOfLog2(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  constexpr uint32_t kMantissa = 0x7FFFFF;
  constexpr uint32_t kFewUlps = 64;  // no more than 44 round up
  if ((bits & kMantissa) + kFewUlps <= kMantissa) return static_cast<int>(bits >> 23) - 127;
  return static_cast<int>(std::floor(static_cast<float>(std::log2(static_cast<double>(x)))));
}

/// UE4M3 as upstream rounds it: half up, and 448 from 248 on. Requires x ≥ 0.
uint8_t EncodeUE4M3(float x) {
  constexpr uint8_t kLargest = 0x7E;
  const uint32_t bits = std::bit_cast<uint32_t>(std::min(x, 448.0F));
  const int exponent = static_cast<int>(bits >> 23) - 127 + 7;
  if (exponent <= 0) return static_cast<uint8_t>(std::min(7, static_cast<int>(x * 512.0F + 0.5F)));
  if (exponent >= 15) return kLargest;
  const uint32_t code =
      (static_cast<uint32_t>(exponent) << 3 | (bits >> 20 & 7)) + (bits >> 19 & 1);
  return code >= 15U << 3 ? kLargest : static_cast<uint8_t>(code);
}

/// Trits −1, 0, 1 of TQ1_0 and TQ2_0, plus 1.
Refusal EncodeTrits(const float* x, uint8_t* scale, std::array<uint8_t, 256>& trits) {
  const float d = MagnitudeOf(x, trits.size());
  const float inverse = InverseOrZero(d);
  if (!std::isfinite(inverse)) return Refusal::kUnderflow;
  if (!PutF16(scale, d)) return Refusal::kScale;
  for (size_t i = 0; i < trits.size(); ++i) {
    trits[i] = static_cast<uint8_t>(RoundAway(x[i] * inverse) + 1);
  }
  return Refusal::kNone;
}

}  // namespace

Encoded EncodeMXFP4(const float* values, size_t num_blocks, uint8_t* out) {
  return EachBlock<32, 17>(values, num_blocks, out, [](const float* x, uint8_t* block) {
    const float magnitude = MagnitudeOf(x, 32);
    constexpr float kSmallest = 0x1p-125F;
    if (magnitude > 0 && magnitude < kSmallest) return Refusal::kUnderflow;
    block[0] = magnitude > 0 ? static_cast<uint8_t>(FloorOfLog2(magnitude) + 125) : uint8_t{0};
    const float half_scale = HalfE8M0(block[0]);
    std::array<uint8_t, 32> codes;
    NearestE2M1(x, std::array{half_scale, half_scale}, codes.data());
    for (size_t j = 0; j < 16; ++j) {
      block[1 + j] = static_cast<uint8_t>(codes[j] | codes[j + 16] << 4);
    }
    return Refusal::kNone;
  });
}

Encoded EncodeNVFP4(const float* values, size_t num_blocks, uint8_t* out) {
  return EachBlock<64, 36>(values, num_blocks, out, [](const float* x, uint8_t* block) {
    constexpr float kFar = 0x1p15F;
    std::array<float, 4> half_scales;
    std::array<bool, 4> far{};
    for (size_t s = 0; s < 4; ++s) {
      const float magnitude = MagnitudeOf(x + kGroup * s, kGroup);
      block[s] = EncodeUE4M3(magnitude / 6.0F);
      half_scales[s] = HalfUE4M3(block[s]);
      far[s] = half_scales[s] != 0 && magnitude > kFar * half_scales[s];
    }
    std::array<uint8_t, 64> codes;
    NearestE2M1(x, half_scales, codes.data());
    for (size_t s = 0; s < 4; ++s) {
      uint8_t* run = &codes[kGroup * s];
      if (far[s]) NearestE2M1OfFar(x + kGroup * s, kGroup, half_scales[s], run);
      for (size_t j = 0; j < 8; ++j) {
        block[4 + 8 * s + j] = static_cast<uint8_t>(run[j] | run[j + 8] << 4);
      }
    }
    return Refusal::kNone;
  });
}

Encoded EncodeQ1_0(const float* values, size_t num_blocks, uint8_t* out) {
  return EachBlock<128, 18>(values, num_blocks, out, [](const float* x, uint8_t* block) {
    float sum = 0;
    for (size_t i = 0; i < 128; ++i) sum += std::abs(x[i]);
    if (!PutF16(block, sum / 128.0F)) return Refusal::kScale;
    std::fill_n(block + 2, 16, uint8_t{0});
    for (size_t i = 0; i < 128; ++i) {
      block[2 + i / 8] |= static_cast<uint8_t>((x[i] >= 0 ? 1 : 0) << (i % 8));
    }
    return Refusal::kNone;
  });
}

Encoded EncodeQ2_0(const float* values, size_t num_blocks, uint8_t* out) {
  return EachBlock<64, 18>(values, num_blocks, out, [](const float* x, uint8_t* block) {
    const float d = MagnitudeOf(x, 64);
    const float inverse = InverseOrZero(d);
    if (!std::isfinite(inverse)) return Refusal::kUnderflow;
    if (!PutF16(block, d)) return Refusal::kScale;
    std::fill_n(block + 2, 16, uint8_t{0});
    for (size_t i = 0; i < 64; ++i) {
      const int code = std::clamp(RoundAway(x[i] * inverse) + 1, 0, 3);
      block[2 + i / 4] |= static_cast<uint8_t>(code << (2 * (i % 4)));
    }
    return Refusal::kNone;
  });
}

Encoded EncodeTQ1_0(const float* values, size_t num_blocks, uint8_t* out) {
  return EachBlock<256, 54>(values, num_blocks, out, [](const float* x, uint8_t* block) {
    std::array<uint8_t, 256> trits;
    const Refusal refusal = EncodeTrits(x, block + 52, trits);
    if (refusal != Refusal::kNone) return refusal;
    const uint8_t* from = trits.data();
    for (const auto& [first, bytes, count] : {std::array{0, 32, 5}, {32, 16, 5}, {48, 4, 4}}) {
      for (int m = 0; m < bytes; ++m) {
        unsigned number = 0;  // five digits of base 3, the last one 0 where there are four
        for (int n = 0; n < 5; ++n) number = 3 * number + (n < count ? from[n * bytes + m] : 0U);
        // Rounded up to a fraction of 256, so that multiplications bring the digits out again.
        block[first + m] = static_cast<uint8_t>((number * 256 + 242) / 243);
      }
      from += count * bytes;
    }
    return refusal;
  });
}

Encoded EncodeTQ2_0(const float* values, size_t num_blocks, uint8_t* out) {
  return EachBlock<256, 66>(values, num_blocks, out, [](const float* x, uint8_t* block) {
    std::array<uint8_t, 256> trits;
    const Refusal refusal = EncodeTrits(x, block + 64, trits);
    if (refusal != Refusal::kNone) return refusal;
    for (size_t half = 0; half < 2; ++half) {
      for (size_t m = 0; m < 32; ++m) {
        const uint8_t* trit = trits.data() + 128 * half + m;
        block[32 * half + m] =
            static_cast<uint8_t>(trit[0] | trit[32] << 2 | trit[64] << 4 | trit[96] << 6);
      }
    }
    return refusal;
  });
}

}  // namespace assay::ggml_internal

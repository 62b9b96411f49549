#include "assay/formats/ggml_encode.h"

#include <algorithm>
#include <bit>

// Types whose scale follows from the smallest or largest value of the block.

namespace assay::ggml_internal {
namespace {

constexpr size_t kSmall = 32;
using SmallCodes = std::array<uint8_t, kSmall>;

/// 1 / d, and 0 of 0.
float InverseOrZero(float d) noexcept { return d != 0 ? 1.0F / d : 0.0F; }

/// Half away from zero, as roundf.
int RoundAway(float x) noexcept {
  const auto whole = static_cast<float>(static_cast<int>(x));
  const float rest = x - whole;
  return static_cast<int>(whole) + (rest >= 0.5F ? 1 : 0) - (rest <= -0.5F ? 1 : 0);
}

float MagnitudeOf(const float* x, size_t count) noexcept {
  float largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

/// The value of largest magnitude, the first of equals; +0 when there is none.
float LargestOf(const float* x, size_t count) noexcept {
  const float magnitude = MagnitudeOf(x, count);
  if (magnitude == 0) return 0;
  return *std::find_if(x, x + count, [=](float value) { return std::abs(value) == magnitude; });
}

/// The first of the smallest and the first of the largest values.
std::pair<float, float> RangeOf(const float* x, size_t count) noexcept {
  float min = x[0];
  float max = x[0];
  for (size_t i = 1; i < count; ++i) {
    if (x[i] < min) min = x[i];
    if (x[i] > max) max = x[i];
  }
  return {min, max};
}

void PackNibbles(const SmallCodes& codes, uint8_t* out) {
  for (size_t j = 0; j < 16; ++j) {
    out[j] = static_cast<uint8_t>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
  }
}

/// The fifth bits of the codes, bit i of code i.
uint32_t FifthBits(const SmallCodes& codes) {
  uint32_t bits = 0;
  for (size_t i = 0; i < kSmall; ++i) bits |= static_cast<uint32_t>(codes[i] >> 4 & 1) << i;
  return bits;
}

template <size_t kValues, size_t kBytes, typename Body>
Encoded EachBlock(const float* values, size_t num_blocks, uint8_t* out, const Body& body) {
  for (size_t b = 0; b < num_blocks; ++b) {
    const Refusal refusal = body(values + b * kValues, out + b * kBytes);
    if (refusal != Refusal::kNone) return {b, refusal};
  }
  return {num_blocks};
}

/// Q4_0 and Q5_0: the largest value becomes code 0, that is −kTop.
template <int kTop>
Refusal EncodeSigned(const float* x, uint8_t* block, SmallCodes& codes) {
  const float d = LargestOf(x, kSmall) / static_cast<float>(-kTop);
  const float inverse = InverseOrZero(d);
  if (!std::isfinite(inverse)) return Refusal::kUnderflow;
  if (!PutF16(block, d)) return Refusal::kScale;
  for (size_t i = 0; i < kSmall; ++i) {
    const auto code = static_cast<int>(x[i] * inverse + (static_cast<float>(kTop) + 0.5F));
    codes[i] = static_cast<uint8_t>(std::min(code, 2 * kTop - 1));
  }
  return Refusal::kNone;
}

/// Q4_1 and Q5_1: from the smallest to the largest value.
template <int kTop>
Refusal EncodeRange(const float* x, uint8_t* block, SmallCodes& codes) {
  const auto [min, max] = RangeOf(x, kSmall);
  const float d = (max - min) / static_cast<float>(kTop);
  const float inverse = InverseOrZero(d);
  if (!std::isfinite(inverse)) return Refusal::kUnderflow;
  if (!PutF16(block, d) || !PutF16(block + 2, min)) return Refusal::kScale;
  for (size_t i = 0; i < kSmall; ++i) {
    const auto code = static_cast<int>((x[i] - min) * inverse + 0.5F);
    codes[i] = static_cast<uint8_t>(std::min(code, kTop));
  }
  return Refusal::kNone;
}

/// Q8_0 and Q8_1: the unrounded scale, or nothing when the block is refused.
Refusal EncodeEightBits(const float* x, float& d, int8_t* codes) {
  d = MagnitudeOf(x, kSmall) / 127.0F;
  const float inverse = InverseOrZero(d);
  if (!std::isfinite(inverse)) return Refusal::kUnderflow;
  for (size_t i = 0; i < kSmall; ++i) codes[i] = static_cast<int8_t>(RoundAway(x[i] * inverse));
  return Refusal::kNone;
}

/// The first of the fp4 codes nearest to x in steps of half the scale.
uint8_t NearestE2M1(float x, float half_scale) {
  uint8_t best = 0;
  float least = std::abs(static_cast<float>(kTwiceE2M1[0]) * half_scale - x);
  for (size_t code = 1; code < kTwiceE2M1.size(); ++code) {
    const float error = std::abs(static_cast<float>(kTwiceE2M1[code]) * half_scale - x);
    if (error < least) {
      least = error;
      best = static_cast<uint8_t>(code);
    }
  }
  return best;
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

Encoded EncodeQ4_0(const float* values, size_t num_blocks, uint8_t* out) {
  return EachBlock<32, 18>(values, num_blocks, out, [](const float* x, uint8_t* block) {
    SmallCodes codes;
    const Refusal refusal = EncodeSigned<8>(x, block, codes);
    if (refusal == Refusal::kNone) PackNibbles(codes, block + 2);
    return refusal;
  });
}

Encoded EncodeQ4_1(const float* values, size_t num_blocks, uint8_t* out) {
  return EachBlock<32, 20>(values, num_blocks, out, [](const float* x, uint8_t* block) {
    SmallCodes codes;
    const Refusal refusal = EncodeRange<15>(x, block, codes);
    if (refusal == Refusal::kNone) PackNibbles(codes, block + 4);
    return refusal;
  });
}

Encoded EncodeQ5_0(const float* values, size_t num_blocks, uint8_t* out) {
  return EachBlock<32, 22>(values, num_blocks, out, [](const float* x, uint8_t* block) {
    SmallCodes codes;
    const Refusal refusal = EncodeSigned<16>(x, block, codes);
    if (refusal != Refusal::kNone) return refusal;
    PutU32(block + 2, FifthBits(codes));
    PackNibbles(codes, block + 6);
    return refusal;
  });
}

Encoded EncodeQ5_1(const float* values, size_t num_blocks, uint8_t* out) {
  return EachBlock<32, 24>(values, num_blocks, out, [](const float* x, uint8_t* block) {
    SmallCodes codes;
    const Refusal refusal = EncodeRange<31>(x, block, codes);
    if (refusal != Refusal::kNone) return refusal;
    PutU32(block + 4, FifthBits(codes));
    PackNibbles(codes, block + 8);
    return refusal;
  });
}

Encoded EncodeQ8_0(const float* values, size_t num_blocks, uint8_t* out) {
  return EachBlock<32, 34>(values, num_blocks, out, [](const float* x, uint8_t* block) {
    float d = 0;
    const Refusal refusal = EncodeEightBits(x, d, reinterpret_cast<int8_t*>(block + 2));
    if (refusal != Refusal::kNone) return refusal;
    return PutF16(block, d) ? Refusal::kNone : Refusal::kScale;
  });
}

Encoded EncodeQ8_1(const float* values, size_t num_blocks, uint8_t* out) {
  return EachBlock<32, 36>(values, num_blocks, out, [](const float* x, uint8_t* block) {
    float d = 0;
    auto* codes = reinterpret_cast<int8_t*>(block + 4);
    const Refusal refusal = EncodeEightBits(x, d, codes);
    if (refusal != Refusal::kNone) return refusal;
    int sum = 0;
    for (size_t i = 0; i < kSmall; ++i) sum += codes[i];
    const bool finite = PutF16(block, d) && PutF16(block + 2, static_cast<float>(sum) * d);
    return finite ? Refusal::kNone : Refusal::kScale;
  });
}

Encoded EncodeMXFP4(const float* values, size_t num_blocks, uint8_t* out) {
  return EachBlock<32, 17>(values, num_blocks, out, [](const float* x, uint8_t* block) {
    const float magnitude = MagnitudeOf(x, kSmall);
    constexpr float kSmallest = 0x1p-125F;
    if (magnitude > 0 && magnitude < kSmallest) return Refusal::kUnderflow;
    block[0] = magnitude > 0 ? static_cast<uint8_t>(FloorOfLog2(magnitude) + 125) : uint8_t{0};
    const float half_scale = HalfE8M0(block[0]);
    SmallCodes codes;
    for (size_t i = 0; i < kSmall; ++i) codes[i] = NearestE2M1(x[i], half_scale);
    PackNibbles(codes, block + 1);
    return Refusal::kNone;
  });
}

Encoded EncodeNVFP4(const float* values, size_t num_blocks, uint8_t* out) {
  return EachBlock<64, 36>(values, num_blocks, out, [](const float* x, uint8_t* block) {
    for (size_t s = 0; s < 4; ++s) {
      const float* run = x + kGroup * s;
      block[s] = EncodeUE4M3(MagnitudeOf(run, kGroup) / 6.0F);
      const float half_scale = HalfUE4M3(block[s]);
      for (size_t j = 0; j < 8; ++j) {
        block[4 + 8 * s + j] = static_cast<uint8_t>(NearestE2M1(run[j], half_scale) |
                                                    NearestE2M1(run[j + 8], half_scale) << 4);
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

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "assay/formats/fp_blocks.h"
#include "assay/formats/ggml_encode.h"
#include "assay/formats/ggml_small_blocks.h"

// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1: 32 values whose scale follows from the smallest and the
// largest.

namespace assay::ggml_internal {
namespace {

constexpr float kZeros[kSmallRun] = {};

/// Scales of a run of blocks before their rounding to f16.
struct Scales {
  std::array<float, kSmallRun> low;
  std::array<float, kSmallRun> high;
  std::array<float, kSmallRun> scale;
  std::array<float, kSmallRun> factor;  ///< 1 / scale, and 0 of 0
};

/// Blocks of a run before the first whose 1 / scale is infinite.
size_t Invert(size_t num_blocks, Scales& run) {
  size_t good = num_blocks;
  for (size_t b = num_blocks; b-- > 0;) {
    run.factor[b] = run.scale[b] != 0 ? 1.0F / run.scale[b] : 0.0F;
    if (!std::isfinite(run.factor[b])) good = b;
  }
  return good;
}

/// Encodes runs of blocks: rule(values, num_blocks, run) fills run.scale and tells how to choose
/// codes, write(block, index, run, codes) writes one block and tells whether its scales are finite.
template <size_t kBytes, typename Rule, typename Write>
Encoded EachRun(const float* values, size_t num_blocks, uint8_t* out, const Rule& rule,
                const Write& write) {
  Scales run{};
  alignas(64) std::array<int8_t, kSmallRun * kSmallBlock> codes;
  for (size_t first = 0; first < num_blocks; first += kSmallRun) {
    const size_t here = std::min(kSmallRun, num_blocks - first);
    const float* x = values + first * kSmallBlock;
    CodeRule how = rule(x, here, run);
    const size_t good = Invert(here, run);
    how.factor = run.factor.data();
    ChooseCodes(x, good, how, codes.data());
    for (size_t b = 0; b < good; ++b) {
      if (!write(out + (first + b) * kBytes, b, run, codes.data() + b * kSmallBlock)) {
        return {first + b, Refusal::kScale};
      }
    }
    if (good < here) return {first + good, Refusal::kUnderflow};
  }
  return {num_blocks};
}

/// The values of largest magnitude, the first of equals; +0 when there is none.
void LargestOfEach(const float* x, size_t num_blocks, const Scales& run, float* largest) {
  std::array<bool, kSmallRun> tie;
  // Without branches: which end is the larger one cannot be foretold.
  for (size_t b = 0; b < kSmallRun; ++b) {
    largest[b] = run.high[b] > -run.low[b] ? run.high[b] : run.low[b];
    tie[b] = run.high[b] == -run.low[b];
  }
  for (size_t b = 0; b < num_blocks; ++b) {
    if (!tie[b]) continue;
    const float* block = x + b * kSmallBlock;
    largest[b] =
        run.high[b] == 0 ? 0.0F : *std::find_if(block, block + kSmallBlock, [&](float value) {
          return std::abs(value) == run.high[b];
        });
  }
}

/// The largest value becomes code 0, that is −top.
auto SignedRule(float top) {
  return [top](const float* x, size_t num_blocks, Scales& run) {
    FindRanges(x, num_blocks, run.low.data(), run.high.data());
    LargestOfEach(x, num_blocks, run, run.scale.data());
    for (float& scale : run.scale) scale /= -top;
    return CodeRule{CodeRounding::kTruncate, nullptr, kZeros, top + 0.5F,
                    static_cast<int>(2 * top) - 1};
  };
}

/// From the smallest to the largest value.
auto RangeRule(float top) {
  return [top](const float* x, size_t num_blocks, Scales& run) {
    FindRanges(x, num_blocks, run.low.data(), run.high.data());
    for (size_t b = 0; b < num_blocks; ++b) {
      if (run.low[b] == 0) {  // the first zero decides the sign of the minimum
        const float* block = x + b * kSmallBlock;
        run.low[b] = *std::find(block, block + kSmallBlock, 0.0F);
      }
      run.scale[b] = std::abs(run.high[b] - run.low[b]) / top;
    }
    return CodeRule{CodeRounding::kTruncate, nullptr, run.low.data(), 0.5F, static_cast<int>(top)};
  };
}

CodeRule EightBitRule(const float* x, size_t num_blocks, Scales& run) {
  std::array<uint32_t, kSmallRun> magnitudes;
  BlockAbsMax({x, num_blocks * kSmallBlock}, kSmallBlock, std::span(magnitudes).first(num_blocks));
  for (size_t b = 0; b < num_blocks; ++b) {
    run.scale[b] = std::bit_cast<float>(magnitudes[b]) / 127.0F;
  }
  return {CodeRounding::kAwayFromZero, nullptr, kZeros, 0, 127};
}

void PackNibbles(const int8_t* codes, uint8_t* out) {
  for (size_t j = 0; j < kSmallBlock / 2; ++j) {
    out[j] = static_cast<uint8_t>((codes[j] & 15) | (codes[j + kSmallBlock / 2] & 15) << 4);
  }
}

/// The fifth bits of the codes, bit i of code i.
uint32_t FifthBits(const int8_t* codes) {
  uint32_t bits = 0;
  for (size_t byte = 0; byte < 4; ++byte) {
    uint64_t eight = 0;
    std::memcpy(&eight, codes + 8 * byte, sizeof eight);
    // The product moves bit 8i to bit 56 + i; no two bits meet on the way.
    const uint64_t moved = (eight >> 4 & 0x0101010101010101U) * 0x0102040810204080U;
    bits |= static_cast<uint32_t>(moved >> 56) << (8 * byte);
  }
  return bits;
}

}  // namespace

Encoded EncodeQ4_0(const float* values, size_t num_blocks, uint8_t* out) {
  return EachRun<18>(values, num_blocks, out, SignedRule(8),
                     [](uint8_t* block, size_t b, const Scales& run, const int8_t* codes) {
                       PackNibbles(codes, block + 2);
                       return PutF16(block, run.scale[b]);
                     });
}

Encoded EncodeQ4_1(const float* values, size_t num_blocks, uint8_t* out) {
  return EachRun<20>(values, num_blocks, out, RangeRule(15),
                     [](uint8_t* block, size_t b, const Scales& run, const int8_t* codes) {
                       PackNibbles(codes, block + 4);
                       return PutF16(block, run.scale[b]) && PutF16(block + 2, run.low[b]);
                     });
}

Encoded EncodeQ5_0(const float* values, size_t num_blocks, uint8_t* out) {
  return EachRun<22>(values, num_blocks, out, SignedRule(16),
                     [](uint8_t* block, size_t b, const Scales& run, const int8_t* codes) {
                       PutU32(block + 2, FifthBits(codes));
                       PackNibbles(codes, block + 6);
                       return PutF16(block, run.scale[b]);
                     });
}

Encoded EncodeQ5_1(const float* values, size_t num_blocks, uint8_t* out) {
  return EachRun<24>(values, num_blocks, out, RangeRule(31),
                     [](uint8_t* block, size_t b, const Scales& run, const int8_t* codes) {
                       PutU32(block + 4, FifthBits(codes));
                       PackNibbles(codes, block + 8);
                       return PutF16(block, run.scale[b]) && PutF16(block + 2, run.low[b]);
                     });
}

Encoded EncodeQ8_0(const float* values, size_t num_blocks, uint8_t* out) {
  return EachRun<34>(values, num_blocks, out, EightBitRule,
                     [](uint8_t* block, size_t b, const Scales& run, const int8_t* codes) {
                       std::memcpy(block + 2, codes, kSmallBlock);
                       return PutF16(block, run.scale[b]);
                     });
}

Encoded EncodeQ8_1(const float* values, size_t num_blocks, uint8_t* out) {
  return EachRun<36>(values, num_blocks, out, EightBitRule,
                     [](uint8_t* block, size_t b, const Scales& run, const int8_t* codes) {
                       int sum = 0;
                       for (size_t i = 0; i < kSmallBlock; ++i) sum += codes[i];
                       std::memcpy(block + 4, codes, kSmallBlock);
                       return PutF16(block, run.scale[b]) &&
                              PutF16(block + 2, static_cast<float>(sum) * run.scale[b]);
                     });
}

}  // namespace assay::ggml_internal

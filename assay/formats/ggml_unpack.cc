#include <algorithm>
#include <bit>

#include "assay/formats/ggml_blocks.h"
#include "assay/formats/ggml_bytes.h"

// Types whose blocks hold one scale, or one a group, in the clear.

namespace assay::ggml_internal {
namespace {

constexpr int kHalf = 16;

/// The split halves: byte j holds value j in its low and value j + 16 in its high nibble.
template <typename Value>
void UnpackHalves(const uint8_t* nibbles, int8_t* codes, const Value& value) {
  for (int j = 0; j < kHalf; ++j) {
    codes[j] = value(nibbles[j] & 15);
    codes[j + kHalf] = value(nibbles[j] >> 4);
  }
}

/// The same with a fifth bit, bit i of `high` for value i.
void UnpackFiveBits(const uint8_t* nibbles, uint32_t high, int offset, int8_t* codes) {
  for (int j = 0; j < kHalf; ++j) {
    const uint32_t low_bit = (high >> j) & 1;
    const uint32_t high_bit = (high >> (j + kHalf)) & 1;
    codes[j] = static_cast<int8_t>(static_cast<int>((nibbles[j] & 15U) | low_bit << 4) - offset);
    codes[j + kHalf] =
        static_cast<int8_t>(static_cast<int>((nibbles[j] >> 4) | high_bit << 4) - offset);
  }
}

void SetScales(float scale, size_t num_values, Parts parts) {
  std::fill_n(parts.scales, num_values / kGroup, scale);
}

int8_t TritOf(uint32_t byte, uint32_t power) {
  const uint32_t shifted = (byte * power) & 0xFF;
  return static_cast<int8_t>(static_cast<int>((shifted * 3) >> 8) - 1);
}

constexpr uint32_t kPowersOf3[] = {1, 3, 9, 27, 81};

}  // namespace

float HalfE8M0(uint8_t e) noexcept {
  constexpr uint32_t kSmallest = 0x00200000;  // 2^−128
  return std::bit_cast<float>(e < 2 ? kSmallest << e : (e - 1U) << 23);
}

float HalfUE4M3(uint8_t code) noexcept {
  if (code == 0x7F) return 0.0F;
  if (code == 0xFF) return 240.0F;
  return 0.5F * E4M3ToFloat(code & 0x7F);
}

void UnpackQ4_0(const uint8_t* block, Parts parts) {
  SetScales(F16At(block), 32, parts);
  UnpackHalves(block + 2, parts.codes, [](int nibble) { return static_cast<int8_t>(nibble - 8); });
}

void UnpackQ4_1(const uint8_t* block, Parts parts) {
  SetScales(F16At(block), 32, parts);
  std::fill_n(parts.mins, 2, -F16At(block + 2));
  UnpackHalves(block + 4, parts.codes, [](int nibble) { return static_cast<int8_t>(nibble); });
}

void UnpackQ5_0(const uint8_t* block, Parts parts) {
  SetScales(F16At(block), 32, parts);
  UnpackFiveBits(block + 6, U32At(block + 2), 16, parts.codes);
}

void UnpackQ5_1(const uint8_t* block, Parts parts) {
  SetScales(F16At(block), 32, parts);
  std::fill_n(parts.mins, 2, -F16At(block + 2));
  UnpackFiveBits(block + 8, U32At(block + 4), 0, parts.codes);
}

void UnpackQ8_0(const uint8_t* block, Parts parts) {
  SetScales(F16At(block), 32, parts);
  std::memcpy(parts.codes, block + 2, 32);
}

void UnpackQ8_1(const uint8_t* block, Parts parts) {
  SetScales(F16At(block), 32, parts);
  std::memcpy(parts.codes, block + 4, 32);
}

void UnpackIQ4_NL(const uint8_t* block, Parts parts) {
  SetScales(F16At(block), 32, parts);
  UnpackHalves(block + 2, parts.codes,
               [](int nibble) { return kIq4Values[static_cast<size_t>(nibble)]; });
}

void UnpackMXFP4(const uint8_t* block, Parts parts) {
  SetScales(HalfE8M0(block[0]), 32, parts);
  UnpackHalves(block + 1, parts.codes,
               [](int nibble) { return kTwiceE2M1[static_cast<size_t>(nibble)]; });
}

void UnpackNVFP4(const uint8_t* block, Parts parts) {
  for (size_t s = 0; s < 4; ++s) {
    parts.scales[s] = HalfUE4M3(block[s]);
    const uint8_t* nibbles = block + 4 + 8 * s;
    int8_t* codes = parts.codes + kGroup * s;
    for (size_t j = 0; j < 8; ++j) {
      codes[j] = kTwiceE2M1[nibbles[j] & 15];
      codes[j + 8] = kTwiceE2M1[nibbles[j] >> 4];
    }
  }
}

void UnpackQ1_0(const uint8_t* block, Parts parts) {
  SetScales(F16At(block), 128, parts);
  for (size_t i = 0; i < 128; ++i) {
    parts.codes[i] = static_cast<int8_t>(2 * ((block[2 + i / 8] >> (i % 8)) & 1) - 1);
  }
}

void UnpackQ2_0(const uint8_t* block, Parts parts) {
  SetScales(F16At(block), 64, parts);
  for (size_t i = 0; i < 64; ++i) {
    parts.codes[i] = static_cast<int8_t>(((block[2 + i / 4] >> (2 * (i % 4))) & 3) - 1);
  }
}

void UnpackTQ1_0(const uint8_t* block, Parts parts) {
  SetScales(F16At(block + 52), 256, parts);
  int8_t* codes = parts.codes;
  // Runs of bytes that give one trit each, then the next: 32 and 16 with five, 4 with four.
  for (const auto& [first, bytes, trits] : {std::array{0, 32, 5}, {32, 16, 5}, {48, 4, 4}}) {
    for (int n = 0; n < trits; ++n) {
      for (int m = 0; m < bytes; ++m) *codes++ = TritOf(block[first + m], kPowersOf3[n]);
    }
  }
}

void UnpackTQ2_0(const uint8_t* block, Parts parts) {
  SetScales(F16At(block + 64), 256, parts);
  int8_t* codes = parts.codes;
  for (int half = 0; half < 2; ++half) {
    for (int shift = 0; shift < 8; shift += 2) {
      for (int m = 0; m < 32; ++m) {
        *codes++ = static_cast<int8_t>(((block[32 * half + m] >> shift) & 3) - 1);
      }
    }
  }
}

}  // namespace assay::ggml_internal

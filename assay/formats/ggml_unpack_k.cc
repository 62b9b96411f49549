#include <bit>

#include "assay/formats/ggml_blocks.h"
#include "assay/formats/ggml_bytes.h"

// The K types: 256 values, whose sub-blocks have small integer scales (and minima) of their own.

namespace assay::ggml_internal {
namespace {

/// The 2-bit codes of Q2_K and Q3_K in natural order: 32 bytes hold 128 values, a bit pair a 32.
template <typename Value>
void UnpackPairs(const uint8_t* bytes, int8_t* codes, const Value& value) {
  for (int half = 0; half < 2; ++half) {
    for (int t = 0; t < 4; ++t) {
      for (int l = 0; l < 32; ++l) {
        codes[128 * half + 32 * t + l] =
            static_cast<int8_t>(value((bytes[32 * half + l] >> (2 * t)) & 3, 4 * half + t, l));
      }
    }
  }
}

/// d · scale and dmin · min of the eight sub-blocks of Q4_K and Q5_K.
void UnpackSixBitPairs(const uint8_t* block, Parts parts) {
  const float d = F16At(block);
  const float dmin = F16At(block + 2);
  for (int j = 0; j < 8; ++j) {
    const SixBitPair pair = SixBitPairAt(block + 4, j);
    parts.scales[2 * j] = parts.scales[2 * j + 1] = d * static_cast<float>(pair.scale);
    parts.mins[2 * j] = parts.mins[2 * j + 1] = dmin * static_cast<float>(pair.min);
  }
}

}  // namespace

void UnpackQ2_K(const uint8_t* block, Parts parts) {
  const float d = F16At(block + 80);
  const float dmin = F16At(block + 82);
  for (int b = 0; b < 16; ++b) {
    parts.scales[b] = d * static_cast<float>(block[b] & 15);
    parts.mins[b] = dmin * static_cast<float>(block[b] >> 4);
  }
  UnpackPairs(block + 16, parts.codes, [](int pair, int, int) { return pair; });
}

void UnpackQ3_K(const uint8_t* block, Parts parts) {
  const float d = F16At(block + 108);
  for (int b = 0; b < 16; ++b) {
    parts.scales[b] = d * static_cast<float>(SixBitAt(block + 96, b) - 32);
  }
  UnpackPairs(block + 32, parts.codes, [block](int pair, int run, int l) {
    return pair - (((block[l] >> run) & 1) != 0 ? 0 : 4);
  });
}

void UnpackQ4_K(const uint8_t* block, Parts parts) {
  UnpackSixBitPairs(block, parts);
  for (int c = 0; c < 4; ++c) {
    const uint8_t* nibbles = block + 16 + 32 * c;
    int8_t* codes = parts.codes + 64 * c;
    for (int l = 0; l < 32; ++l) {
      codes[l] = static_cast<int8_t>(nibbles[l] & 15);
      codes[l + 32] = static_cast<int8_t>(nibbles[l] >> 4);
    }
  }
}

void UnpackQ5_K(const uint8_t* block, Parts parts) {
  UnpackSixBitPairs(block, parts);
  const uint8_t* high = block + 16;
  for (int c = 0; c < 4; ++c) {
    const uint8_t* nibbles = block + 48 + 32 * c;
    int8_t* codes = parts.codes + 64 * c;
    for (int l = 0; l < 32; ++l) {
      codes[l] = static_cast<int8_t>((nibbles[l] & 15) | ((high[l] >> (2 * c)) & 1) << 4);
      codes[l + 32] = static_cast<int8_t>(nibbles[l] >> 4 | ((high[l] >> (2 * c + 1)) & 1) << 4);
    }
  }
}

void UnpackQ6_K(const uint8_t* block, Parts parts) {
  const float d = F16At(block + 208);
  for (int b = 0; b < 16; ++b) {
    parts.scales[b] = d * static_cast<float>(static_cast<int8_t>(block[192 + b]));
  }
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = block + 64 * half;
    const uint8_t* high = block + 128 + 32 * half;
    int8_t* codes = parts.codes + 128 * half;
    for (int l = 0; l < 32; ++l) {
      codes[l] = static_cast<int8_t>(((low[l] & 15) | (high[l] & 3) << 4) - 32);
      codes[l + 32] = static_cast<int8_t>(((low[l + 32] & 15) | ((high[l] >> 2) & 3) << 4) - 32);
      codes[l + 64] = static_cast<int8_t>((low[l] >> 4 | ((high[l] >> 4) & 3) << 4) - 32);
      codes[l + 96] = static_cast<int8_t>((low[l + 32] >> 4 | (high[l] >> 6) << 4) - 32);
    }
  }
}

void UnpackQ8_K(const uint8_t* block, Parts parts) {
  const float d = std::bit_cast<float>(U32At(block));
  for (size_t b = 0; b < 16; ++b) parts.scales[b] = d;
  std::memcpy(parts.codes, block + 4, 256);
}

}  // namespace assay::ggml_internal

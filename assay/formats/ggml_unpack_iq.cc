#include <bit>

#include "assay/formats/ggml_blocks.h"
#include "assay/formats/ggml_bytes.h"
#include "assay/formats/ggml_iq_grids.h"

// The IQ types: eight weights at a time are an entry of a code book, with their signs beside it.

namespace assay::ggml_internal {
namespace {

constexpr int kRuns = 8;  ///< of 32 values in a block

/// Bytes 0xFF where a bit of the index is set.
consteval std::array<uint64_t, 256> MakeSignMasks() {
  std::array<uint64_t, 256> masks{};
  for (unsigned signs = 0; signs < 256; ++signs) {
    std::array<uint8_t, 8> bytes{};
    for (size_t j = 0; j < 8; ++j) bytes[j] = (signs >> j & 1) != 0 ? 0xFF : 0;
    masks[signs] = std::bit_cast<uint64_t>(bytes);
  }
  return masks;
}

constexpr std::array<uint64_t, 256> kSignMasks = MakeSignMasks();

/// Seven signs are stored; the eighth makes the number of minus signs even.
unsigned WithEighthSign(unsigned seven) {
  return seven | (static_cast<unsigned>(std::popcount(seven)) & 1U) << 7;
}

/// Writes eight magnitudes with their signs. Requires magnitudes of at least 1: no carry then
/// leaves a byte when it is negated.
void PutSigned(uint64_t magnitudes, unsigned signs, int8_t* codes) {
  const uint64_t mask = kSignMasks[signs];
  const uint64_t values = (magnitudes ^ mask) + (mask & 0x0101010101010101U);
  std::memcpy(codes, &values, sizeof values);
}

void PutSigned(const GridOf8& grid, unsigned signs, int8_t* codes) {
  PutSigned(std::bit_cast<uint64_t>(grid), signs, codes);
}

void PutSigned(const GridOf4& first, const GridOf4& second, unsigned signs, int8_t* codes) {
  PutSigned(std::bit_cast<uint64_t>(std::array{first, second}), signs, codes);
}

/// Both scales of a run of 32 from the nibbles of one byte (IQ2_XS, IQ2_S).
void PutNibbleScales(float d, uint8_t nibbles, float* scales) {
  scales[0] = d * (0.5F + static_cast<float>(nibbles & 15)) * 0.25F;
  scales[1] = d * (0.5F + static_cast<float>(nibbles >> 4)) * 0.25F;
}

/// An entry of IQ1 plus or minus 1/8, in eighths.
void PutEighths(const GridOf8& grid, bool minus, int8_t* codes) {
  for (size_t j = 0; j < 8; ++j) codes[j] = static_cast<int8_t>(8 * grid[j] + (minus ? -1 : 1));
}

}  // namespace

void UnpackIQ2_XXS(const uint8_t* block, Parts parts) {
  const float d = F16At(block);
  for (int run = 0; run < kRuns; ++run) {
    const uint8_t* indices = block + 2 + 8 * run;
    const uint32_t signs_and_scale = U32At(indices + 4);
    const float scale = d * (0.5F + static_cast<float>(signs_and_scale >> 28)) * 0.25F;
    parts.scales[2 * run] = parts.scales[2 * run + 1] = scale;
    for (int l = 0; l < 4; ++l) {
      PutSigned(kIq2XxsGrid[indices[l]], WithEighthSign((signs_and_scale >> (7 * l)) & 127),
                parts.codes + 32 * run + 8 * l);
    }
  }
}

void UnpackIQ2_XS(const uint8_t* block, Parts parts) {
  const float d = F16At(block);
  for (int run = 0; run < kRuns; ++run) {
    PutNibbleScales(d, block[66 + run], parts.scales + 2 * run);
    for (int l = 0; l < 4; ++l) {
      const unsigned field = U16At(block + 2 + 8 * run + 2 * l);
      PutSigned(kIq2XsGrid[field & 511], WithEighthSign(field >> 9),
                parts.codes + 32 * run + 8 * l);
    }
  }
}

void UnpackIQ2_S(const uint8_t* block, Parts parts) {
  const float d = F16At(block);
  const uint8_t* low = block + 2;
  const uint8_t* signs = block + 34;
  const uint8_t* high = block + 66;
  for (int run = 0; run < kRuns; ++run) {
    PutNibbleScales(d, block[74 + run], parts.scales + 2 * run);
    for (int l = 0; l < 4; ++l) {
      const unsigned index =
          low[4 * run + l] | ((static_cast<unsigned>(high[run]) << (8 - 2 * l)) & 0x300);
      PutSigned(kIq2SGrid[index], signs[4 * run + l], parts.codes + 32 * run + 8 * l);
    }
  }
}

void UnpackIQ3_XXS(const uint8_t* block, Parts parts) {
  const float d = F16At(block);
  for (int run = 0; run < kRuns; ++run) {
    const uint8_t* indices = block + 2 + 8 * run;
    const uint32_t signs_and_scale = U32At(block + 66 + 4 * run);
    const float scale = d * (0.5F + static_cast<float>(signs_and_scale >> 28)) * 0.5F;
    parts.scales[2 * run] = parts.scales[2 * run + 1] = scale;
    for (int l = 0; l < 4; ++l) {
      PutSigned(kIq3XxsGrid[indices[2 * l]], kIq3XxsGrid[indices[2 * l + 1]],
                WithEighthSign((signs_and_scale >> (7 * l)) & 127), parts.codes + 32 * run + 8 * l);
    }
  }
}

void UnpackIQ3_S(const uint8_t* block, Parts parts) {
  const float d = F16At(block);
  const uint8_t* high = block + 66;
  const uint8_t* signs = block + 74;
  const uint8_t* scales = block + 106;
  for (int run = 0; run < kRuns; ++run) {
    const uint8_t* low = block + 2 + 8 * run;
    const int nibble = (scales[run / 2] >> (4 * (run % 2))) & 15;
    parts.scales[2 * run] = parts.scales[2 * run + 1] = d * static_cast<float>(1 + 2 * nibble);
    for (int l = 0; l < 4; ++l) {
      const unsigned bits = high[run];
      PutSigned(kIq3SGrid[low[2 * l] | ((bits << (8 - 2 * l)) & 256)],
                kIq3SGrid[low[2 * l + 1] | ((bits << (7 - 2 * l)) & 256)], signs[4 * run + l],
                parts.codes + 32 * run + 8 * l);
    }
  }
}

void UnpackIQ1_S(const uint8_t* block, Parts parts) {
  const float d = F16At(block);
  for (int run = 0; run < kRuns; ++run) {
    const uint8_t* low = block + 2 + 4 * run;
    const unsigned high = U16At(block + 34 + 2 * run);
    const float scale = d * static_cast<float>(2 * ((high >> 12) & 7) + 1);
    parts.scales[2 * run] = parts.scales[2 * run + 1] = scale * 0.125F;
    for (int l = 0; l < 4; ++l) {
      PutEighths(kIq1SGrid[low[l] | ((high >> (3 * l)) & 7) << 8], (high >> 15) != 0,
                 parts.codes + 32 * run + 8 * l);
    }
  }
}

void UnpackIQ1_M(const uint8_t* block, Parts parts) {
  const uint8_t* high = block + 32;
  const uint8_t* scales = block + 48;
  unsigned d_bits = 0;
  for (int j = 0; j < 4; ++j) d_bits |= static_cast<unsigned>(scales[2 * j + 1] >> 4) << (4 * j);
  const float d = F16ToFloat(static_cast<uint16_t>(d_bits));
  for (int run = 0; run < kRuns; ++run) {
    const unsigned word = unsigned{U16At(scales + 2 * (run / 2))} >> (6 * (run % 2));
    parts.scales[2 * run] = d * static_cast<float>(2 * (word & 7) + 1) * 0.125F;
    parts.scales[2 * run + 1] = d * static_cast<float>(2 * ((word >> 3) & 7) + 1) * 0.125F;
    for (int l = 0; l < 4; ++l) {
      const unsigned nibble = (high[2 * run + l / 2] >> (4 * (l % 2))) & 15;
      PutEighths(kIq1SGrid[block[4 * run + l] | (nibble & 7) << 8], (nibble & 8) != 0,
                 parts.codes + 32 * run + 8 * l);
    }
  }
}

}  // namespace assay::ggml_internal

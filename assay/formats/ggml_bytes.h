#pragma once

#include <cstdint>
#include <cstring>

#include "assay/numeric/element.h"

namespace assay::ggml_internal {

/// Fields of a block: little-endian at any alignment.

inline uint16_t U16At(const uint8_t* at) noexcept {
  return static_cast<uint16_t>(at[0] | at[1] << 8);
}

inline uint32_t U32At(const uint8_t* at) noexcept {
  return U16At(at) | static_cast<uint32_t>(U16At(at + 2)) << 16;
}

inline uint64_t U64At(const uint8_t* at) noexcept {
  return U32At(at) | uint64_t{U32At(at + 4)} << 32;
}

inline float F16At(const uint8_t* at) noexcept { return F16ToFloat(U16At(at)); }

inline void PutU16(uint8_t* at, uint32_t value) noexcept {
  at[0] = static_cast<uint8_t>(value);
  at[1] = static_cast<uint8_t>(value >> 8);
}

inline void PutU32(uint8_t* at, uint32_t value) noexcept {
  PutU16(at, value);
  PutU16(at + 2, value >> 16);
}

/// The two 6-bit scales (first) and minima (second) j = 0..7 of Q4_K and Q5_K in their 12 bytes.
struct SixBitPair {
  int scale;
  int min;
};

inline SixBitPair SixBitPairAt(const uint8_t* scales, int j) noexcept {
  if (j < 4) return {scales[j] & 63, scales[j + 4] & 63};
  return {(scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4, scales[j + 4] >> 4 | (scales[j] >> 6)
                                                                                     << 4};
}

}  // namespace assay::ggml_internal

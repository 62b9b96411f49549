#pragma once

// Codes of one, two or four vectors unpacked to the unsigned bytes that digits_avx512-inl.h
// multiplies. Included by the files that instantiate it. A code stands for the byte less kOffset.

#include "assay/kernels/digits_avx512-inl.h"

namespace assay {
namespace {

ASSAY_AVX512_BEGIN

/// Codes that share one int32 accumulator step, as kVectors vectors of 64 code bytes.
template <int kBits, int kMiddle = 0>
struct UnsignedCodes {
  static constexpr size_t kVectors = kBits == 4 ? 2 : kBits == 2 ? 4 : 1;
  static constexpr int kCodes = 64 * static_cast<int>(kVectors);
  static constexpr int kBytes = kCodes * kBits / 8;
  static constexpr int32_t kOffset = kMiddle;
  /// Largest |integer| of x: the sum of a lane's products (4 · kVectors of them) stays below 2^31,
  /// and the top one of three digits inside int8.
  static constexpr double kXScale = kBits == 8 ? 2096128.0 : kBits == 6 ? 4194000.0 : 8349286.0;

  UnsignedCodes() : spread(SpreadIndex<kBits>()), shifts(ShiftCounts<kBits>()) {}

  ASSAY_ALWAYS_INLINE void operator()(__m512i packed, __m512i (&out)[kVectors]) const {
    const __m512i mask = _mm512_set1_epi8(static_cast<char>((1 << kBits) - 1));
    if constexpr (kBits == 8) {
      out[0] = packed;
    } else if constexpr (kBits == 4) {
      out[0] = _mm512_and_si512(packed, mask);
      out[1] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), mask);
    } else if constexpr (kBits == 2) {
      out[0] = _mm512_and_si512(packed, mask);
      out[1] = _mm512_and_si512(_mm512_srli_epi16(packed, 2), mask);
      out[2] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), mask);
      out[3] = _mm512_and_si512(_mm512_srli_epi16(packed, 6), mask);
    } else {
      const __m512i bytes = _mm512_permutexvar_epi8(spread, packed);
      out[0] = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, bytes), mask);
    }
  }

  __m512i spread;
  __m512i shifts;
};

/// int8 plus 128.
struct Int8Codes {
  static constexpr size_t kVectors = 1;
  static constexpr int kCodes = 64;
  static constexpr int kBytes = 64;
  static constexpr int32_t kOffset = 128;
  static constexpr double kXScale = 2096128.0;  // 4 · 255 · 2^21 < 2^31

  ASSAY_ALWAYS_INLINE void operator()(__m512i packed, __m512i (&out)[1]) const {
    out[0] = _mm512_xor_si512(packed, _mm512_set1_epi8(static_cast<char>(0x80)));
  }
};

ASSAY_AVX512_END

}  // namespace
}  // namespace assay

#pragma once

// Group scales of every stored kind spread over the 16 lanes of a register. Included by the files
// that instantiate kernels with them.

#include <array>
#include <cstdint>
#include <cstring>

#include "assay/kernels/simd_avx512.h"

namespace assay {
namespace {

/// Distance of a code stream's prefetch: some 100 lines must be in flight per core, and a kernel of
/// 25 instructions a line sees only 20 of them itself.
constexpr int64_t kPrefetchBytes = 4096;

ASSAY_AVX512_BEGIN

// Stored scales as f32: 16 of them, or kGroups of them spread over the lanes; At(group) is where a
// group's stand in their row.

struct BF16Scales {
  static constexpr int64_t kBytes = 2;
  static constexpr int64_t At(int64_t group) { return group * kBytes; }

  template <int kGroups>
  ASSAY_ALWAYS_INLINE static __m512 Spread(const std::byte* p) {
    constexpr __mmask32 kHigh = 0xAAAAAAAAu;
    if constexpr (kGroups == 1) {
      int16_t value;
      std::memcpy(&value, p, sizeof(value));
      return _mm512_castsi512_ps(_mm512_maskz_set1_epi16(kHigh, value));
    } else {
      constexpr int kLanes = 16 / kGroups;
      alignas(64) std::array<uint16_t, 32> index{};
      for (size_t i = 0; i < 32; ++i) index[i] = static_cast<uint16_t>(i / 2 / kLanes);
      __m512i words;
      if constexpr (kGroups == 2) {
        int32_t value;
        std::memcpy(&value, p, sizeof(value));
        words = _mm512_set1_epi32(value);
      } else if constexpr (kGroups == 4) {
        int64_t value;
        std::memcpy(&value, p, sizeof(value));
        words = _mm512_set1_epi64(value);
      } else {
        words = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
      }
      return _mm512_castsi512_ps(
          _mm512_maskz_permutexvar_epi16(kHigh, _mm512_load_si512(index.data()), words));
    }
  }

  static __m512 Load16(const std::byte* p, __mmask16 mask) {
    const __m256i words = _mm256_maskz_loadu_epi16(mask, p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  }
};

struct F16Scales {
  static constexpr int64_t kBytes = 2;
  static constexpr int64_t At(int64_t group) { return group * kBytes; }

  template <int kGroups>
  ASSAY_ALWAYS_INLINE static __m512 Spread(const std::byte* p) {
    alignas(64) std::array<int32_t, 16> index{};
    for (size_t i = 0; i < 16; ++i) index[i] = static_cast<int32_t>(i) / (16 / kGroups);
    const __m128i words = _mm_maskz_loadu_epi16((1u << kGroups) - 1, p);
    return _mm512_permutexvar_ps(_mm512_load_si512(index.data()),
                                 _mm512_castps256_ps512(_mm256_cvtph_ps(words)));
  }

  static __m512 Load16(const std::byte* p, __mmask16 mask) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
  }
};

struct F32Scales {
  static constexpr int64_t kBytes = 4;
  static constexpr int64_t At(int64_t group) { return group * kBytes; }

  template <int kGroups>
  ASSAY_ALWAYS_INLINE static __m512 Spread(const std::byte* p) {
    alignas(64) std::array<int32_t, 16> index{};
    for (size_t i = 0; i < 16; ++i) index[i] = static_cast<int32_t>(i) / (16 / kGroups);
    return _mm512_permutexvar_ps(_mm512_load_si512(index.data()),
                                 _mm512_maskz_loadu_ps((1u << kGroups) - 1, p));
  }

  static __m512 Load16(const std::byte* p, __mmask16 mask) {
    return _mm512_maskz_loadu_ps(mask, p);
  }
};

/// One byte a scale: 2^(byte − 127); byte 0 is taken as 0. Requires bytes 0…254.
struct E8M0Scales {
  static constexpr int64_t kBytes = 1;
  static constexpr int64_t At(int64_t group) { return group * kBytes; }

  template <int kGroups>
  ASSAY_ALWAYS_INLINE static __m512 Spread(const std::byte* p) {
    alignas(64) std::array<uint8_t, 64> index{};
    for (size_t i = 0; i < 64; ++i) index[i] = static_cast<uint8_t>(i / 4 / (16 / kGroups));
    constexpr __mmask64 kThirdBytes = 0x4444444444444444u;
    const __m512i placed = _mm512_maskz_permutexvar_epi8(
        kThirdBytes, _mm512_load_si512(index.data()), BroadcastBytes<kGroups>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(placed, 7));
  }

  template <int kGroups>
  ASSAY_ALWAYS_INLINE static __m512i BroadcastBytes(const std::byte* p) {
    if constexpr (kGroups == 1) {
      return _mm512_set1_epi8(static_cast<char>(*p));
    } else if constexpr (kGroups == 2) {
      int16_t value;
      std::memcpy(&value, p, sizeof(value));
      return _mm512_set1_epi16(value);
    } else if constexpr (kGroups == 4) {
      int32_t value;
      std::memcpy(&value, p, sizeof(value));
      return _mm512_set1_epi32(value);
    } else {
      int64_t value;
      std::memcpy(&value, p, sizeof(value));
      return _mm512_set1_epi64(value);
    }
  }
};

/// One byte a scale: e4m3 times 2^-8, by way of f16, which holds its subnormals.
/// Requires bytes 0…0x7E (no sign, no NaN).
struct E4M3Scales {
  static constexpr int64_t kBytes = 1;
  static constexpr int64_t At(int64_t group) { return group * kBytes; }
  static constexpr float kFactor = 256.0f;

  template <int kGroups>
  ASSAY_ALWAYS_INLINE static __m512 Spread(const std::byte* p) {
    alignas(32) std::array<uint8_t, 32> index{};
    for (size_t i = 0; i < 32; ++i) index[i] = static_cast<uint8_t>(i / 2 / (16 / kGroups));
    constexpr __mmask32 kHighBytes = 0xAAAAAAAAu;
    const __m256i bytes = _mm512_castsi512_si256(E8M0Scales::BroadcastBytes<kGroups>(p));
    const __m256i words = _mm256_maskz_permutexvar_epi8(
        kHighBytes, _mm256_load_si256(reinterpret_cast<const __m256i*>(index.data())), bytes);
    return _mm512_cvtph_ps(_mm256_srli_epi16(words, 1));
  }
};

/// Records of an f16 and the small integers, one a group, that it is multiplied by.
template <int kPerRecord, bool kSigned>
struct SubScales {
  static constexpr int64_t At(int64_t group) { return group / kPerRecord * (2 + kPerRecord); }

  template <int kGroups>
  ASSAY_ALWAYS_INLINE static __m512 Spread(const std::byte* p) {
    static_assert(kGroups == kPerRecord);
    alignas(64) std::array<uint8_t, 64> index{};
    for (size_t i = 0; i < 64; ++i) index[i] = static_cast<uint8_t>(i / 4 / (16 / kGroups));
    constexpr __mmask64 kPlaces = kSigned ? 0x8888888888888888u : 0x1111111111111111u;
    __m512i integers = _mm512_maskz_permutexvar_epi8(kPlaces, _mm512_load_si512(index.data()),
                                                     E8M0Scales::BroadcastBytes<kGroups>(p + 2));
    if constexpr (kSigned) integers = _mm512_srai_epi32(integers, 24);
    int16_t factor;
    std::memcpy(&factor, p, sizeof(factor));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(integers), _mm512_cvtph_ps(_mm256_set1_epi16(factor)));
  }
};

/// Biases as records of an f16 and eight unsigned bytes. Reads two records whatever the mask.
struct SubBiases {
  static constexpr int64_t kPerRecord = 8;
  static constexpr int64_t kRecord = 2 + kPerRecord;
  static constexpr int64_t At(int64_t group) { return group / kPerRecord * kRecord; }

  static __m512 Load16(const std::byte* p, __mmask16 mask) {
    const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 2));
    const __m128i high = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + kRecord + 2));
    int16_t first;
    int16_t second;
    std::memcpy(&first, p, sizeof(first));
    std::memcpy(&second, p + kRecord, sizeof(second));
    const __m512 factors =
        _mm512_cvtph_ps(_mm256_mask_set1_epi16(_mm256_set1_epi16(first), 0xFF00, second));
    const __m512i integers = _mm512_cvtepu8_epi32(_mm_unpacklo_epi64(low, high));
    return _mm512_maskz_mul_ps(mask, _mm512_cvtepi32_ps(integers), factors);
  }
};

ASSAY_AVX512_END

}  // namespace
}  // namespace assay

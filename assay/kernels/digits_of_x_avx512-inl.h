#pragma once

// x as signed base-256 digits in the lane order of integer codes, AVX-512 VNNI. Included by the
// file that multiplies them.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "assay/base/aligned_buffer.h"
#include "assay/base/checked.h"
#include "assay/kernels/round_activations.h"
#include "assay/kernels/simd_avx512.h"

namespace assay {
namespace {

/// x of one call. Per unit of Codes::kCodes columns: kDigits × kVectors × 64 bytes of digits, most
/// significant digit first; then 16 f32, the scale of each int32 lane's x; with an offset, 16
/// int32: what the offset of the codes adds to each lane.
struct DigitsOfX {
  AlignedBuffer<std::byte> units;
  AlignedBuffer<float> sums;  ///< Σ x of each group, padded with zeros to 16
};

template <typename Codes, int kDigits>
constexpr int64_t UnitStride() {
  return int64_t{64} *
         (static_cast<int64_t>(Codes::kVectors) * kDigits + 1 + (Codes::kOffset != 0 ? 1 : 0));
}

ASSAY_AVX512_BEGIN

/// False when a value of the group is infinite or NaN, or the absmax so small (but not 0) that its
/// scale would lose bits.
inline bool AbsMaxOfGroup(const float* x, int64_t count, float& largest) {
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i most = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i += 16) {
    most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_loadu_si512(x + i), magnitude_bits));
  }
  const uint32_t bits = _mm512_reduce_max_epu32(most);
  std::memcpy(&largest, &bits, sizeof(largest));
  return bits < 0x7F800000u && (bits == 0 || largest >= kMinA8AbsMax);
}

/// 16 columns as integers, nearest even.
template <int kDigits>
inline __m512i IntegersOf(__m512 x, __m512d inverse, __m512 scale) {
  if constexpr (kDigits == 1) return _mm512_cvtps_epi32(_mm512_div_ps(x, scale));
  const __m256i low =
      _mm512_cvtpd_epi32(_mm512_mul_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(x)), inverse));
  const __m256i high =
      _mm512_cvtpd_epi32(_mm512_mul_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)), inverse));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/// 16 digits to their places: column kVectors · b + v of a unit is byte b of vector v.
template <int64_t kVectors>
inline void StoreDigits(__m128i digits, std::byte* vectors, int64_t in_unit) {
  std::byte* at = vectors + in_unit / kVectors;
  if constexpr (kVectors == 1) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), digits);
  } else {
    constexpr int kStep = static_cast<int>(kVectors);
    alignas(16) std::array<uint8_t, 16> order{};
    for (int i = 0; i < 16; ++i) {
      order[static_cast<size_t>(i)] =
          static_cast<uint8_t>(i % (16 / kStep) * kStep + i / (16 / kStep));
    }
    alignas(16) std::array<std::byte, 16> sorted;
    _mm_store_si128(
        reinterpret_cast<__m128i*>(sorted.data()),
        _mm_shuffle_epi8(digits, _mm_load_si128(reinterpret_cast<const __m128i*>(order.data()))));
    for (int64_t v = 0; v < kVectors; ++v) {
      std::memcpy(at + v * 64, sorted.data() + v * (16 / kVectors), 16 / kVectors);
    }
  }
}

/// `group`: columns that share a scale of x, multiples of 16; the last group may be shorter. Lane l
/// of a unit holds the columns 4 · kVectors · l …. False when AbsMaxOfGroup is.
template <typename Codes, int kDigits>
bool PrepareDigits(const float* x, int64_t cols, int64_t group, DigitsOfX& out) {
  constexpr int64_t kStride = UnitStride<Codes, kDigits>();
  constexpr auto kVectors = static_cast<int64_t>(Codes::kVectors);
  constexpr int64_t kLaneCodes = 4 * kVectors;
  const int64_t units = CeilDiv<int64_t>(cols, Codes::kCodes);
  out.units.Resize(static_cast<size_t>(units * kStride));
  std::memset(out.units.data(), 0, out.units.size());
  const int64_t groups = CeilDiv(cols, group);
  out.sums.Resize(static_cast<size_t>(CeilDiv<int64_t>(groups, 16) * 16));
  std::fill_n(out.sums.data(), out.sums.size(), 0.0f);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = g * group;
    const int64_t count = std::min(group, cols - first);
    float largest = 0;
    if (!AbsMaxOfGroup(x + first, count, largest)) return false;
    if (largest == 0) continue;
    const float scale = kDigits == 1
                            ? largest / 127.0f
                            : static_cast<float>(static_cast<double>(largest) / Codes::kXScale);
    const __m512 scales = _mm512_set1_ps(scale);
    const __m512d inverse = _mm512_set1_pd(Codes::kXScale / static_cast<double>(largest));
    __m512d sum = _mm512_setzero_pd();
    for (int64_t column = first; column < first + count; column += 16) {
      const __m512 values = _mm512_loadu_ps(x + column);
      const __m512i integers = IntegersOf<kDigits>(values, inverse, scales);
      // The bias meets what is multiplied: x itself, or its int8 rounding.
      const __m512 terms =
          kDigits == 1 ? _mm512_mul_ps(_mm512_cvtepi32_ps(integers), scales) : values;
      sum = _mm512_add_pd(sum, _mm512_cvtps_pd(_mm512_castps512_ps256(terms)));
      sum = _mm512_add_pd(sum, _mm512_cvtps_pd(_mm512_extractf32x8_ps(terms, 1)));
      std::byte* unit = out.units.data() + column / Codes::kCodes * kStride;
      const int64_t in_unit = column % Codes::kCodes;
      __m512i rest = integers;
      for (int64_t d = kDigits - 1; d >= 0; --d) {
        const __m128i digits = _mm512_cvtepi32_epi8(rest);
        StoreDigits<kVectors>(digits, unit + d * kVectors * 64, in_unit);
        rest = _mm512_srai_epi32(_mm512_sub_epi32(rest, _mm512_cvtepi8_epi32(digits)), 8);
      }
      alignas(64) std::array<int32_t, 16> lanes;
      _mm512_store_si512(lanes.data(), integers);
      for (int64_t i = 0; i < 16; i += kLaneCodes) {
        std::byte* scale_at = unit + kVectors * kDigits * 64 + (in_unit + i) / kLaneCodes * 4;
        std::memcpy(scale_at, &scale, sizeof(scale));
        if constexpr (Codes::kOffset != 0) {
          int32_t offset = 0;
          for (int64_t j = i; j < i + kLaneCodes; ++j) offset += lanes[static_cast<size_t>(j)];
          offset *= Codes::kOffset;
          std::memcpy(scale_at + 64, &offset, sizeof(offset));
        }
      }
    }
    out.sums[static_cast<size_t>(g)] = static_cast<float>(_mm512_reduce_add_pd(sum));
  }
  return true;
}

ASSAY_AVX512_END

}  // namespace
}  // namespace assay

#pragma once

// What the AMX panel engine multiplies with: panels of W and tiles of x as bf16 terms, and their
// product. Included by that engine alone, behind ASSAY_HAVE_AVX512.

#include <algorithm>
#include <array>
#include <cstring>

#include "assay/base/checked.h"
#include "assay/kernels/amx_tiles-inl.h"

namespace assay {
namespace {

constexpr int64_t kPanelRows = 32;  ///< two tiles of W
constexpr int64_t kXTile = 32;      ///< two tiles of rows of x
constexpr int64_t kHalfXTile = 16;
constexpr int64_t kStep = 32;        ///< columns of one tile product
constexpr int64_t kTileWords = 512;  ///< 16 rows of 32 words
constexpr int64_t kBlockK = 512;     ///< a panel of one term takes 32 KiB
constexpr int64_t kPanelStride = kBlockK + 32;
constexpr int64_t kPanelWords = kPanelRows * kPanelStride;

/// What one block of rows of x and of columns multiplies with.
struct Factors {
  std::array<const uint16_t*, 2> w;  ///< terms of the panel
  const uint16_t* w_finite;          ///< its first term for the second of x: inf · 0 would be NaN
  std::array<const uint16_t*, 2> x;  ///< terms of the packed tiles
  int64_t w_terms;
  int64_t x_terms;
  int64_t steps;
};

ASSAY_AMX_BEGIN

void ReleaseTiles() { _tile_release(); }

/// 16 values as bf16 words, nearest even, in the upper halves of the lanes.
inline __m512i RoundedBits(__m512 x) {
  const __m256i words = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16);
}

struct Terms {
  __m512i first;   ///< 32 words
  __m512i second;  ///< what is left, rounded; 0 where the first is not finite
};

/// What is left of x beside its bf16 term.
inline __m512 Rest(__m512 x) {
  const __m512i first = RoundedBits(x);
  const __m512i exponent = _mm512_set1_epi32(0x7F800000);
  const __mmask16 finite = _mm512_cmpneq_epi32_mask(_mm512_and_si512(first, exponent), exponent);
  return _mm512_maskz_sub_ps(finite, x, _mm512_castsi512_ps(first));
}

/// 32 values in order.
inline Terms Split(__m512 low, __m512 high) {
  return {reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)),
          reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(Rest(high), Rest(low)))};
}

inline __mmask32 NotFinite(__m512i words) {
  const __m512i exponent = _mm512_set1_epi16(0x7F80);
  return _mm512_cmpeq_epi16_mask(_mm512_and_si512(words, exponent), exponent);
}

/// Row `j` of a tile of x: pairs of columns go to consecutive rows of the tile.
inline void ScatterPairs(uint16_t* tile, int64_t j, __m512i pairs) {
  const __m512i rows = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  _mm512_i32scatter_epi32(tile + 2 * j, _mm512_slli_epi32(rows, 6), pairs, 1);
}

struct Packed {
  bool fits = true;     ///< every value is finite as bf16
  bool second = false;  ///< some second term is not 0
};

/// Columns [first_col, +count) of up to kHalfXTile rows of x into tiles, `step_words` apart.
/// Requires tiles of 0 where a row or a column is missing.
Packed PackRows(const Activations& x, int64_t first_row, int64_t rows, int64_t first_col,
                int64_t count, int64_t step_words, uint16_t* first, uint16_t* second) {
  __mmask32 bad = 0;
  __mmask32 left = 0;
  for (int64_t j = 0; j < rows; ++j) {
    const int64_t at = (first_row + j) * x.cols() + first_col;
    for (int64_t k = 0; k < count; k += kStep) {
      const int64_t n = std::min(kStep, count - k);
      const __mmask32 mask = n == kStep ? ~__mmask32{0} : (__mmask32{1} << n) - 1;
      const int64_t to = k / kStep * step_words;
      if (x.dtype() == DType::kBF16) {
        const __m512i words = _mm512_maskz_loadu_epi16(mask, x.bytes().data() + 2 * (at + k));
        bad |= NotFinite(words);
        ScatterPairs(first + to, j, words);
        continue;
      }
      const std::byte* values = x.bytes().data() + 4 * (at + k);
      const Terms terms =
          Split(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), values),
                _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), values + 4 * 16));
      bad |= NotFinite(terms.first);
      left |= _mm512_test_epi16_mask(terms.second, terms.second);
      ScatterPairs(first + to, j, terms.first);
      ScatterPairs(second + to, j, terms.second);
    }
  }
  return {bad == 0, left != 0};
}

/// Rows of f32 values into the two terms of a panel. False when all second terms are 0.
bool SplitPanel(const float* values, int64_t rows, int64_t count, uint16_t* first,
                uint16_t* second) {
  __mmask32 left = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < count; k += kStep) {
      const float* at = values + r * kPanelStride + k;
      const Terms terms = Split(_mm512_loadu_ps(at), _mm512_loadu_ps(at + 16));
      left |= _mm512_test_epi16_mask(terms.second, terms.second);
      _mm512_storeu_si512(first + r * kPanelStride + k, terms.first);
      _mm512_storeu_si512(second + r * kPanelStride + k, terms.second);
    }
  }
  return left != 0;
}

/// Copies a panel with 0 for infinities and NaN. False when there are none.
bool CopyFinite(const uint16_t* panel, int64_t count, uint16_t* out) {
  __mmask32 bad = 0;
  for (int64_t r = 0; r < kPanelRows; ++r) {
    for (int64_t k = 0; k < count; k += kStep) {
      const __m512i words = _mm512_loadu_si512(panel + r * kPanelStride + k);
      const __mmask32 here = NotFinite(words);
      bad |= here;
      _mm512_storeu_si512(out + r * kPanelStride + k,
                          _mm512_mask_mov_epi16(words, here, _mm512_setzero_si512()));
    }
  }
  return bad != 0;
}

/// 32 rows of W times kTiles tiles of 16 rows of x, added to the sums of earlier blocks.
template <int kTiles>
void MultiplyTiles(const Factors& factors, int64_t x_at, bool add, float* c, int64_t c_stride) {
  const auto stride = static_cast<size_t>(c_stride) * sizeof(float);
  float* c_below = c + 16 * c_stride;
  if (add) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c_below, stride);
    if constexpr (kTiles == 2) {
      _tile_loadd(2, c + 16, stride);
      _tile_loadd(3, c_below + 16, stride);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kTiles == 2) {
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  constexpr size_t kRowBytes = kPanelStride * 2;
  for (size_t i = 0; i < static_cast<size_t>(factors.w_terms); ++i) {
    for (size_t j = 0; j < static_cast<size_t>(factors.x_terms); ++j) {
      if (i + j == 2) continue;
      const uint16_t* w = j == 0 ? factors.w[i] : factors.w_finite;
      const uint16_t* x = factors.x[j] + x_at;
      for (int64_t s = 0; s < factors.steps; ++s) {
        // x is read once a panel: a plain load would push the panel out of the first-level cache.
        _tile_stream_loadd(6, x, 64);
        _tile_loadd(4, w, kRowBytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, w + 16 * kPanelStride, kRowBytes);
        _tile_dpbf16ps(1, 5, 6);
        if constexpr (kTiles == 2) {
          _tile_stream_loadd(7, x + kTileWords, 64);
          _tile_dpbf16ps(2, 4, 7);
          _tile_dpbf16ps(3, 5, 7);
        }
        // The sums that the next tile of x is added to.
        const float* next = c + 2 * s * c_stride + kXTile;
        _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(next + 16), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(next + c_stride), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(next + c_stride + 16), _MM_HINT_T0);
        w += kStep;
        x += kTiles * kTileWords;
      }
    }
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c_below, stride);
  if constexpr (kTiles == 2) {
    _tile_stored(2, c + 16, stride);
    _tile_stored(3, c_below + 16, stride);
  }
}

ASSAY_AMX_END

}  // namespace
}  // namespace assay

#include "assay/kernels/panel_engine_amx.h"

#include "assay/kernels/amx_permission.h"
#include "assay/kernels/simd_avx512.h"

#if ASSAY_HAVE_AVX512

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <optional>

#include "assay/base/checked.h"
#include "assay/base/parallel.h"
#include "assay/formats/catalogue.h"
#include "assay/kernels/amx_tiles-inl.h"
#include "assay/kernels/panel_engine_f32.h"
#include "assay/kernels/panel_source.h"

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
constexpr int64_t kMaxXBlock = 512;
constexpr int64_t kMaxRowBlock = 512;
constexpr int64_t kStreamBytes = int64_t{1} << 22;

int64_t RoundUp(int64_t value, int64_t multiple) { return CeilDiv(value, multiple) * multiple; }

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

struct Workspace {
  AlignedBuffer<uint16_t> panel;  ///< first term, second term, finite first term
  AlignedBuffer<float> values;    ///< of a panel that is to be split
  AlignedBuffer<float> sums;
  AlignedBuffer<uint16_t> staged_words;
  AlignedBuffer<float> staged_values;
};

/// True when the values under this rounding are bf16 numbers.
bool HoldsBF16(const EncodedMatrix& weight, DecodeRounding rounding) {
  return weight.format->Name() == "bf16" || weight.format->Name() == "packed12" ||
         (rounding == DecodeRounding::kCheckpoint && weight.dtype == DType::kBF16 &&
          FamilyOf(weight.format->Name()).name != "plain");
}

class TilePanelEngine final : public ProductKernel {
 public:
  TilePanelEngine(const KernelRequest& request, int64_t min_x_rows)
      : rows_(request.weight.rows),
        cols_(request.weight.cols),
        min_x_rows_(min_x_rows),
        write_y_(ActiveF32PanelKernel().write_y) {
    if (HoldsBF16(request.weight, request.rounding)) {
      words_.emplace(request.weight, request.rounding, kBlockK);
    } else {
      values_.emplace(request.weight, request.rounding, kBlockK);
    }
  }

  std::string Name() const override {
    return fmt::format("panels in {}, 32 x 32 sums in tiles, M >= {}, AMX",
                       words_ ? "bf16" : "bf16 pairs", min_x_rows_);
  }

  Accuracy Bound() const override {
    // A sum is rounded once for each tile product. A factor of two terms is 2^-17 of it off, the
    // product of two second terms up to 2^-16.
    const int products = (words_ ? 1 : 2) + (x_terms_ == 2 ? 1 : 0);
    constexpr std::array<double, 4> kSplit = {0, 0, 0x1p-17, 0x1p-15};
    constexpr std::array<const char*, 4> kFormulas = {
        "", "(K + 96) · 2^-24", "(2 K + 96) · 2^-24 + 2^-17", "(3 K + 96) · 2^-24 + 2^-15"};
    const auto at = static_cast<size_t>(products);
    return {.coefficient = (static_cast<double>(products * cols_) + 96) * 0x1p-24 + kSplit[at],
            .formula = kFormulas[at],
            .flush = 0x1p-124};
  }

  bool Run(const Activations& x, float* y) override {
    if (x.num_rows() < min_x_rows_) return false;
    const int64_t x_block =
        RoundUp(CeilDiv(x.num_rows(), CeilDiv(x.num_rows(), kMaxXBlock)), kXTile);
    const int64_t max_rows =
        words_ ? words_->MaxRows(kMaxRowBlock) : values_->MaxRows(kMaxRowBlock);
    const int64_t threads = NumThreads();
    const int64_t row_block = RoundUp(std::min(max_rows, CeilDiv(rows_, threads * 2)), kPanelRows);
    const bool stream = x.num_rows() * rows_ * int64_t{sizeof(float)} >= kStreamBytes &&
                        reinterpret_cast<uintptr_t>(y) % 16 == 0 && rows_ % 4 == 0;
    for (int64_t m = 0; m < x.num_rows(); m += x_block) {
      const int64_t num_x = std::min(x_block, x.num_rows() - m);
      if (!Pack(x, m, num_x)) return false;
      ParallelFor(0, rows_, row_block, [&](int64_t first, int64_t last) {
        Rows(first, last, num_x, stream, y + m * rows_);
      });
    }
    return true;
  }

 private:
  /// False when bf16 cannot hold this x.
  bool Pack(const Activations& x, int64_t first_row, int64_t num_x) {
    width_ = RoundUp(num_x, kHalfXTile);
    const auto count = static_cast<size_t>(width_ * RoundUp(cols_, kStep));
    const int64_t max_terms = x.dtype() == DType::kBF16 ? 1 : 2;
    for (int64_t t = 0; t < max_terms; ++t) x_[static_cast<size_t>(t)].Resize(count);
    std::atomic<bool> fits = true;
    std::atomic<bool> second = false;
    ParallelFor(0, cols_, kBlockK, [&](int64_t first, int64_t last) {
      const int64_t padded = RoundUp(last - first, kStep);
      for (int64_t t = 0; t < max_terms; ++t) {
        std::memset(x_[static_cast<size_t>(t)].data() + first * width_, 0,
                    static_cast<size_t>(width_ * padded) * sizeof(uint16_t));
      }
      for (int64_t j = 0; j < num_x; j += kHalfXTile) {
        const int64_t tile = j / kXTile * kXTile;
        const int64_t at = first * width_ + tile * padded + (j - tile) / kHalfXTile * kTileWords;
        const Packed packed =
            PackRows(x, first_row + j, std::min(kHalfXTile, num_x - j), first, last - first,
                     std::min(kXTile, width_ - tile) / kHalfXTile * kTileWords, x_[0].data() + at,
                     max_terms == 2 ? x_[1].data() + at : nullptr);
        if (!packed.fits) fits = false;
        if (packed.second) second = true;
      }
    });
    x_terms_ = second ? 2 : 1;
    return fits;
  }

  void Rows(int64_t first, int64_t last, int64_t num_x, bool stream, float* y) const {
    thread_local Workspace work;
    const int64_t c_stride = width_ + 16;
    work.panel.Resize(3 * kPanelWords);
    work.values.Resize(kPanelWords);
    // The prefetch of the next tile's sums runs past the last.
    work.sums.Resize(static_cast<size_t>(RoundUp(last - first, kPanelRows) * c_stride));
    if (words_) {
      words_->Stage(first, last - first, work.staged_words);
    } else {
      values_->Stage(first, last - first, work.staged_values);
    }
    ConfigureTiles();
    for (int64_t k = 0; k < cols_; k += kBlockK) {
      const int64_t count = std::min(kBlockK, cols_ - k);
      const int64_t padded = RoundUp(count, kStep);
      Factors factors{
          .w = {work.panel.data(), work.panel.data() + kPanelWords},
          .w_finite = work.panel.data(),
          .x = {x_[0].data() + k * width_, x_terms_ == 2 ? x_[1].data() + k * width_ : nullptr},
          .w_terms = 1,
          .x_terms = x_terms_,
          .steps = padded / kStep};
      for (int64_t row = first; row < last; row += kPanelRows) {
        const int64_t rows = std::min(kPanelRows, last - row);
        factors.w_terms = DecodePanel(first, row, rows, k, count, work);
        if (x_terms_ == 2) {
          uint16_t* finite = work.panel.data() + 2 * kPanelWords;
          factors.w_finite = CopyFinite(work.panel.data(), count, finite) ? finite : factors.w[0];
        }
        float* c = work.sums.data() + (row - first) * c_stride;
        int64_t j = 0;
        for (; j + kXTile <= width_; j += kXTile) {
          MultiplyTiles<2>(factors, j * padded, k > 0, c + j, c_stride);
        }
        if (j < width_) MultiplyTiles<1>(factors, j * padded, k > 0, c + j, c_stride);
      }
    }
    ReleaseTiles();
    write_y_(work.sums.data(), c_stride, last - first, num_x, stream, y + first, rows_);
  }

  /// Returns the number of terms; missing rows and columns are 0.
  int64_t DecodePanel(int64_t first, int64_t row, int64_t rows, int64_t col, int64_t count,
                      Workspace& work) const {
    if (words_) {
      words_->Decode(first, row, rows, col, count, work.staged_words, work.panel.data(),
                     kPanelStride);
      ClearEdges(work.panel.data(), rows, count);
      return 1;
    }
    values_->Decode(first, row, rows, col, count, work.staged_values, work.values.data(),
                    kPanelStride);
    ClearEdges(work.values.data(), rows, count);
    return SplitPanel(work.values.data(), kPanelRows, count, work.panel.data(),
                      work.panel.data() + kPanelWords)
               ? 2
               : 1;
  }

  template <typename T>
  static void ClearEdges(T* panel, int64_t rows, int64_t count) {
    const int64_t padded = RoundUp(count, kStep);
    for (int64_t r = 0; r < rows && padded > count; ++r) {
      std::fill_n(panel + r * kPanelStride + count, padded - count, T{});
    }
    for (int64_t r = rows; r < kPanelRows; ++r) std::fill_n(panel + r * kPanelStride, padded, T{});
  }

  int64_t rows_;
  int64_t cols_;
  int64_t min_x_rows_;
  void (*write_y_)(const float*, int64_t, int64_t, int64_t, bool, float*, int64_t);
  std::optional<PanelSource<uint16_t>> words_;
  std::optional<PanelSource<float>> values_;
  std::array<AlignedBuffer<uint16_t>, 2> x_;
  int64_t x_terms_ = 1;
  int64_t width_ = 0;
};

}  // namespace

std::unique_ptr<ProductKernel> MakeTilePanelEngine(const KernelRequest& request,
                                                   int64_t min_x_rows) {
  if (!HasAmxBF16()) return nullptr;
  return std::make_unique<TilePanelEngine>(request, min_x_rows);
}

}  // namespace assay

#else

namespace assay {

std::unique_ptr<ProductKernel> MakeTilePanelEngine(const KernelRequest&, int64_t) {
  return nullptr;
}

}  // namespace assay

#endif

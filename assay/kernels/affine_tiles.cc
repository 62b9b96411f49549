#include "assay/kernels/affine_kernels.h"
#include "assay/kernels/affine_tiles_x.h"
#include "assay/kernels/amx_permission.h"
#include "assay/kernels/simd_avx512.h"

#if ASSAY_HAVE_AVX512

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "assay/base/checked.h"
#include "assay/base/parallel.h"
#include "assay/formats/affine.h"
#include "assay/kernels/amx_tiles-inl.h"
#include "assay/kernels/scales_avx512-inl.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

using namespace affine_tiles;  // NOLINT: the other half of this kernel

// Codes are exact in bf16 and so is x, or its three bf16 terms: a tile product of a block of
// columns is exact up to f32 summation. Scales and biases are applied to each block's product.

constexpr int64_t kTileRows = 16;  ///< of W; a tile of C has as many
constexpr int64_t kSlabRows = 32;  ///< two tiles of W share each tile of x
constexpr int64_t kChunk = 4;      ///< blocks decoded at a time: 16 KiB of tiles in L1

struct Weights {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* biases;
  int64_t rows;
  int64_t cols;
  int64_t row_bytes;
  int64_t groups;
  int64_t group;
};

ASSAY_AMX_BEGIN

/// Codes of one block as bf16 words, two steps of 32.
template <int kBits>
struct CodeDecoder {
  CodeDecoder() {
    alignas(64) std::array<uint16_t, 64> words;
    for (size_t i = 0; i < 64; ++i) {
      const size_t code = kBits >= 6 ? i : i % (size_t{1} << (kBits < 6 ? kBits : 5));
      words[i] = FloatToBF16(static_cast<float>(code));
    }
    low = _mm512_load_si512(words.data());
    high = _mm512_load_si512(words.data() + 32);
    alignas(64) std::array<uint8_t, 64> index{};
    for (size_t i = 0; i < 64; ++i) {
      const size_t byte = i % 8;
      index[i] = static_cast<uint8_t>(i / 8 * kBits + (byte < kBits ? byte : 0));
    }
    spread = _mm512_load_si512(index.data());
    uint64_t counts = 0;
    for (uint64_t i = 0; i < 8; ++i) counts |= (i * (kBits == 8 ? 0 : kBits)) << (8 * i);
    shifts = _mm512_set1_epi64(static_cast<int64_t>(counts));
  }

  void Decode(const std::byte* at, std::byte* step0, std::byte* step1) const {
    if constexpr (kBits == 4) {
      // The permute reads 5 bits of each word: the 16 entries stand twice, no mask.
      const __m512i words =
          _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
      _mm512_store_si512(step0, _mm512_permutexvar_epi16(words, low));
      _mm512_store_si512(step1, _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), low));
    } else if constexpr (kBits == 8) {
      Store8(at, step0);
      Store8(at + 32, step1);
    } else {
      constexpr __mmask64 kLoad = (__mmask64{1} << (kBits * 8)) - 1;
      const __m512i bytes = _mm512_multishift_epi64_epi8(
          shifts, _mm512_permutexvar_epi8(spread, _mm512_maskz_loadu_epi8(kLoad, at)));
      _mm512_store_si512(step0, LookUp(_mm512_castsi512_si256(bytes)));
      _mm512_store_si512(step1, LookUp(_mm512_extracti64x4_epi64(bytes, 1)));
    }
  }

  /// Upper bits of the bytes are junk; the permutes ignore those beyond their table.
  __m512i LookUp(__m256i bytes) const {
    const __m512i words = _mm512_cvtepu8_epi16(bytes);
    if constexpr (kBits == 6) return _mm512_permutex2var_epi16(low, words, high);
    return _mm512_permutexvar_epi16(words, low);
  }

  /// Integers of 8 bits are exact in bf16: the upper half of their f32.
  static void Store8(const std::byte* at, std::byte* out) {
    const auto* bytes = reinterpret_cast<const __m128i*>(at);
    const __m512 first = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(bytes)));
    const __m512 second = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(bytes + 1)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out),
                       _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(first), 16)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + 32),
                       _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(second), 16)));
  }

  __m512i low;
  __m512i high;
  __m512i spread;
  __m512i shifts;
};

/// What a thread works in.
struct Workspace {
  alignas(64) std::byte a[2 * kChunk * 2 * kTileBytes];     ///< [row tile][block][step]
  alignas(64) float c[kChunk * kMaxColumnTiles * 2 * 256];  ///< [block][column tile][row tile]
  alignas(64) float sums[kSlabRows * kMaxColumnTiles * 16];
  AlignedBuffer<float> scales;  ///< [row][group]
  AlignedBuffer<float> biases;
};

template <typename Scales>
void WidenRows(const std::byte* plane, int64_t groups, int64_t rows, float* out) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < groups; g += 16) {
      const int64_t left = groups - g;
      const auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1 << left) - 1);
      _mm512_mask_storeu_ps(out + r * groups + g, mask,
                            Scales::Load16(plane + (r * groups + g) * Scales::kBytes, mask));
    }
  }
}

template <int kBits>
void DecodeChunk(const Weights& w, const CodeDecoder<kBits>& decoder, int64_t row, int64_t rows,
                 int64_t block, int64_t blocks, Workspace& work) {
  constexpr int64_t kBlockBytes = kBlock * kBits / 8;
  // Four chunks ahead in the row, or in the row of the next slab.
  constexpr int64_t kAhead = 4 * kChunk;
  const int64_t row_blocks = w.cols / kBlock;
  const int64_t next = block + kAhead < row_blocks
                           ? (block + kAhead) * kBlockBytes
                           : kSlabRows * w.row_bytes + (block + kAhead - row_blocks) * kBlockBytes;
  const std::byte* at = w.codes + row * w.row_bytes;
  for (int64_t r = 0; r < rows; ++r, at += w.row_bytes) {
    for (int64_t b = 0; b < kChunk * kBlockBytes; b += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(at + next + b), _MM_HINT_T1);
    }
    const std::byte* codes = at + block * kBlockBytes;
    std::byte* out = work.a + r / kTileRows * (kChunk * 2 * kTileBytes) + r % kTileRows * 64;
    if (blocks == kChunk) {
      for (int64_t b = 0; b < kChunk; ++b) {
        decoder.Decode(codes + b * kBlockBytes, out + b * 2 * kTileBytes,
                       out + (b * 2 + 1) * kTileBytes);
      }
    } else {
      for (int64_t b = 0; b < blocks; ++b) {
        decoder.Decode(codes + b * kBlockBytes, out + b * 2 * kTileBytes,
                       out + (b * 2 + 1) * kTileBytes);
      }
    }
  }
}

/// Two blocks at a time: four chains of tile products, so that none waits for its own last one.
inline void MultiplyChunk(const TiledX& x, int64_t block, int64_t blocks, Workspace& work) {
  const int64_t block_words = 2 * x.column_tiles * 512;
  const int64_t c_stride = x.column_tiles * 512;
  constexpr int64_t kRowTile = kChunk * 2 * kTileBytes;
  for (int64_t b = 0; b < blocks; b += 2) {
    const std::byte* a = work.a + b * 2 * kTileBytes;
    // An odd last block is multiplied twice: its second product is not read.
    const int64_t second = b + 1 < blocks ? 1 : 0;
    for (int64_t c = 0; c < x.column_tiles; ++c) {
      const uint16_t* x_first = x.tiles.data() + (block + b) * block_words + c * 512;
      const uint16_t* x_second = x_first + second * block_words;
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      _tile_loadd(6, x_first, 64);
      _tile_loadd(4, a, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, a + kRowTile, 64);
      _tile_dpbf16ps(1, 5, 6);
      _tile_loadd(7, x_second, 64);
      _tile_loadd(4, a + 2 * kTileBytes, 64);
      _tile_dpbf16ps(2, 4, 7);
      _tile_loadd(5, a + kRowTile + 2 * kTileBytes, 64);
      _tile_dpbf16ps(3, 5, 7);
      _tile_loadd(6, x_first + c_stride, 64);
      _tile_loadd(4, a + kTileBytes, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, a + kRowTile + kTileBytes, 64);
      _tile_dpbf16ps(1, 5, 6);
      _tile_loadd(7, x_second + c_stride, 64);
      _tile_loadd(4, a + 3 * kTileBytes, 64);
      _tile_dpbf16ps(2, 4, 7);
      _tile_loadd(5, a + kRowTile + 3 * kTileBytes, 64);
      _tile_dpbf16ps(3, 5, 7);
      float* out = work.c + b * c_stride + c * 512;
      _tile_stored(0, out, 64);
      _tile_stored(1, out + 256, 64);
      _tile_stored(2, out + c_stride, 64);
      _tile_stored(3, out + c_stride + 256, 64);
    }
  }
}

inline void ScaleChunk(const Weights& w, const TiledX& x, int64_t rows, int64_t block,
                       int64_t blocks, Workspace& work) {
  const int64_t stride = x.column_tiles * 16;
  const int64_t c_stride = x.column_tiles * 512;
  const int64_t groups = w.groups;
  // Divisions here, not once a row. A block that does not begin a group adds no bias.
  std::array<int64_t, kChunk> group_of{};
  std::array<bool, kChunk> begins{};
  for (int64_t b = 0; b < blocks; ++b) {
    group_of[static_cast<size_t>(b)] = (block + b) * kBlock / w.group;
    begins[static_cast<size_t>(b)] = (block + b) * kBlock % w.group == 0;
  }
  for (int64_t c = 0; c < x.column_tiles; ++c) {
    __m512 x_sums[kChunk];
    for (size_t b = 0; b < kChunk; ++b) {
      x_sums[b] = begins[b] ? _mm512_load_ps(x.sums.data() + group_of[b] * stride + c * 16)
                            : _mm512_setzero_ps();
    }
    const float* products = work.c + c * 512;
    const float* scales = work.scales.data();
    const float* biases = work.biases.data();
    float* sum_at = work.sums + c * 16;
    for (int64_t r = 0; r < rows; ++r) {
      __m512 sum = _mm512_load_ps(sum_at);
      const auto add = [&](size_t b) {
        const __m512 product =
            _mm512_load_ps(products + static_cast<int64_t>(b) * c_stride + r * 16);
        sum = _mm512_fmadd_ps(product, _mm512_set1_ps(scales[group_of[b]]), sum);
        sum = _mm512_fmadd_ps(x_sums[b], _mm512_set1_ps(biases[group_of[b]]), sum);
      };
      if (blocks == kChunk) {
        for (size_t b = 0; b < kChunk; ++b) add(b);
      } else {
        for (size_t b = 0; b < static_cast<size_t>(blocks); ++b) add(b);
      }
      _mm512_store_ps(sum_at, sum);
      scales += groups;
      biases += groups;
      sum_at += stride;
    }
  }
}

template <int kBits, typename Scales>
void Rows(const Weights& w, const TiledX& x, int64_t first, int64_t last, float* y) {
  thread_local Workspace work;
  work.scales.Resize(static_cast<size_t>(kSlabRows * w.groups));
  work.biases.Resize(static_cast<size_t>(kSlabRows * w.groups));
  std::memset(work.a, 0, sizeof(work.a));
  ConfigureTiles();
  const CodeDecoder<kBits> decoder;
  const int64_t row_blocks = w.cols / kBlock;
  for (int64_t row = first; row < last; row += kSlabRows) {
    const int64_t rows = std::min(kSlabRows, last - row);
    const int64_t scale_bytes = w.groups * Scales::kBytes;
    WidenRows<Scales>(w.scales + row * scale_bytes, w.groups, rows, work.scales.data());
    WidenRows<Scales>(w.biases + row * scale_bytes, w.groups, rows, work.biases.data());
    for (int64_t b = 0; b < kSlabRows * scale_bytes; b += 64) {
      const int64_t next = (row + kSlabRows) * scale_bytes + b;
      _mm_prefetch(reinterpret_cast<const char*>(w.scales + next), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(w.biases + next), _MM_HINT_T0);
    }
    std::memset(work.sums, 0, sizeof(work.sums));
    for (int64_t block = 0; block < row_blocks; block += kChunk) {
      const int64_t blocks = std::min(kChunk, row_blocks - block);
      DecodeChunk(w, decoder, row, rows, block, blocks, work);
      MultiplyChunk(x, block, blocks, work);
      ScaleChunk(w, x, rows, block, blocks, work);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const float* sums = work.sums + r * x.column_tiles * 16;
      for (int64_t m = 0; m < x.num_x; ++m) {
        float sum = sums[m];
        for (int64_t t = 1; t < x.terms; ++t) sum += sums[t * x.num_x + m];
        y[m * w.rows + row + r] = sum;
      }
    }
  }
  _tile_release();
}

ASSAY_AMX_END

using RowsFunction = void (*)(const Weights& w, const TiledX& x, int64_t first, int64_t last,
                              float* y);

template <int kBits>
RowsFunction RowsFor(DType dtype) {
  if (dtype == DType::kBF16) return Rows<kBits, BF16Scales>;
  if (dtype == DType::kF16) return Rows<kBits, F16Scales>;
  return Rows<kBits, F32Scales>;
}

RowsFunction RowsFor(int bits, DType dtype) {
  if (bits == 2) return RowsFor<2>(dtype);
  if (bits == 3) return RowsFor<3>(dtype);
  if (bits == 4) return RowsFor<4>(dtype);
  if (bits == 5) return RowsFor<5>(dtype);
  if (bits == 6) return RowsFor<6>(dtype);
  return RowsFor<8>(dtype);
}

class AffineTiles final : public ProductKernel {
 public:
  AffineTiles(const EncodedMatrix& weight, const AffineFormat& format)
      : weight_(weight),
        bits_(format.bits()),
        rows_(RowsFor(bits_, weight.dtype)),
        planes_{weight_.Get("codes").bytes().data(),
                weight_.Get("scales").bytes().data(),
                weight_.Get("biases").bytes().data(),
                weight.rows,
                weight.cols,
                weight.cols * bits_ / 8,
                weight.cols / format.group_size(),
                format.group_size()} {}

  std::string Name() const override {
    return fmt::format("affine{} codes in bf16 tiles, AMX", bits_);
  }

  Accuracy Bound() const override {
    // A block's 64 products, the blocks, biases, terms.
    return {false, (static_cast<double>(weight_.cols) / 32 + 96) * 0x1p-24, 1,
            "(K/32 + 96) · 2^-24"};
  }

  bool Run(const Activations& x, float* y) override {
    if (x.num_rows() < 2 || x.num_rows() > kMaxXRows) return false;
    if (!PrepareX(bits_, x, planes_.group, x_)) return false;
    ParallelFor(0, weight_.rows, RowGrain(weight_.rows, kSlabRows),
                [&](int64_t first, int64_t last) { rows_(planes_, x_, first, last, y); });
    return true;
  }

 private:
  EncodedMatrix weight_;
  int bits_;
  RowsFunction rows_;
  Weights planes_;
  TiledX x_;
};

}  // namespace

std::unique_ptr<ProductKernel> MakeAffineTiles(const EncodedMatrix& weight) {
  const auto* format = dynamic_cast<const AffineFormat*>(weight.format.get());
  if (format == nullptr || format->group_size() % kBlock != 0 || !HasAmxBF16()) return nullptr;
  return std::make_unique<AffineTiles>(weight, *format);
}

}  // namespace assay

#else

namespace assay {

std::unique_ptr<ProductKernel> MakeAffineTiles(const EncodedMatrix&) { return nullptr; }

}  // namespace assay

#endif

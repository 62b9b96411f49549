#include "assay/kernels/fp8_gemv.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <vector>

#include "assay/base/checked.h"
#include "assay/base/parallel.h"
#include "assay/formats/fp8_block.h"
#include "assay/kernels/simd_avx512.h"
#include "assay/tensor/convert.h"

#if ASSAY_HAVE_AVX512
#include "assay/kernels/float_rows_avx512-inl.h"
#endif

namespace assay {
namespace {

#if ASSAY_HAVE_AVX512

/// True when some code is the NaN of e4m3, the one value the conversion by way of f16 gets wrong.
bool HoldsE4M3NaN(std::span<const std::byte> codes) {
  constexpr int64_t kChunk = int64_t{1} << 22;
  std::atomic<bool> found{false};
  ParallelFor(0, static_cast<int64_t>(codes.size()), kChunk, [&](int64_t first, int64_t last) {
    uint8_t largest = 0;
    for (int64_t i = first; i < last; ++i) {
      const auto magnitude =
          static_cast<uint8_t>(static_cast<uint8_t>(codes[static_cast<size_t>(i)]) & 0x7F);
      largest = std::max(largest, magnitude);
    }
    if (largest == 0x7F) found = true;
  });
  return found;
}

/// What the f16 of an e4m3 code must be multiplied by.
constexpr float kE4M3Factor = 256.0f;

ASSAY_AVX512_BEGIN

/// 64 bytes to f32 by way of f16, which holds the subnormals of both types. Vectors: even bytes of
/// the first 32 columns, odd ones, then those of the last 32.
constexpr int Fp8Column(int v, int lane) { return v / 2 * 32 + 2 * lane + v % 2; }

template <bool kE5M2>
inline void Fp8ToFloat(__m512i bytes, __m512 (&out)[4]) {
  __m512i even, odd;
  if constexpr (kE5M2) {
    even = _mm512_slli_epi16(bytes, 8);
    odd = _mm512_and_si512(bytes, _mm512_set1_epi16(static_cast<int16_t>(0xFF00)));
  } else {
    // Sign at bit 15, exponent and mantissa one bit down: e4m3 · 2^-8 as f16.
    const __m512i keep = _mm512_set1_epi16(static_cast<int16_t>(0xBF80));
    even = _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 1), keep);
    odd = _mm512_and_si512(_mm512_srai_epi16(bytes, 1), keep);
  }
  out[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(even));
  out[1] = _mm512_cvtph_ps(_mm512_castsi512_si256(odd));
  out[2] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(even, 1));
  out[3] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(odd, 1));
}

/// Rows of codes with one f32 scale for every block_rows × 2^n columns, at least 64.
struct Fp8TileDecoder {
  static constexpr int kColumns = 64;
  static constexpr int kVectors = 4;
  static constexpr int kScales = 1;
  static constexpr int Column(int v, int lane) { return Fp8Column(v, lane); }

  struct Planes {
    const std::byte* codes;
    const float* scales;  ///< times kE4M3Factor
    int64_t cols;
    int64_t block_rows;
    int block_shift;  ///< log2 of the steps under one scale
    int64_t scale_cols;
  };

  struct Row {
    Row(const Planes& planes, int64_t row)
        : codes(planes.codes + row * planes.cols),
          scales(planes.scales + row / planes.block_rows * planes.scale_cols),
          block_shift(planes.block_shift) {}

    void Decode(int64_t step, __m512 (&out)[4]) const {
      Fp8ToFloat<false>(_mm512_loadu_si512(codes + step * 64), out);
    }
    void DecodeTail(int64_t step, int64_t columns, __m512 (&out)[4]) const {
      Fp8ToFloat<false>(_mm512_maskz_loadu_epi8((__mmask64{1} << columns) - 1, codes + step * 64),
                        out);
    }
    __m512 Scale(int64_t step, int) const { return _mm512_set1_ps(scales[step >> block_shift]); }
    ASSAY_ALWAYS_INLINE void Prefetch(int64_t step) const {
      _mm_prefetch(reinterpret_cast<const char*>(codes + step * 64 + kPrefetchBytes), _MM_HINT_T0);
    }

    const std::byte* codes;
    const float* scales;
    int block_shift;
  };
};

/// Rows of codes with a scale byte for every 32 columns.
template <bool kE5M2>
struct Fp8BlockDecoder {
  static constexpr int kColumns = 64;
  static constexpr int kVectors = 4;
  static constexpr int kScales = 2;
  static constexpr int Column(int v, int lane) { return Fp8Column(v, lane); }

  struct Planes {
    const std::byte* codes;
    const std::byte* scales;
    const float* table;  ///< 256 values, times kE4M3Factor for e4m3
    int64_t cols;
  };

  struct Row {
    Row(const Planes& planes, int64_t row)
        : codes(planes.codes + row * planes.cols),
          scales(planes.scales + row * (planes.cols / 32)),
          table(planes.table) {}

    void Decode(int64_t step, __m512 (&out)[4]) const {
      Fp8ToFloat<kE5M2>(_mm512_loadu_si512(codes + step * 64), out);
    }
    void DecodeTail(int64_t step, int64_t columns, __m512 (&out)[4]) const {
      Fp8ToFloat<kE5M2>(_mm512_maskz_loadu_epi8((__mmask64{1} << columns) - 1, codes + step * 64),
                        out);
      tail_step = step;
    }
    __m512 Scale(int64_t step, int i) const {
      // The last step may have one block only.
      if (step == tail_step && i == 1) return _mm512_setzero_ps();
      return _mm512_set1_ps(table[static_cast<size_t>(scales[step * 2 + i])]);
    }
    ASSAY_ALWAYS_INLINE void Prefetch(int64_t step) const {
      _mm_prefetch(reinterpret_cast<const char*>(codes + step * 64 + kPrefetchBytes), _MM_HINT_T0);
      if (step % 32 == 0) {
        _mm_prefetch(reinterpret_cast<const char*>(scales + step * 2 + kPrefetchBytes / 32),
                     _MM_HINT_T0);
      }
    }

    const std::byte* codes;
    const std::byte* scales;
    const float* table;
    mutable int64_t tail_step = -1;
  };
};

ASSAY_AVX512_END

class Fp8TileProduct final : public FloatProduct<Fp8TileDecoder> {
 public:
  Fp8TileProduct(const EncodedMatrix& weight, const Fp8TileDecoder::Planes& planes,
                 std::vector<float> scales)
      : FloatProduct(weight, planes, "e4m3 rows times f32 x"), scales_(std::move(scales)) {
    planes_.scales = scales_.data();
  }
  int64_t PreparedBytes() const override {
    return static_cast<int64_t>(scales_.size() * sizeof(float));
  }

 private:
  std::vector<float> scales_;
};

template <bool kE5M2>
class Fp8BlockProduct final : public FloatProduct<Fp8BlockDecoder<kE5M2>> {
  using Base = FloatProduct<Fp8BlockDecoder<kE5M2>>;

 public:
  Fp8BlockProduct(const EncodedMatrix& weight, const BlockFormat::ScaleValues& table)
      : Base(weight,
             {weight.Get("codes").bytes().data(), weight.Get("scales").bytes().data(), nullptr,
              weight.cols},
             fmt::format("{} rows times f32 x", kE5M2 ? "e5m2" : "e4m3")),
        table_(table) {
    if constexpr (!kE5M2) {
      for (float& value : table_) value *= kE4M3Factor;
    }
    this->planes_.table = table_.data();
  }
  int64_t PreparedBytes() const override { return sizeof(table_); }

 private:
  BlockFormat::ScaleValues table_;
};

#endif

/// The factor of the f16 detour must not push a scale out of range.
constexpr float kMaxScale = 0x1p100f;

void AddFp8Kernels(const KernelRequest& request,
                   [[maybe_unused]] std::vector<std::unique_ptr<ProductKernel>>& kernels) {
  const EncodedMatrix& weight = request.weight;
  const auto* format = dynamic_cast<const Fp8BlockFormat*>(weight.format.get());
  if (format == nullptr || request.a8 || request.rounding != DecodeRounding::kNone) return;
#if ASSAY_HAVE_AVX512
  if (!HasAvx512Vnni()) return;
  const auto span = [](int64_t block, int64_t axis, int64_t unit) {
    return block == Fp8BlockFormat::kWholeAxis || block >= axis ? CeilDiv(axis, unit) * unit
                                                                : block;
  };
  const int64_t block_rows = span(format->block_rows(), weight.rows, 1);
  const int64_t block_cols = span(format->block_cols(), weight.cols, Fp8TileDecoder::kColumns);
  const bool one_scale = block_cols >= weight.cols;
  const auto steps = static_cast<uint64_t>(block_cols / Fp8TileDecoder::kColumns);
  if (block_rows == 0 || block_cols == 0 || block_cols % Fp8TileDecoder::kColumns != 0) return;
  if (!one_scale && !std::has_single_bit(steps)) return;
  const int block_shift = one_scale ? 62 : std::countr_zero(steps);
  const Shape shape = format->ScaleShape(weight.rows, weight.cols);
  std::vector<float> scales(static_cast<size_t>(shape.NumElements()));
  ReadFloats(weight.Get("scales").view(), 0, scales);
  for (float& scale : scales) {
    if (!(std::fabs(scale) <= kMaxScale)) return;
    scale *= kE4M3Factor;
  }
  const auto codes = weight.Get("codes").bytes();
  if (HoldsE4M3NaN(codes)) return;
  const int64_t scale_cols = CeilDiv(weight.cols, block_cols);
  if (static_cast<int64_t>(scales.size()) != CeilDiv(weight.rows, block_rows) * scale_cols) return;
  kernels.push_back(
      std::make_unique<Fp8TileProduct>(weight,
                                       Fp8TileDecoder::Planes{codes.data(), nullptr, weight.cols,
                                                              block_rows, block_shift, scale_cols},
                                       std::move(scales)));
#endif
}

}  // namespace

std::unique_ptr<ProductKernel> MakeFp8Blocks(const EncodedMatrix& weight, const BlockFormat& format,
                                             const BlockFormat::ScaleValues& scale_table,
                                             const std::array<bool, 256>& used) {
#if ASSAY_HAVE_AVX512
  if (format.block() != 32 || !HasAvx512Vnni()) return nullptr;
  if (format.element() == BlockElement::kE5M2) {
    return std::make_unique<Fp8BlockProduct<true>>(weight, scale_table);
  }
  if (format.element() != BlockElement::kE4M3) return nullptr;
  if (HoldsE4M3NaN(weight.Get("codes").bytes())) return nullptr;
  for (size_t b = 0; b < scale_table.size(); ++b) {
    // Values that are not finite stay so; large finite ones must not become so.
    if (used[b] && std::isfinite(scale_table[b]) && std::fabs(scale_table[b]) > kMaxScale) {
      return nullptr;
    }
  }
  return std::make_unique<Fp8BlockProduct<false>>(weight, scale_table);
#else
  static_cast<void>(weight), static_cast<void>(format), static_cast<void>(scale_table);
  static_cast<void>(used);
  return nullptr;
#endif
}

const KernelFamily kFp8Kernels = {.name = "fp8_block", .add_kernels = AddFp8Kernels};

}  // namespace assay

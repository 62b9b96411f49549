#include "assay/kernels/packed12_gemv.h"

#include <cstring>
#include <vector>

#include "assay/formats/packed12_codec.h"
#include "assay/kernels/simd_avx512.h"
#include "assay/numeric/element.h"

#if ASSAY_HAVE_AVX512
#include "assay/kernels/float_rows_avx512-inl.h"
#endif

namespace assay {
namespace {

#if ASSAY_HAVE_AVX512

/// Where each row's escapes begin in the escape planes; rows + 1 entries.
std::vector<int64_t> EscapeStarts(std::span<const std::byte> indices, int64_t rows, int64_t cols) {
  std::vector<int64_t> starts(static_cast<size_t>(rows + 1));
  const auto count = static_cast<int64_t>(indices.size() / sizeof(uint32_t));
  int64_t e = 0;
  for (int64_t r = 0; r <= rows; ++r) {
    for (; e < count; ++e) {
      uint32_t index;
      std::memcpy(&index, indices.data() + e * 4, sizeof(index));
      if (index >= r * cols) break;
    }
    starts[static_cast<size_t>(r)] = e;
  }
  return starts;
}

ASSAY_AVX512_BEGIN

/// 64 columns: 64 bytes of sign | mantissa, 32 bytes of exponent codes. The even and the odd
/// columns become bf16 words apart; each register of words is two of f32.
struct Packed12Decoder {
  static constexpr int kColumns = 64;
  static constexpr int kVectors = 4;
  static constexpr int kScales = 0;

  struct Planes {
    const std::byte* sm;
    const std::byte* ex;
    int64_t cols;
    int base;
  };

  /// Vectors: words of even columns (low, high halves of the dwords), then of odd ones.
  static constexpr int Column(int v, int lane) { return 4 * lane + (v % 2) * 2 + v / 2; }

  struct Row {
    Row(const Planes& planes, int64_t row)
        : sm(planes.sm + row * planes.cols), ex(planes.ex + row * planes.cols / 2) {
      // Code 0 is exponent 0; the 16 entries twice, because the permute reads 5 bits of each word.
      alignas(64) std::array<uint16_t, 32> exponents;
      for (size_t i = 0; i < 32; ++i) {
        const auto code = static_cast<int>(i % 16);
        exponents[i] = static_cast<uint16_t>(code == 0 ? 0 : (planes.base + code - 1) << 7);
      }
      table = _mm512_load_si512(exponents.data());
    }

    void Decode(int64_t step, __m512 (&out)[4]) const {
      Unpack(_mm512_loadu_si512(sm + step * 64),
             _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ex + step * 32)), out);
    }

    void DecodeTail(int64_t step, int64_t columns, __m512 (&out)[4]) const {
      // An odd last nibble is 0 in the file, and the sm bytes past the end are masked.
      Unpack(_mm512_maskz_loadu_epi8((__mmask64{1} << columns) - 1, sm + step * 64),
             _mm256_maskz_loadu_epi8((__mmask32{1} << columns / 2) - 1, ex + step * 32), out);
    }

    void Unpack(__m512i bytes, __m256i nibbles, __m512 (&out)[4]) const {
      const __m512i keep = _mm512_set1_epi16(static_cast<int16_t>(0x807F));
      const __m512i codes = _mm512_cvtepu8_epi16(nibbles);
      const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8);
      const __m512i odd = _mm512_srai_epi16(bytes, 8);
      // exponent | (sign-extended byte & 0x807F)
      constexpr int kOrAnd = 0xF8;
      const __m512i even_words =
          _mm512_ternarylogic_epi32(_mm512_permutexvar_epi16(codes, table), even, keep, kOrAnd);
      const __m512i odd_words = _mm512_ternarylogic_epi32(
          _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), table), odd, keep, kOrAnd);
      const __m512i high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
      out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(even_words, 16));
      out[1] = _mm512_castsi512_ps(_mm512_and_si512(even_words, high));
      out[2] = _mm512_castsi512_ps(_mm512_slli_epi32(odd_words, 16));
      out[3] = _mm512_castsi512_ps(_mm512_and_si512(odd_words, high));
    }

    ASSAY_ALWAYS_INLINE void Prefetch(int64_t step) const {
      _mm_prefetch(reinterpret_cast<const char*>(sm + step * 64 + kPrefetchBytes), _MM_HINT_T0);
      if (step % 2 == 0) {
        _mm_prefetch(reinterpret_cast<const char*>(ex + step * 32 + kPrefetchBytes / 2),
                     _MM_HINT_T0);
      }
    }

    const std::byte* sm;
    const std::byte* ex;
    __m512i table;
  };
};

ASSAY_AVX512_END

/// An escaped element decodes to +0, so the dense pass adds exactly nothing for it, unless its x is
/// infinite or NaN: such x are declined.
class Packed12Product final : public FloatProduct<Packed12Decoder> {
 public:
  Packed12Product(const EncodedMatrix& weight, const Packed12Decoder::Planes& planes)
      : FloatProduct(weight, planes, "packed12 rows times f32 x, escapes apart"),
        indices_(weight.Get("escape_indices").bytes()),
        values_(weight.Get("escape_values").bytes()),
        starts_(EscapeStarts(indices_, weight.rows, weight.cols)) {}

  int64_t PreparedBytes() const override {
    return static_cast<int64_t>(starts_.size() * sizeof(starts_[0]));
  }

 protected:
  const float* ChangedX(const Activations& x) override { return x.AllFinite() ? x.F32() : nullptr; }

  void Correct(const Activations& x, int64_t first, int64_t last, float* y) const override {
    const int64_t cols = weight_.cols;
    const float* values = x.F32();
    for (int64_t n = first; n < last; ++n) {
      const int64_t end = starts_[static_cast<size_t>(n + 1)];
      for (int64_t e = starts_[static_cast<size_t>(n)]; e < end; ++e) {
        uint32_t index;
        uint16_t word;
        std::memcpy(&index, indices_.data() + e * 4, sizeof(index));
        std::memcpy(&word, values_.data() + e * 2, sizeof(word));
        const float weight = BF16ToFloat(word);
        const int64_t column = index - n * cols;
        for (int64_t m = 0; m < x.num_rows(); ++m) {
          y[m * weight_.rows + n] += weight * values[m * cols + column];
        }
      }
    }
  }

 private:
  std::span<const std::byte> indices_;
  std::span<const std::byte> values_;
  std::vector<int64_t> starts_;
};

#endif

/// Any columns; escapes included.
class Packed12PanelDecoder final : public PanelDecoder {
 public:
  explicit Packed12PanelDecoder(const EncodedMatrix& weight)
      : weight_(weight),
        planes_{static_cast<int>(weight.Get("header").bytes()[0]), weight_.Get("sm").bytes(),
                weight_.Get("ex").bytes(), weight_.Get("escape_indices").bytes(),
                weight_.Get("escape_values").bytes()} {}

  int64_t ColumnGrain() const noexcept override { return 1; }

  void DecodeF32(int64_t first_row, int64_t num_rows, int64_t first_col, int64_t num_cols,
                 float* out, int64_t row_stride) const override {
    for (int64_t r = 0; r < num_rows; ++r) {
      packed12::DecodeFloats(planes_, (first_row + r) * weight_.cols + first_col, num_cols,
                             {out + r * row_stride, static_cast<size_t>(num_cols)});
    }
  }

  void DecodeBF16(int64_t first_row, int64_t num_rows, int64_t first_col, int64_t num_cols,
                  uint16_t* out, int64_t row_stride) const override {
    for (int64_t r = 0; r < num_rows; ++r) {
      packed12::DecodeWords(
          planes_, (first_row + r) * weight_.cols + first_col, num_cols,
          std::as_writable_bytes(std::span(out + r * row_stride, static_cast<size_t>(num_cols))));
    }
  }

 private:
  EncodedMatrix weight_;
  packed12::InputPlanes planes_;
};

/// Lossless: the words under either rounding.
std::unique_ptr<PanelDecoder> MakeDecoder(const EncodedMatrix& weight,
                                          DecodeRounding /*rounding*/) {
  if (weight.format->Name() != "packed12") return nullptr;
  return std::make_unique<Packed12PanelDecoder>(weight);
}

void AddPacked12Kernels(const KernelRequest& request,
                        [[maybe_unused]] std::vector<std::unique_ptr<ProductKernel>>& kernels) {
  const EncodedMatrix& weight = request.weight;
  // Rows of odd length start inside a byte of codes: the generic kernel serves those.
  if (request.a8 || weight.format->Name() != "packed12" || weight.cols % 2 != 0) return;
#if ASSAY_HAVE_AVX512
  if (!HasAvx512Vnni()) return;
  const Packed12Decoder::Planes planes{weight.Get("sm").bytes().data(),
                                       weight.Get("ex").bytes().data(), weight.cols,
                                       static_cast<int>(weight.Get("header").bytes()[0])};
  kernels.push_back(std::make_unique<Packed12Product>(weight, planes));
#endif
}

}  // namespace

const KernelFamily kPacked12Kernels = {
    .name = "packed12", .add_kernels = AddPacked12Kernels, .make_decoder = MakeDecoder};

}  // namespace assay

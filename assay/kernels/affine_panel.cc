#include <algorithm>
#include <array>
#include <cstring>

#include "assay/base/error.h"
#include "assay/formats/affine.h"
#include "assay/formats/affine_kernels.h"
#include "assay/kernels/affine_kernels.h"
#include "assay/kernels/simd_avx512.h"
#include "assay/tensor/dtype.h"

namespace assay {
namespace {

struct Planes {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* biases;
};

#if ASSAY_HAVE_AVX512

ASSAY_AVX512_BEGIN

/// Nearest even in f32; NaN becomes the quiet one without payload.
inline __m512 RoundToBF16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  const __m512i rounded = _mm512_and_si512(sum, _mm512_set1_epi32(-0x10000));
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                                                   _mm512_set1_epi32(0x7FC00000)));
}

/// T's scales and how values are rounded to T.
struct BF16Values {
  static constexpr int64_t kBytes = 2;
  static float Load(const std::byte* p) {
    uint16_t word;
    std::memcpy(&word, p, sizeof(word));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(word) << 16)));
  }
  static __m512 RoundStep(__m512 x) { return RoundToBF16(x); }
};

struct F16Values {
  static constexpr int64_t kBytes = 2;
  static float Load(const std::byte* p) {
    uint16_t word;
    std::memcpy(&word, p, sizeof(word));
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(word)));
  }
  static __m512 RoundStep(__m512 x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return _mm512_cvtph_ps(_mm512_cvtps_ph(x, kNearest));
  }
};

struct F32Values {
  static constexpr int64_t kBytes = 4;
  static float Load(const std::byte* p) {
    float value;
    std::memcpy(&value, p, sizeof(value));
    return value;
  }
  static __m512 RoundStep(__m512 x) { return x; }
};

/// A group of 4-bit codes takes 16 values: they are computed once and looked up.
template <typename Values, bool kRounded>
void Decode4(const Planes& planes, int64_t group, int64_t first_group, int64_t num_groups,
             float* out) {
  const __m512 iota = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  // Lane i of a vector of 16 codes is nibble i of 8 bytes. The permute reads 4 bits of each lane.
  const __m512i shifts = _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
  const __m512i halves = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
  const std::byte* codes = planes.codes + first_group * group / 2;
  for (int64_t g = first_group; g < first_group + num_groups; ++g) {
    const __m512 scale = _mm512_set1_ps(Values::Load(planes.scales + g * Values::kBytes));
    const __m512 bias = _mm512_set1_ps(Values::Load(planes.biases + g * Values::kBytes));
    __m512 table = _mm512_mul_ps(iota, scale);
    if constexpr (kRounded) table = Values::RoundStep(table);
    table = _mm512_add_ps(table, bias);
    if constexpr (kRounded) table = Values::RoundStep(table);
    for (int64_t i = 0; i < group; i += 16) {
      const __m512i words =
          _mm512_castsi128_si512(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
      const __m512i nibbles = _mm512_srlv_epi32(_mm512_permutexvar_epi32(halves, words), shifts);
      _mm512_storeu_ps(out, _mm512_permutexvar_ps(nibbles, table));
      codes += 8;
      out += 16;
    }
  }
}

template <typename Values, bool kRounded>
void Decode8(const Planes& planes, int64_t group, int64_t first_group, int64_t num_groups,
             float* out) {
  const std::byte* codes = planes.codes + first_group * group;
  for (int64_t g = first_group; g < first_group + num_groups; ++g) {
    const __m512 scale = _mm512_set1_ps(Values::Load(planes.scales + g * Values::kBytes));
    const __m512 bias = _mm512_set1_ps(Values::Load(planes.biases + g * Values::kBytes));
    for (int64_t i = 0; i < group; i += 16) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
      __m512 values = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)), scale);
      if constexpr (kRounded) values = Values::RoundStep(values);
      values = _mm512_add_ps(values, bias);
      if constexpr (kRounded) values = Values::RoundStep(values);
      _mm512_storeu_ps(out, values);
      codes += 16;
      out += 16;
    }
  }
}

ASSAY_AVX512_END

using DecodeFunction = void (*)(const Planes&, int64_t group, int64_t first_group,
                                int64_t num_groups, float* out);

template <typename Values>
DecodeFunction DecodeFor(int bits, bool rounded) {
  if (bits == 8) return rounded ? Decode8<Values, true> : Decode8<Values, false>;
  return rounded ? Decode4<Values, true> : Decode4<Values, false>;
}

DecodeFunction DecodeFor(int bits, DType dtype, bool rounded) {
  if ((bits != 4 && bits != 8) || !HasAvx512Vnni()) return nullptr;
  if (dtype == DType::kBF16) return DecodeFor<BF16Values>(bits, rounded);
  if (dtype == DType::kF16) return DecodeFor<F16Values>(bits, rounded);
  return DecodeFor<F32Values>(bits, rounded);
}

#endif

/// Whole groups of a row, straight from the planes.
class AffinePanelDecoder final : public PanelDecoder {
 public:
  AffinePanelDecoder(const EncodedMatrix& weight, const AffineFormat& format,
                     DecodeRounding rounding)
      : weight_(weight),
        geometry_{format.bits(), format.group_size(), weight.dtype},
        rounding_(rounding),
        planes_{weight_.Get("codes").bytes().data(), weight_.Get("scales").bytes().data(),
                weight_.Get("biases").bytes().data()} {
#if ASSAY_HAVE_AVX512
    decode_f32_ = DecodeFor(format.bits(), weight.dtype, rounding == DecodeRounding::kCheckpoint);
#endif
  }

  int64_t ColumnGrain() const noexcept override { return geometry_.group_size; }

  void DecodeF32(int64_t first_row, int64_t num_rows, int64_t first_col, int64_t num_cols,
                 float* out, int64_t row_stride) const override {
    for (int64_t r = 0; r < num_rows; ++r) {
      const int64_t group = GroupAt(first_row + r, first_col);
      const int64_t count = num_cols / geometry_.group_size;
      if (decode_f32_ != nullptr) {
        decode_f32_(planes_, geometry_.group_size, group, count, out + r * row_stride);
      } else {
        Decode(group, count, DType::kF32, reinterpret_cast<std::byte*>(out + r * row_stride));
      }
    }
  }

  void DecodeBF16(int64_t first_row, int64_t num_rows, int64_t first_col, int64_t num_cols,
                  uint16_t* out, int64_t row_stride) const override {
    for (int64_t r = 0; r < num_rows; ++r) {
      Decode(GroupAt(first_row + r, first_col), num_cols / geometry_.group_size, DType::kBF16,
             reinterpret_cast<std::byte*>(out + r * row_stride));
    }
  }

 private:
  int64_t GroupAt(int64_t row, int64_t col) const {
    return row * (weight_.cols / geometry_.group_size) + col / geometry_.group_size;
  }

  void Decode(int64_t group, int64_t count, DType dtype, std::byte* out) const {
    const int64_t scale_bytes = BitsOf(geometry_.dtype) / 8;
    affine_internal::DecodeGroups(geometry_, planes_.codes + group * geometry_.CodeBytesPerGroup(),
                                  planes_.scales + group * scale_bytes,
                                  planes_.biases + group * scale_bytes, count, rounding_, dtype,
                                  out);
  }

  EncodedMatrix weight_;
  affine_internal::Geometry geometry_;
  DecodeRounding rounding_;
  Planes planes_;
  void (*decode_f32_)(const Planes&, int64_t, int64_t, int64_t, float*) = nullptr;
};

}  // namespace

std::unique_ptr<PanelDecoder> MakeAffinePanelDecoder(const EncodedMatrix& weight,
                                                     DecodeRounding rounding) {
  const auto* format = dynamic_cast<const AffineFormat*>(weight.format.get());
  if (format == nullptr) return nullptr;
  return std::make_unique<AffinePanelDecoder>(weight, *format, rounding);
}

}  // namespace assay

#include "assay/kernels/affine_kernels.h"
#include "assay/kernels/simd_avx512.h"

#if ASSAY_HAVE_AVX512

#include <fmt/format.h>

#include "assay/base/parallel.h"
#include "assay/formats/affine.h"
#include "assay/kernels/digits_avx512-inl.h"

namespace assay {
namespace {

ASSAY_AVX512_BEGIN

/// Codes that share one int32 accumulator step, as kVectors vectors of 64 code bytes.
template <int kBits>
struct AffineCodes {
  static constexpr size_t kVectors = kBits == 4 ? 2 : kBits == 2 ? 4 : 1;
  static constexpr int kCodes = 64 * static_cast<int>(kVectors);
  static constexpr int kBytes = kCodes * kBits / 8;
  static constexpr int32_t kOffset = 0;
  /// Largest |integer| of x: the sum of a lane's products (4 · kVectors of them) stays below 2^31,
  /// and the top one of three digits inside int8.
  static constexpr double kXScale = kBits == 8 ? 2096128.0 : kBits == 6 ? 4194000.0 : 8349286.0;

  AffineCodes() : spread(SpreadIndex<kBits>()), shifts(ShiftCounts<kBits>()) {}

  void operator()(__m512i packed, __m512i (&out)[kVectors]) const {
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

ASSAY_AVX512_END

template <int kBits, int kGroup, int kDigits>
DigitsEntry EntryFor(DType dtype) {
  using Codes = AffineCodes<kBits>;
  if (dtype == DType::kBF16) return MakeDigitsEntry<Codes, kGroup, kDigits, BF16Scales, true>();
  if (dtype == DType::kF16) return MakeDigitsEntry<Codes, kGroup, kDigits, F16Scales, true>();
  return MakeDigitsEntry<Codes, kGroup, kDigits, F32Scales, true>();
}

template <int kBits, int kGroup>
DigitsEntry EntryFor(DType dtype, bool a8) {
  return a8 ? EntryFor<kBits, kGroup, 1>(dtype) : EntryFor<kBits, kGroup, 3>(dtype);
}

template <int kBits>
DigitsEntry EntryFor(int group, DType dtype, bool a8) {
  if (group == 32) return EntryFor<kBits, 32>(dtype, a8);
  if (group == 64) return EntryFor<kBits, 64>(dtype, a8);
  return EntryFor<kBits, 128>(dtype, a8);
}

DigitsEntry EntryFor(int bits, int group, DType dtype, bool a8) {
  if (bits == 2) return EntryFor<2>(group, dtype, a8);
  if (bits == 3) return EntryFor<3>(group, dtype, a8);
  if (bits == 4) return EntryFor<4>(group, dtype, a8);
  if (bits == 5) return EntryFor<5>(group, dtype, a8);
  if (bits == 6) return EntryFor<6>(group, dtype, a8);
  return EntryFor<8>(group, dtype, a8);
}

}  // namespace

std::unique_ptr<ProductKernel> MakeAffineDigits(const EncodedMatrix& weight, bool a8) {
  const auto* format = dynamic_cast<const AffineFormat*>(weight.format.get());
  if (format == nullptr || !HasAvx512Vnni()) return nullptr;
  const int group = format->group_size();
  const CodePlanes planes{weight.Get("codes").bytes().data(),
                          weight.Get("scales").bytes().data(),
                          weight.Get("biases").bytes().data(),
                          weight.rows,
                          weight.cols,
                          weight.cols * format->bits() / 8,
                          weight.cols / group,
                          1.0f};
  return std::make_unique<DigitsProduct>(weight, planes,
                                         EntryFor(format->bits(), group, weight.dtype, a8), group,
                                         a8, fmt::format("affine{} codes", format->bits()));
}

}  // namespace assay

#else

namespace assay {

std::unique_ptr<ProductKernel> MakeAffineDigits(const EncodedMatrix&, bool) { return nullptr; }

}  // namespace assay

#endif

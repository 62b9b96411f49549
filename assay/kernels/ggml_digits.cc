#include "assay/kernels/ggml_kernels.h"
#include "assay/kernels/simd_avx512.h"

#if ASSAY_HAVE_AVX512

#include "assay/formats/ggml_blocks.h"
#include "assay/kernels/codes_avx512-inl.h"
#include "assay/kernels/digits_avx512-inl.h"

namespace assay {
namespace {

ASSAY_AVX512_BEGIN

/// Indices of kIq4Values as their entries plus 127: 0 … 240.
struct Iq4Codes {
  static constexpr size_t kVectors = 2;
  static constexpr int kCodes = 128;
  static constexpr int kBytes = 64;
  static constexpr int32_t kOffset = 127;
  // Sums may wrap before the offset is taken off again; the rest, 8 · 127 · 2^21, is below 2^31.
  static constexpr double kXScale = 2096128.0;

  Iq4Codes() {
    alignas(64) std::array<uint8_t, 64> entries{};
    for (size_t i = 0; i < 64; ++i) {
      entries[i] = static_cast<uint8_t>(ggml_internal::kIq4Values[i % 16] + kOffset);
    }
    table = _mm512_load_si512(entries.data());
  }

  // The permute ignores the bits above its 64 entries.
  ASSAY_ALWAYS_INLINE void operator()(__m512i packed, __m512i (&out)[2]) const {
    out[0] = _mm512_permutexvar_epi8(packed, table);
    out[1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(packed, 4), table);
  }

  __m512i table;
};

ASSAY_AVX512_END

template <typename Codes, int kGroup, typename Scales, typename Biases>
DigitsEntry EntryFor(bool a8) {
  return a8 ? MakeDigitsEntry<Codes, kGroup, 1, Scales, Biases, true>()
            : MakeDigitsEntry<Codes, kGroup, 3, Scales, Biases, true>();
}

bool IsIq4(const GgmlPacking& packing) {
  return packing.table.data() == ggml_internal::kIq4Values.data();
}

/// Types whose scale is an f16.
DigitsEntry EntryForF16(const GgmlPacking& packing, bool a8) {
  if (IsIq4(packing)) return EntryFor<Iq4Codes, 32, F16Scales, NoBiases>(a8);
  if (packing.bits == 8) return EntryFor<Int8Codes, 32, F16Scales, NoBiases>(a8);
  if (packing.bits == 4) {
    return packing.min_at < 0 ? EntryFor<UnsignedCodes<4, 8>, 32, F16Scales, NoBiases>(a8)
                              : EntryFor<UnsignedCodes<4>, 32, F16Scales, F16Scales>(a8);
  }
  return packing.min_at < 0 ? EntryFor<UnsignedCodes<5, 16>, 32, F16Scales, NoBiases>(a8)
                            : EntryFor<UnsignedCodes<5>, 32, F16Scales, F16Scales>(a8);
}

/// Types of 256 values, whose groups have integer scales.
DigitsEntry EntryForSubScales(const GgmlPacking& packing, bool a8) {
  if (IsIq4(packing)) return EntryFor<Iq4Codes, 32, SubScales<4, true>, NoBiases>(a8);
  if (packing.bits == 4) {
    return EntryFor<UnsignedCodes<4>, 32, SubScales<4, false>, SubBiases>(a8);
  }
  if (packing.bits == 5) {
    return EntryFor<UnsignedCodes<5>, 32, SubScales<2, false>, SubBiases>(a8);
  }
  return EntryFor<UnsignedCodes<6, 32>, 16, SubScales<4, true>, NoBiases>(a8);
}

static_assert(SubBiases::kPerRecord == kGgmlSubBiases);

}  // namespace

std::unique_ptr<ProductKernel> MakeGgmlDigits(const EncodedMatrix& planes,
                                              const GgmlPacking& packing, bool a8) {
  const CodePlanes of_weight{planes.Get("codes").bytes().data(),
                             planes.Get("scales").bytes().data(),
                             planes.Get("biases").bytes().data(),
                             planes.rows,
                             planes.cols,
                             planes.cols * packing.bits / 8,
                             planes.cols / packing.group,
                             1.0f};
  // Columns that share a scale of x, as A8Group has them for these types.
  constexpr int64_t kXGroup = 32;
  return std::make_unique<DigitsProduct>(
      planes, of_weight,
      packing.sub_scales == 0 ? EntryForF16(packing, a8) : EntryForSubScales(packing, a8), kXGroup,
      a8, fmt::format("{} codes", planes.format->Name()));
}

}  // namespace assay

#else

namespace assay {

std::unique_ptr<ProductKernel> MakeGgmlDigits(const EncodedMatrix&, const GgmlPacking&, bool) {
  return nullptr;
}

}  // namespace assay

#endif

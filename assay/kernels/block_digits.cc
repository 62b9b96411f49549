#include "assay/kernels/block_digits.h"
#include "assay/kernels/simd_avx512.h"

#if ASSAY_HAVE_AVX512

#include "assay/kernels/codes_avx512-inl.h"
#include "assay/kernels/digits_avx512-inl.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

ASSAY_AVX512_BEGIN

/// e2m1 as twice its value plus 12: 0 … 24. One permute of bytes looks 64 nibbles up, and ignores
/// the two bits above a 64-entry table, so the 16 entries repeated four times need no mask.
struct E2M1Codes {
  static constexpr size_t kVectors = 2;
  static constexpr int kCodes = 128;
  static constexpr int kBytes = 64;
  static constexpr int32_t kOffset = 12;
  static constexpr double kXScale = 8349286.0;  // 8 products of a lane: 8 · 24 · 2^23 < 2^31
  static constexpr float kFactor = 0.5f;

  E2M1Codes() {
    alignas(64) std::array<uint8_t, 64> entries{};
    for (size_t i = 0; i < 64; ++i) {
      entries[i] = static_cast<uint8_t>(2 * E2M1ToFloat(static_cast<uint8_t>(i % 16)) + kOffset);
    }
    table = _mm512_load_si512(entries.data());
  }

  ASSAY_ALWAYS_INLINE void operator()(__m512i packed, __m512i (&out)[2]) const {
    out[0] = _mm512_permutexvar_epi8(packed, table);
    out[1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(packed, 4), table);
  }

  __m512i table;
};

/// e2m3 as eight times its value plus 60: 0 … 120.
struct E2M3Codes {
  static constexpr size_t kVectors = 1;
  static constexpr int kCodes = 64;
  static constexpr int kBytes = 48;
  static constexpr int32_t kOffset = 60;
  static constexpr double kXScale = 4194000.0;  // 4 · 120 · 2^22 < 2^31
  static constexpr float kFactor = 0.125f;

  E2M3Codes() : spread(SpreadIndex<6>()), shifts(ShiftCounts<6>()) {
    alignas(64) std::array<uint8_t, 64> entries{};
    for (size_t i = 0; i < 64; ++i) {
      entries[i] = static_cast<uint8_t>(8 * E2M3ToFloat(static_cast<uint8_t>(i)) + kOffset);
    }
    table = _mm512_load_si512(entries.data());
  }

  ASSAY_ALWAYS_INLINE void operator()(__m512i packed, __m512i (&out)[1]) const {
    const __m512i bytes = _mm512_permutexvar_epi8(spread, packed);
    out[0] = _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(shifts, bytes), table);
  }

  __m512i spread;
  __m512i shifts;
  __m512i table;
};

ASSAY_AVX512_END

constexpr float kMxInt8Factor = 1.0f / 64;

template <typename Codes, int kBlock, typename Scales>
DigitsEntry EntryFor(bool a8) {
  return a8 ? MakeDigitsEntry<Codes, kBlock, 1, Scales, NoBiases, true>()
            : MakeDigitsEntry<Codes, kBlock, 3, Scales, NoBiases, true>();
}

template <typename Codes>
DigitsEntry EntryFor(int block, BlockScaleKind scales, bool a8) {
  if (block == 16) {
    return scales == BlockScaleKind::kE8M0 ? EntryFor<Codes, 16, E8M0Scales>(a8)
                                           : EntryFor<Codes, 16, E4M3Scales>(a8);
  }
  return scales == BlockScaleKind::kE8M0 ? EntryFor<Codes, 32, E8M0Scales>(a8)
                                         : EntryFor<Codes, 32, E4M3Scales>(a8);
}

}  // namespace

std::unique_ptr<ProductKernel> MakeBlockDigits(const EncodedMatrix& weight,
                                               const BlockFormat& format, const BlockScales& scales,
                                               bool a8) {
  if (!HasAvx512Vnni()) return nullptr;
  DigitsEntry entry;
  float factor = 0;
  if (format.element() == BlockElement::kE2M1) {
    entry = EntryFor<E2M1Codes>(format.block(), scales.kind, a8);
    factor = E2M1Codes::kFactor;
  } else if (format.element() == BlockElement::kE2M3) {
    entry = EntryFor<E2M3Codes>(format.block(), scales.kind, a8);
    factor = E2M3Codes::kFactor;
  } else if (format.element() == BlockElement::kInt8) {
    entry = EntryFor<Int8Codes>(format.block(), scales.kind, a8);
    factor = kMxInt8Factor;
  } else {
    return nullptr;
  }
  if (scales.kind == BlockScaleKind::kE4M3) factor *= E4M3Scales::kFactor;
  const int bits = FactsOf(format.element()).bits;
  const CodePlanes planes{weight.Get("codes").bytes().data(),
                          weight.Get("scales").bytes().data(),
                          nullptr,
                          weight.rows,
                          weight.cols,
                          weight.cols * bits / 8,
                          weight.cols / format.block(),
                          factor * scales.factor};
  // A lane holds at most 8 columns; 32 of them may share a scale of x.
  constexpr int64_t kXGroup = 32;
  return std::make_unique<DigitsProduct>(weight, planes, entry, kXGroup, a8,
                                         fmt::format("{} codes", format.Name()));
}

}  // namespace assay

#else

namespace assay {

std::unique_ptr<ProductKernel> MakeBlockDigits(const EncodedMatrix&, const BlockFormat&,
                                               const BlockScales&, bool) {
  return nullptr;
}

}  // namespace assay

#endif

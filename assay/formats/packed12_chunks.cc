#include "assay/formats/packed12_chunks.h"

#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/formats/packed12_chunks.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace assay::packed12::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One chunk's escapes, appended in index order.
struct EscapeWriter {
  std::byte* indices;
  std::byte* values;
  size_t count = 0;

  void Append(uint32_t index, uint16_t word) {
    std::memcpy(indices + 4 * count, &index, sizeof(index));
    std::memcpy(values + 2 * count, &word, sizeof(word));
    ++count;
  }
};

inline uint16_t WordAt(const std::byte* words, size_t i) {
  uint16_t word;
  std::memcpy(&word, words + 2 * i, sizeof(word));
  return word;
}

inline int ExponentOf(uint16_t word) { return (word >> 7) & 0xFF; }

// Calls function(lane) for each lane that `coded` does not hold, in order.
template <class D8, class Mask, class Function>
HWY_INLINE void ForEachUncoded(D8 d8, Mask coded, const Function& function) {
  uint8_t bits[HWY_MAX_BYTES / 8] = {};
  hn::StoreMaskBits(d8, coded, bits);
  for (size_t i = 0; i < hn::Lanes(d8); i += 8) {
    uint32_t missing = static_cast<uint8_t>(~bits[i / 8]);
    for (; missing != 0; missing &= missing - 1) {
      function(i + static_cast<size_t>(std::countr_zero(missing)));
    }
  }
}

// Takes a vector of words apart under a base: the codes, two a byte, are returned. Not a struct,
// for vectors of SVE cannot be members.
template <class D8>
HWY_INLINE hn::Vec<hn::Half<D8>> TakeApart(D8 d8, const std::byte* HWY_RESTRICT words, int base,
                                           hn::Vec<D8>& sign_mantissa, hn::Mask<D8>& coded) {
  const hn::Repartition<uint16_t, D8> d16;
  const hn::Repartition<int16_t, D8> di16;
  const hn::Half<D8> d8h;
  const auto* bytes = reinterpret_cast<const uint8_t*>(words);
  const auto first = hn::LoadU(d8, bytes);
  const auto second = hn::LoadU(d8, bytes + hn::Lanes(d8));
  const auto low = hn::ConcatEven(d8, second, first);
  const auto high = hn::ConcatOdd(d8, second, first);
  const auto exponent = hn::Or(hn::Add(high, high), hn::ShiftRight<7>(low));
  // 1…15 inside the window. Exponent 0 cannot fall there: base ≤ 241.
  const auto code = hn::Sub(exponent, hn::Set(d8, static_cast<uint8_t>(base - 1)));
  const auto index = hn::Sub(code, hn::Set(d8, uint8_t{1}));
  const auto in_window = hn::Eq(hn::Min(index, hn::Set(d8, uint8_t{14})), index);
  const auto pairs = hn::BitCast(d16, hn::IfThenElseZero(in_window, code));
  const auto nibbles =
      hn::And(hn::Or(pairs, hn::ShiftRight<4>(pairs)), hn::Set(d16, uint16_t{0xFF}));
  sign_mantissa =
      hn::Or(hn::And(high, hn::Set(d8, uint8_t{0x80})), hn::And(low, hn::Set(d8, uint8_t{0x7F})));
  coded = hn::Or(in_window, hn::Eq(exponent, hn::Zero(d8)));
  return hn::DemoteTo(d8h, hn::BitCast(di16, nibbles));
}

// Requires an even number of values before `words` in the matrix; returns the escapes written.
size_t EncodeChunk(const std::byte* HWY_RESTRICT words, size_t count, int base,
                   uint32_t first_index, uint8_t* HWY_RESTRICT sm, uint8_t* HWY_RESTRICT ex,
                   std::byte* escape_indices, std::byte* escape_values) {
  const hn::ScalableTag<uint8_t> d8;
  const hn::Half<decltype(d8)> d8h;
  const size_t lanes = hn::Lanes(d8);
  EscapeWriter escapes{escape_indices, escape_values};
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::Vec<decltype(d8)> sign_mantissa;
    hn::Mask<decltype(d8)> coded;
    hn::StoreU(TakeApart(d8, words + 2 * i, base, sign_mantissa, coded), d8h, ex + i / 2);
    hn::StoreU(hn::IfThenElseZero(coded, sign_mantissa), d8, sm + i);
    if (HWY_UNLIKELY(!hn::AllTrue(d8, coded))) {
      ForEachUncoded(d8, coded, [&](size_t lane) {
        escapes.Append(first_index + static_cast<uint32_t>(i + lane), WordAt(words, i + lane));
      });
    }
  }
  for (; i < count; ++i) {
    const uint16_t word = WordAt(words, i);
    const int code = ExponentOf(word) - base + 1;
    const bool in_window = code >= 1 && code <= 15;
    const bool coded = in_window || ExponentOf(word) == 0;
    sm[i] = coded ? static_cast<uint8_t>(((word >> 8) & 0x80) | (word & 0x7F)) : uint8_t{0};
    const auto nibble = static_cast<uint8_t>(in_window ? code : 0);
    if (i % 2 == 0) {
      ex[i / 2] = nibble;
    } else {
      ex[i / 2] = static_cast<uint8_t>(ex[i / 2] | (nibble << 4));
    }
    if (!coded) escapes.Append(first_index + static_cast<uint32_t>(i), word);
  }
  return escapes.count;
}

inline void StoreWord(uint16_t word, std::byte* out) { std::memcpy(out, &word, sizeof(word)); }
inline void StoreWord(uint16_t word, float* out) {
  *out = std::bit_cast<float>(static_cast<uint32_t>(word) << 16);
}

template <class D16, class V16>
HWY_INLINE void StoreWords(D16 d16, V16 words, std::byte* out) {
  hn::StoreU(words, d16, reinterpret_cast<uint16_t*>(out));
}
template <class D16, class V16>
HWY_INLINE void StoreWords(D16 /*d16*/, V16 words, float* out) {
  const hn::Repartition<uint32_t, D16> d32;
  const hn::Repartition<float, D16> df;
  const hn::Half<D16> dh;
  const auto lower = hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LowerHalf(dh, words)));
  const auto upper = hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::UpperHalf(dh, words)));
  hn::StoreU(hn::BitCast(df, lower), df, out);
  hn::StoreU(hn::BitCast(df, upper), df, out + hn::Lanes(d32));
}

// Decodes without escapes. kStep: elements of Out one word takes. Requires that the first value's
// code is the low nibble of ex[0].
template <size_t kStep, class Out>
HWY_INLINE void DecodeAligned(const uint8_t* HWY_RESTRICT sm, const uint8_t* HWY_RESTRICT ex,
                              size_t count, const uint8_t* HWY_RESTRICT exponents,
                              Out* HWY_RESTRICT out) {
  const hn::ScalableTag<uint16_t> d16;
  const hn::Repartition<uint8_t, decltype(d16)> d8;
  const hn::Repartition<uint32_t, decltype(d16)> d32;
  const hn::Rebind<uint8_t, decltype(d16)> d8_of_16;
  const hn::Rebind<uint8_t, decltype(d32)> d8_of_32;
  const size_t lanes = hn::Lanes(d16);
  const auto table = hn::LoadDup128(d8, exponents);
  const auto mantissa_mask = hn::Set(d16, uint16_t{0x007F});
  const auto sign_mask = hn::Set(d16, uint16_t{0x8000});
  const auto code_mask = hn::Set(d32, uint32_t{0x000F000F});
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto byte_pairs = hn::PromoteTo(d32, hn::LoadU(d8_of_32, ex + i / 2));
    // One code per 16-bit lane; its upper byte looks up code 0, which is exponent 0.
    const auto codes = hn::And(hn::Or(byte_pairs, hn::ShiftLeft<12>(byte_pairs)), code_mask);
    const auto exponent = hn::BitCast(d16, hn::TableLookupBytes(table, hn::BitCast(d8, codes)));
    const auto sign_mantissa = hn::PromoteTo(d16, hn::LoadU(d8_of_16, sm + i));
    const auto sign = hn::And(hn::ShiftLeft<8>(sign_mantissa), sign_mask);
    const auto magnitude =
        hn::Or(hn::ShiftLeft<7>(exponent), hn::And(sign_mantissa, mantissa_mask));
    StoreWords(d16, hn::Or(sign, magnitude), out + kStep * i);
  }
  for (; i < count; ++i) {
    const int code = (ex[i / 2] >> (4 * (i % 2))) & 0xF;
    const int word = ((sm[i] & 0x80) << 8) | (exponents[code] << 7) | (sm[i] & 0x7F);
    StoreWord(static_cast<uint16_t>(word), out + kStep * i);
  }
}

template <size_t kStep, class Out>
HWY_INLINE void DecodeChunk(const uint8_t* sm, const uint8_t* ex, bool high_nibble_first,
                            size_t count, const uint8_t* exponents, Out* out) {
  if (high_nibble_first && count > 0) {
    const int word = ((sm[0] & 0x80) << 8) | (exponents[ex[0] >> 4] << 7) | (sm[0] & 0x7F);
    StoreWord(static_cast<uint16_t>(word), out);
    ++sm;
    ++ex;
    --count;
    out += kStep;
  }
  DecodeAligned<kStep>(sm, ex, count, exponents, out);
}

void DecodeChunkWords(const uint8_t* sm, const uint8_t* ex, bool high_nibble_first, size_t count,
                      const uint8_t* exponents, std::byte* out) {
  DecodeChunk<2>(sm, ex, high_nibble_first, count, exponents, out);
}

void DecodeChunkFloats(const uint8_t* sm, const uint8_t* ex, bool high_nibble_first, size_t count,
                       const uint8_t* exponents, float* out) {
  DecodeChunk<1>(sm, ex, high_nibble_first, count, exponents, out);
}

}  // namespace assay::packed12::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay::packed12 {

HWY_EXPORT(EncodeChunk);
HWY_EXPORT(DecodeChunkWords);
HWY_EXPORT(DecodeChunkFloats);

size_t EncodeChunk(const std::byte* words, size_t count, int base, uint32_t first_index,
                   uint8_t* sm, uint8_t* ex, std::byte* escape_indices, std::byte* escape_values) {
  return HWY_DYNAMIC_DISPATCH(EncodeChunk)(words, count, base, first_index, sm, ex, escape_indices,
                                           escape_values);
}

void DecodeChunk(const uint8_t* sm, const uint8_t* ex, bool high_nibble_first, size_t count,
                 const uint8_t* exponents, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(DecodeChunkWords)(sm, ex, high_nibble_first, count, exponents, out);
}

void DecodeChunk(const uint8_t* sm, const uint8_t* ex, bool high_nibble_first, size_t count,
                 const uint8_t* exponents, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeChunkFloats)(sm, ex, high_nibble_first, count, exponents, out);
}

}  // namespace assay::packed12
#endif  // HWY_ONCE

// The same as ggml_unpack-inl.h for blocks of 256 values, most of whose runs of 16 or 32 have small
// integer scales (and minima) of their own.

#include <bit>
#include <cstddef>
#include <cstdint>

#include "assay/formats/ggml_unpack-inl.h"
#include "hwy/highway.h"

#if defined(ASSAY_FORMATS_GGML_UNPACK_K_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_FORMATS_GGML_UNPACK_K_INL_H_
#undef ASSAY_FORMATS_GGML_UNPACK_K_INL_H_
#else
#define ASSAY_FORMATS_GGML_UNPACK_K_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {
namespace ggml_unpack {

// ---- one scale a block ----

/// The digits of as many bytes as a vector holds, one after another `apart` bytes apart.
template <class D>
HWY_INLINE void PutTrits(D d, const uint8_t* bytes, int num_trits, size_t apart, uint8_t* codes) {
  const auto one = hn::Set(d, 1);
  auto fraction = hn::LoadU(d, bytes);  // of 256
  for (int n = 0; n < num_trits; ++n, codes += apart) {
    // (3 · fraction) >> 8 is 1 from 86 and 2 from 171 on.
    const auto first = hn::Min(hn::SaturatedSub(fraction, hn::Set(d, 85)), one);
    const auto second = hn::Min(hn::SaturatedSub(fraction, hn::Set(d, 170)), one);
    hn::StoreU(hn::Sub(hn::Add(first, second), one), d, codes);
    fraction = hn::Add(hn::Add(fraction, fraction), fraction);
  }
}

inline void UnpackTQ1_0(const uint8_t* block, Parts parts) {
  FillScales(HalfAt(block + 52), 256, parts);
  uint8_t* codes = Codes(parts);
  const DRun run;
  for (size_t i = 0; i < 32; i += hn::Lanes(run)) PutTrits(run, block + i, 5, 32, codes + i);
  PutTrits(DGroup(), block + 32, 5, 16, codes + 160);
  PutTrits(hn::CappedTag<uint8_t, 4>(), block + 48, 4, 4, codes + 240);
}

inline void UnpackQ8_K(const uint8_t* block, Parts parts) {
  FillScales(std::bit_cast<float>(U32At(block)), 256, parts);
  CopyCodes(block + 4, 256, parts);
}

// What becomes of codes in a vector, those of values i, i + 1, … of the block: the functions below
// call it after the scales are known.

struct PutCodes {
  Parts parts;
  template <class D>
  HWY_INLINE void operator()(D d, hn::Vec<D> codes, size_t i) const {
    hn::StoreU(codes, d, Codes(parts) + i);
  }
};

struct PutValues {
  Parts parts;  ///< without codes
  float* values;
  template <class D>
  HWY_INLINE void operator()(D d, hn::Vec<D> codes, size_t i) const {
    if constexpr (hn::MaxLanes(D()) > hn::MaxLanes(hn::CappedTag<float, kGroup>())) {
      const hn::Half<D> half;
      (*this)(half, hn::LowerHalf(half, codes), i);
      (*this)(half, hn::UpperHalf(half, codes), i + hn::Lanes(half));
    } else {
      PutScaled(d, codes, parts.scales[i / kGroup], parts.mins[i / kGroup], values + i);
    }
  }
};

// ---- the bit pairs of 32 bytes: 128 values ----

/// Calls put(value, i) with the bit pairs of byte l as values i = l, l + 32, l + 64, l + 96.
template <class Put>
HWY_INLINE void ForPairs(const uint8_t* bytes, const Put& put) {
  const DRun d;
  const hn::Repartition<uint16_t, DRun> d16;
  for (size_t l = 0; l < 32; l += hn::Lanes(d)) {
    auto rest = hn::BitCast(d16, hn::LoadU(d, bytes + l));
    for (size_t t = 0; t < 4; ++t) {
      put(hn::And(hn::BitCast(d, rest), hn::Set(d, 3)), 32 * t + l);
      rest = hn::ShiftRight<2>(rest);
    }
  }
}

template <class Put>
void UnpackTQ2_0(const uint8_t* block, Parts parts, const Put& put) {
  FillScales(HalfAt(block + 64), 256, parts);
  const DRun d;
  for (size_t half = 0; half < 2; ++half) {
    ForPairs(block + 32 * half, [&](hn::Vec<DRun> pair, size_t i) HWY_ATTR {
      put(d, hn::Sub(pair, hn::Set(d, 1)), 128 * half + i);
    });
  }
}

/// d times each of 16 integers, one a group, to `out`.
HWY_INLINE void PutScales(const int8_t* integers, float d, float* out) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<int8_t, decltype(df)> d8;
  for (size_t i = 0; i < 16; i += hn::Lanes(df)) {
    const auto integer = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, integers + i)));
    hn::StoreU(hn::Mul(hn::Set(df, d), integer), df, out + i);
  }
}

HWY_INLINE void PutScales(Group integers, float d, float* out) {
  alignas(16) int8_t bytes[16];
  hn::Store(hn::BitCast(hn::RebindToSigned<DGroup>(), integers), hn::RebindToSigned<DGroup>(),
            bytes);
  PutScales(bytes, d, out);
}

/// The same for eight bytes, lowest first, that are the scales of runs of 32.
HWY_INLINE void PutRunScales(uint64_t integers, uint8_t offset, float d, float* out) {
  const DGroup d8;
  const auto bytes = hn::BitCast(d8, hn::Set(hn::Repartition<uint64_t, DGroup>(), integers));
  PutScales(hn::Sub(hn::InterleaveLower(d8, bytes, bytes), hn::Set(d8, offset)), d, out);
}

template <class Put>
void UnpackQ2_K(const uint8_t* block, Parts parts, const Put& put) {
  const DGroup d16;
  const Group fields = hn::LoadU(d16, block);
  PutScales(hn::And(fields, hn::Set(d16, 15)), HalfAt(block + 80), parts.scales);
  PutScales(Bits<4>(d16, fields, 15), HalfAt(block + 82), parts.mins);
  for (size_t half = 0; half < 2; ++half) {
    ForPairs(block + 16 + 32 * half,
             [&](hn::Vec<DRun> pair, size_t i) HWY_ATTR { put(DRun(), pair, 128 * half + i); });
  }
}

template <class Put>
void UnpackQ3_K(const uint8_t* block, Parts parts, const Put& put) {
  const uint8_t* fields = block + 96;
  const uint64_t low = U64At(fields);
  const uint64_t high = U32At(fields + 8);
  constexpr uint64_t kLow = 0x0F0F0F0F0F0F0F0F;
  constexpr uint64_t kHigh = 0x3030303030303030;
  const uint64_t scales[2] = {(low & kLow) | ((high << 4 | high << 34) & kHigh),
                              ((low >> 4) & kLow) | ((high | high >> 2 << 32) & kHigh)};
  const DGroup d16;
  const Group integers = hn::BitCast(d16, hn::LoadU(hn::Repartition<uint64_t, DGroup>(), scales));
  PutScales(hn::Sub(integers, hn::Set(d16, 32)), HalfAt(block + 108), parts.scales);

  const DRun d;
  for (size_t l = 0; l < 32; l += hn::Lanes(d)) {
    auto above = hn::LoadU(d, block + l);
    for (size_t half = 0; half < 2; ++half) {
      auto pairs = hn::LoadU(d, block + 32 + 32 * half + l);
      for (size_t t = 0; t < 4; ++t) {
        const auto code = hn::Or(hn::And(pairs, hn::Set(d, 3)), Bits<-2>(d, above, 4));
        put(d, hn::Sub(code, hn::Set(d, 4)), 128 * half + 32 * t + l);
        pairs = Bits<2>(d, pairs, 0x3F);
        above = Bits<1>(d, above, 0x7F);
      }
    }
  }
}

// ---- nibbles with a scale for 16 or 32 ----

/// d · scale and dmin · minimum of the eight runs of Q4_K and Q5_K.
HWY_INLINE void PutSixBitPairs(const uint8_t* block, Parts parts) {
  const uint8_t* fields = block + 4;
  const uint64_t last = U32At(fields + 8);
  const auto join = [last](uint32_t first, int shift) {
    const uint64_t lower = first & 0x3F3F3F3FU;
    const uint64_t upper = ((last >> shift) & 0x0F0F0F0FU) | ((first >> 2) & 0x30303030U);
    return lower | upper << 32;
  };
  PutRunScales(join(U32At(fields), 0), 0, HalfAt(block), parts.scales);
  PutRunScales(join(U32At(fields + 4), 4), 0, HalfAt(block + 2), parts.mins);
}

template <class Put>
void UnpackQ4_K(const uint8_t* block, Parts parts, const Put& put) {
  PutSixBitPairs(block, parts);
  const DRun d;
  for (size_t c = 0; c < 4; ++c) {
    for (size_t l = 0; l < 32; l += hn::Lanes(d)) {
      const auto bytes = hn::LoadU(d, block + 16 + 32 * c + l);
      put(d, hn::And(bytes, hn::Set(d, 15)), 64 * c + l);
      put(d, Bits<4>(d, bytes, 15), 64 * c + 32 + l);
    }
  }
}

template <class Put>
void UnpackQ5_K(const uint8_t* block, Parts parts, const Put& put) {
  PutSixBitPairs(block, parts);
  const DRun d;
  for (size_t l = 0; l < 32; l += hn::Lanes(d)) {
    auto above = hn::LoadU(d, block + 16 + l);
    for (size_t c = 0; c < 4; ++c) {
      const auto bytes = hn::LoadU(d, block + 48 + 32 * c + l);
      put(d, hn::Or(hn::And(bytes, hn::Set(d, 15)), Bits<-4>(d, above, 16)), 64 * c + l);
      put(d, hn::Or(Bits<4>(d, bytes, 15), Bits<-3>(d, above, 16)), 64 * c + 32 + l);
      above = Bits<2>(d, above, 0x3F);
    }
  }
}

template <class Put>
void UnpackQ6_K(const uint8_t* block, Parts parts, const Put& put) {
  PutScales(reinterpret_cast<const int8_t*>(block + 192), HalfAt(block + 208), parts.scales);
  const DRun d;
  const auto middle = hn::Set(d, 32);
  for (size_t half = 0; half < 2; ++half) {
    for (size_t l = 0; l < 32; l += hn::Lanes(d)) {
      const auto first = hn::LoadU(d, block + 64 * half + l);
      const auto second = hn::LoadU(d, block + 64 * half + 32 + l);
      const auto above = hn::LoadU(d, block + 128 + 32 * half + l);
      const auto join = [&](hn::Vec<DRun> low, hn::Vec<DRun> high, size_t i) HWY_ATTR {
        put(d, hn::Sub(hn::Or(low, high), middle), 128 * half + l + i);
      };
      join(hn::And(first, hn::Set(d, 15)), Bits<-4>(d, above, 0x30), 0);
      join(hn::And(second, hn::Set(d, 15)), Bits<-2>(d, above, 0x30), 32);
      join(Bits<4>(d, first, 15), Bits<0>(d, above, 0x30), 64);
      join(Bits<4>(d, second, 15), Bits<2>(d, above, 0x30), 96);
    }
  }
}

template <class Put>
void UnpackIQ4_XS(const uint8_t* block, Parts parts, const Put& put) {
  // To a byte each: the nibbles of a word, then pairs of bits.
  uint64_t low = U32At(block + 4);
  low = (low | low << 16) & 0x0000FFFF0000FFFF;
  low = (low | low << 8) & 0x00FF00FF00FF00FF;
  low = (low | low << 4) & 0x0F0F0F0F0F0F0F0F;
  uint64_t high = U16At(block + 2);
  high = (high | high << 24) & 0x000000FF000000FF;
  high = (high | high << 12) & 0x000F000F000F000F;
  high = (high | high << 6) & 0x0303030303030303;
  PutRunScales(low | high << 4, 32, HalfAt(block), parts.scales);
  const DGroup d;
  const Group entries = Entries(ggml_internal::kIq4Values);
  for (size_t run = 0; run < 8; ++run) {
    const Group bytes = hn::LoadU(d, block + 8 + 16 * run);
    put(d, hn::TableLookupBytes(entries, hn::And(bytes, hn::Set(d, 15))), 32 * run);
    put(d, hn::TableLookupBytes(entries, Bits<4>(d, bytes, 15)), 32 * run + 16);
  }
}

}  // namespace ggml_unpack
}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ASSAY_FORMATS_GGML_UNPACK_K_INL_H_

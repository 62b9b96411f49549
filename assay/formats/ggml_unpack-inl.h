// How blocks with one scale, or one a group, in the clear are taken apart, for inclusion in files
// that are compiled once per target (hwy/foreach_target.h). docs/formats/ggml.md draws each type.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "assay/formats/ggml_blocks.h"
#include "assay/formats/ggml_bytes.h"
#include "assay/numeric/element-inl.h"
#include "hwy/highway.h"

#if defined(ASSAY_FORMATS_GGML_UNPACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_FORMATS_GGML_UNPACK_INL_H_
#undef ASSAY_FORMATS_GGML_UNPACK_INL_H_
#else
#define ASSAY_FORMATS_GGML_UNPACK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace ggml_unpack {

using ggml_internal::F16At;
using ggml_internal::kGroup;
using ggml_internal::Parts;
using ggml_internal::U16At;
using ggml_internal::U32At;
using ggml_internal::U64At;

/// The bytes of a group of 16, and as much of a run of 32 as a vector holds.
using DGroup = hn::CappedTag<uint8_t, 16>;
using DRun = hn::CappedTag<uint8_t, 32>;
using Group = hn::Vec<DGroup>;

HWY_INLINE uint8_t* Codes(const Parts& parts) { return reinterpret_cast<uint8_t*>(parts.codes); }

/// F16At in one instruction where there is one.
HWY_INLINE float HalfAt(const uint8_t* at) {
#if ASSAY_NATIVE_F16
  return hn::GetLane(LoadElements<Element::kF16>(hn::CappedTag<float, 1>(),
                                                 reinterpret_cast<const std::byte*>(at)));
#else
  return F16At(at);
#endif
}

/// scale · code − min of as many codes as a vector of f32 holds, or fewer.
template <class D>
HWY_INLINE void PutScaled(D /*d*/, hn::Vec<D> codes, float scale, float min, float* values) {
  const hn::Rebind<float, D> df;
  const hn::RebindToSigned<D> d8;
  const auto code =
      hn::ConvertTo(df, hn::PromoteTo(hn::RebindToSigned<decltype(df)>(), hn::BitCast(d8, codes)));
  hn::StoreU(hn::Sub(hn::Mul(hn::Set(df, scale), code), hn::Set(df, min)), df, values);
}

/// Each byte moved down by kShift bits, up by −kShift, then masked: the mask must leave out the
/// bits that came from its neighbour.
template <int kShift, class D>
HWY_INLINE hn::Vec<D> Bits(D d, hn::Vec<D> bytes, uint8_t mask) {
  const hn::Repartition<uint16_t, D> d16;
  const auto words = hn::BitCast(d16, bytes);
  if constexpr (kShift < 0) {
    return hn::And(hn::BitCast(d, hn::ShiftLeft<-kShift>(words)), hn::Set(d, mask));
  } else {
    return hn::And(hn::BitCast(d, hn::ShiftRight<kShift>(words)), hn::Set(d, mask));
  }
}

HWY_INLINE void FillScales(float scale, size_t num_values, Parts parts) {
  std::fill_n(parts.scales, num_values / kGroup, scale);
}

// ---- one scale a block ----

/// Byte j holds value j in its low and value j + 16 in its high nibble.
template <class Value>
HWY_INLINE void PutHalves(const uint8_t* nibbles, uint8_t* codes, const Value& value) {
  const DGroup d;
  const Group bytes = hn::LoadU(d, nibbles);
  hn::StoreU(value(hn::And(bytes, hn::Set(d, 15))), d, codes);
  hn::StoreU(value(Bits<4>(d, bytes, 15)), d, codes + 16);
}

HWY_INLINE Group Entries(const std::array<int8_t, 16>& table) {
  return hn::LoadU(DGroup(), reinterpret_cast<const uint8_t*>(table.data()));
}

HWY_INLINE void PutHalvesOf(const std::array<int8_t, 16>& table, const uint8_t* nibbles,
                            uint8_t* codes) {
  const Group entries = Entries(table);
  PutHalves(nibbles, codes,
            [&](Group nibble) HWY_ATTR { return hn::TableLookupBytes(entries, nibble); });
}

inline void UnpackQ4_0(const uint8_t* block, Parts parts) {
  FillScales(HalfAt(block), 32, parts);
  const Group eight = hn::Set(DGroup(), 8);
  PutHalves(block + 2, Codes(parts), [&](Group nibble) HWY_ATTR { return hn::Sub(nibble, eight); });
}

inline void UnpackQ4_1(const uint8_t* block, Parts parts) {
  FillScales(HalfAt(block), 32, parts);
  std::fill_n(parts.mins, 2, -HalfAt(block + 2));
  PutHalves(block + 4, Codes(parts), [](Group nibble) HWY_ATTR { return nibble; });
}

/// 255 where a bit is set, bit i for byte i.
HWY_INLINE Group SpreadBits(uint16_t bits) {
  const DGroup d;
  alignas(16) static constexpr uint8_t kBit[16] = {1, 2, 4, 8, 16, 32, 64, 128,
                                                   1, 2, 4, 8, 16, 32, 64, 128};
  alignas(16) static constexpr uint8_t kByte[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const auto pair = hn::BitCast(d, hn::Set(hn::Repartition<uint16_t, DGroup>(), bits));
  const Group bit = hn::Load(d, kBit);
  return hn::VecFromMask(d,
                         hn::Eq(hn::And(hn::TableLookupBytes(pair, hn::Load(d, kByte)), bit), bit));
}

/// Halves with a fifth bit, bit i of `high` for value i.
HWY_INLINE void PutFiveBits(const uint8_t* nibbles, uint32_t high, uint8_t offset, uint8_t* codes) {
  const DGroup d;
  const Group bytes = hn::LoadU(d, nibbles);
  const Group sixteen = hn::Set(d, 16);
  const Group first = hn::And(SpreadBits(static_cast<uint16_t>(high)), sixteen);
  const Group second = hn::And(SpreadBits(static_cast<uint16_t>(high >> 16)), sixteen);
  const Group subtract = hn::Set(d, offset);
  hn::StoreU(hn::Sub(hn::Or(hn::And(bytes, hn::Set(d, 15)), first), subtract), d, codes);
  hn::StoreU(hn::Sub(hn::Or(Bits<4>(d, bytes, 15), second), subtract), d, codes + 16);
}

inline void UnpackQ5_0(const uint8_t* block, Parts parts) {
  FillScales(HalfAt(block), 32, parts);
  PutFiveBits(block + 6, U32At(block + 2), 16, Codes(parts));
}

inline void UnpackQ5_1(const uint8_t* block, Parts parts) {
  FillScales(HalfAt(block), 32, parts);
  std::fill_n(parts.mins, 2, -HalfAt(block + 2));
  PutFiveBits(block + 8, U32At(block + 4), 0, Codes(parts));
}

/// Codes as they are, 16 at a time: what is read back in other pieces waits for the store.
HWY_INLINE void CopyCodes(const uint8_t* from, size_t num_codes, Parts parts) {
  const DGroup d;
  for (size_t i = 0; i < num_codes; i += kGroup) {
    hn::StoreU(hn::LoadU(d, from + i), d, Codes(parts) + i);
  }
}

inline void UnpackQ8_0(const uint8_t* block, Parts parts) {
  FillScales(HalfAt(block), 32, parts);
  CopyCodes(block + 2, 32, parts);
}

inline void UnpackQ8_1(const uint8_t* block, Parts parts) {
  FillScales(HalfAt(block), 32, parts);
  CopyCodes(block + 4, 32, parts);
}

inline void UnpackIQ4_NL(const uint8_t* block, Parts parts) {
  FillScales(HalfAt(block), 32, parts);
  PutHalvesOf(ggml_internal::kIq4Values, block + 2, Codes(parts));
}

inline void UnpackMXFP4(const uint8_t* block, Parts parts) {
  FillScales(ggml_internal::HalfE8M0(block[0]), 32, parts);
  PutHalvesOf(ggml_internal::kTwiceE2M1, block + 1, Codes(parts));
}

inline void UnpackNVFP4(const uint8_t* block, Parts parts) {
  for (size_t s = 0; s < 4; ++s) parts.scales[s] = ggml_internal::HalfUE4M3(block[s]);
  const DGroup d;
  const hn::Repartition<uint64_t, DGroup> d64;
  for (size_t pair = 0; pair < 2; ++pair) {
    alignas(16) uint8_t halves[32];
    PutHalvesOf(ggml_internal::kTwiceE2M1, block + 4 + 16 * pair, halves);
    const auto low = hn::BitCast(d64, hn::Load(d, halves));
    const auto high = hn::BitCast(d64, hn::Load(d, halves + 16));
    uint8_t* codes = Codes(parts) + 32 * pair;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low, high)), d, codes);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low, high)), d, codes + 16);
  }
}

inline void UnpackQ1_0(const uint8_t* block, Parts parts) {
  FillScales(HalfAt(block), 128, parts);
  const DGroup d;
  for (size_t group = 0; group < 8; ++group) {
    const Group set = hn::And(SpreadBits(U16At(block + 2 + 2 * group)), hn::Set(d, 2));
    hn::StoreU(hn::Sub(set, hn::Set(d, 1)), d, Codes(parts) + 16 * group);
  }
}

inline void UnpackQ2_0(const uint8_t* block, Parts parts) {
  FillScales(HalfAt(block), 64, parts);
  const hn::CappedTag<uint32_t, 16> d32;
  const hn::Repartition<uint8_t, decltype(d32)> d8;
  for (size_t i = 0; i < 16; i += hn::Lanes(d32)) {
    const auto byte =
        hn::PromoteTo(d32, hn::LoadU(hn::Rebind<uint8_t, decltype(d32)>(), block + 2 + i));
    const auto two = hn::Or(byte, hn::ShiftLeft<6>(byte));
    const auto four = hn::BitCast(d8, hn::Or(two, hn::ShiftLeft<12>(two)));
    hn::StoreU(hn::Sub(hn::And(four, hn::Set(d8, 3)), hn::Set(d8, 1)), d8, Codes(parts) + 4 * i);
  }
}

}  // namespace ggml_unpack
}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ASSAY_FORMATS_GGML_UNPACK_INL_H_

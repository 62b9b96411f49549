// Codes of 2 to 6 bits to and from one code per byte, for inclusion in files that are compiled once
// per target (hwy/foreach_target.h).
//
// Eight codes are one 64-bit lane, so all sizes share three steps: neighbours join within 16, then
// 32, then 64 bits, and the `bits` bytes that hold eight codes move together.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

#if defined(ASSAY_FORMATS_AFFINE_PACKING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_FORMATS_AFFINE_PACKING_INL_H_
#undef ASSAY_FORMATS_AFFINE_PACKING_INL_H_
#else
#define ASSAY_FORMATS_AFFINE_PACKING_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Bytes that PackCodes and UnpackCodes may touch after the end of either buffer.
inline constexpr size_t kPackingSlack = 64;

namespace affine_packing {

/// AVX3_DL moves bytes and bit fields across a whole vector in one instruction each.
#undef ASSAY_AFFINE_VBMI
#if HWY_ARCH_X86 && HWY_TARGET == HWY_AVX3_DL
#define ASSAY_AFFINE_VBMI 1
#else
#define ASSAY_AFFINE_VBMI 0
#endif

using DBytes = hn::CappedTag<uint8_t, HWY_ARCH_X86 ? 64 : 16>;

/// `bytes` apart in memory, 16 bytes each, to the 128-bit blocks of a vector.
template <class D>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const uint8_t* from, size_t bytes_apart) {
  if constexpr (hn::MaxLanes(D()) <= 16) {
    (void)bytes_apart;
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> dh;
    const size_t blocks = hn::Lanes(dh) / 16;
    return hn::Combine(d, LoadBlocks(dh, from + blocks * bytes_apart, bytes_apart),
                       LoadBlocks(dh, from, bytes_apart));
  }
}

/// The inverse; blocks are stored lowest first, so that the next covers what the last has too much.
template <class D>
HWY_INLINE void StoreBlocks(D d, hn::Vec<D> v, uint8_t* to, size_t bytes_apart) {
  if constexpr (hn::MaxLanes(D()) <= 16) {
    (void)bytes_apart;
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> dh;
    const size_t blocks = hn::Lanes(dh) / 16;
    StoreBlocks(dh, hn::LowerHalf(dh, v), to, bytes_apart);
    StoreBlocks(dh, hn::UpperHalf(dh, v), to + blocks * bytes_apart, bytes_apart);
  }
}

/// Joins the halves of each lane of T: kUsed low bits of both, next to each other.
template <int kUsed, typename T>
HWY_INLINE hn::Vec<DBytes> JoinHalves(hn::Vec<DBytes> v) {
  const hn::Repartition<T, DBytes> d;
  constexpr int kHalf = static_cast<int>(sizeof(T)) * 4;
  constexpr T kLow = static_cast<T>((T{1} << kUsed) - 1);
  constexpr T kHigh = static_cast<T>(kLow << kUsed);
  const auto lanes = hn::BitCast(d, v);
  const auto high = hn::ShiftRight<kHalf - kUsed>(lanes);
  const auto low = hn::And(lanes, hn::Set(d, kLow));
  return hn::BitCast(DBytes(), hn::OrAnd(low, high, hn::Set(d, kHigh)));
}

template <int kUsed, typename T>
HWY_INLINE hn::Vec<DBytes> SplitHalves(hn::Vec<DBytes> v) {
  const hn::Repartition<T, DBytes> d;
  constexpr int kHalf = static_cast<int>(sizeof(T)) * 4;
  constexpr T kLow = static_cast<T>((T{1} << kUsed) - 1);
  constexpr T kHigh = static_cast<T>(kLow << kHalf);
  const auto lanes = hn::BitCast(d, v);
  const auto high = hn::ShiftLeft<kHalf - kUsed>(lanes);
  const auto low = hn::And(lanes, hn::Set(d, kLow));
  return hn::BitCast(DBytes(), hn::OrAnd(low, high, hn::Set(d, kHigh)));
}

/// Where byte j of the shuffled vector comes from.
template <int kBits>
struct Moves {
  /// Squeezes `kBits` bytes out of each 8, filling from the start: of 64 bytes, of a 16-byte block.
  alignas(64) uint8_t squeeze[64] = {};
  alignas(16) uint8_t squeeze_block[16] = {};
  /// Spreads them again; the last 8 − kBits bytes of each 8 are any.
  alignas(64) uint8_t spread[64] = {};
  constexpr Moves() {
    for (int j = 0; j < 64; ++j) {
      const int from = j / kBits * 8 + j % kBits;
      squeeze[j] = static_cast<uint8_t>(from < 64 ? from : 0);
      if (j < 16) squeeze_block[j] = static_cast<uint8_t>(from < 16 ? from : 0);
      spread[j] = static_cast<uint8_t>(j / 8 * kBits + j % 8);
    }
  }
};
template <int kBits>
inline constexpr Moves<kBits> kMoves{};

}  // namespace affine_packing

/// codes[k] < 2^kBits to the bit stream. Requires num_codes % 32 = 0; kPackingSlack bytes after
/// both buffers are read or overwritten.
template <int kBits>
void PackCodes(const uint8_t* HWY_RESTRICT codes, size_t num_codes, uint8_t* HWY_RESTRICT out) {
  namespace ap = affine_packing;
  const ap::DBytes d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < num_codes; i += lanes, out += lanes / 8 * kBits) {
    auto v = hn::LoadU(d, codes + i);
    v = ap::JoinHalves<kBits, uint16_t>(v);
    v = ap::JoinHalves<2 * kBits, uint32_t>(v);
    v = ap::JoinHalves<4 * kBits, uint64_t>(v);
#if ASSAY_AFFINE_VBMI
    const auto moves = hn::Load(d, ap::kMoves<kBits>.squeeze);
    hn::StoreU(hn::Vec<ap::DBytes>{_mm512_permutexvar_epi8(moves.raw, v.raw)}, d, out);
#else
    const auto moves = hn::LoadDup128(d, ap::kMoves<kBits>.squeeze_block);
    ap::StoreBlocks(d, hn::TableLookupBytes(v, moves), out, 2 * kBits);
#endif
  }
}

/// The inverse of PackCodes, with the same requirements.
template <int kBits>
void UnpackCodes(const uint8_t* HWY_RESTRICT packed, size_t num_codes,
                 uint8_t* HWY_RESTRICT codes) {
  namespace ap = affine_packing;
  const ap::DBytes d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < num_codes; i += lanes, packed += lanes / 8 * kBits) {
#if ASSAY_AFFINE_VBMI
    // Bit field k of each 8 bytes starts at bit k · kBits.
    alignas(8) static constexpr uint8_t kFields[8] = {0,         kBits,     2 * kBits, 3 * kBits,
                                                      4 * kBits, 5 * kBits, 6 * kBits, 7 * kBits};
    const hn::Repartition<uint64_t, ap::DBytes> d64;
    uint64_t fields = 0;
    std::memcpy(&fields, kFields, sizeof(fields));
    const auto moves = hn::Load(d, ap::kMoves<kBits>.spread);
    const auto spread = _mm512_permutexvar_epi8(moves.raw, hn::LoadU(d, packed).raw);
    const auto bytes = _mm512_multishift_epi64_epi8(hn::Set(d64, fields).raw, spread);
    const auto v = hn::And(hn::Vec<ap::DBytes>{bytes}, hn::Set(d, (1 << kBits) - 1));
#else
    auto v = ap::LoadBlocks(d, packed, 2 * kBits);
    v = hn::TableLookupBytes(v, hn::LoadDup128(d, ap::kMoves<kBits>.spread));
    v = ap::SplitHalves<4 * kBits, uint64_t>(v);
    v = ap::SplitHalves<2 * kBits, uint32_t>(v);
    v = ap::SplitHalves<kBits, uint16_t>(v);
#endif
    hn::StoreU(v, d, codes + i);
  }
}

}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ASSAY_FORMATS_AFFINE_PACKING_INL_H_

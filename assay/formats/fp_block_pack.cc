#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/formats/fp_block_pack.cc"
#include <hwy/foreach_target.h>

#include <cstring>

#include "assay/formats/fp_blocks-inl.h"
#include "assay/formats/fp_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {

using Bytes16 = hn::FixedTag<uint8_t, 16>;
using Bytes8 = hn::FixedTag<uint8_t, 8>;
using Halves8 = hn::FixedTag<uint16_t, 8>;
using Words4 = hn::FixedTag<uint32_t, 4>;

// 16 codes → 8 bytes: the two codes of a 16-bit lane move together.
void PackNibbles(const uint8_t* HWY_RESTRICT codes, size_t count, uint8_t* HWY_RESTRICT packed) {
  const Halves8 d16;
  for (size_t i = 0; i < count; i += 16) {
    const auto pairs = hn::BitCast(d16, hn::LoadU(Bytes16(), codes + i));
    const auto joined =
        hn::And(hn::Or(pairs, hn::ShiftRight<4>(pairs)), hn::Set(d16, uint16_t{0xFF}));
    const hn::FixedTag<int16_t, 8> di16;
    hn::StoreU(hn::DemoteTo(Bytes8(), hn::BitCast(di16, joined)), Bytes8(), packed + i / 2);
  }
}

void UnpackNibbles(const uint8_t* HWY_RESTRICT packed, size_t count, uint8_t* HWY_RESTRICT codes) {
  const Halves8 d16;
  for (size_t i = 0; i < count; i += 16) {
    const auto bytes = hn::PromoteTo(d16, hn::LoadU(Bytes8(), packed + i / 2));
    const auto apart =
        hn::And(hn::Or(bytes, hn::ShiftLeft<4>(bytes)), hn::Set(d16, uint16_t{0x0F0F}));
    hn::StoreU(hn::BitCast(Bytes16(), apart), Bytes16(), codes + i);
  }
}

// Four codes in the bytes of a 32-bit lane → 24 bits; three bytes of each lane are kept.
void PackSixes(const uint8_t* HWY_RESTRICT codes, size_t count, uint8_t* HWY_RESTRICT packed) {
  const Words4 d32;
  HWY_ALIGN static constexpr uint8_t kKeep[16] = {0,  1,  2,  4,  5, 6, 8, 9,
                                                  10, 12, 13, 14, 0, 0, 0, 0};
  const auto keep = hn::Load(Bytes16(), kKeep);
  for (size_t i = 0; i < count; i += 16) {
    const auto c = hn::BitCast(d32, hn::LoadU(Bytes16(), codes + i));
    const auto low = hn::Or(hn::And(c, hn::Set(d32, 0x3Fu)),
                            hn::And(hn::ShiftRight<2>(c), hn::Set(d32, 0xFC0u)));
    const auto high = hn::Or(hn::And(hn::ShiftRight<4>(c), hn::Set(d32, 0x3F000u)),
                             hn::And(hn::ShiftRight<6>(c), hn::Set(d32, 0xFC0000u)));
    const auto bytes = hn::TableLookupBytes(hn::BitCast(Bytes16(), hn::Or(low, high)), keep);
    uint8_t* out = packed + i / 4 * 3;
    if (i + 32 <= count) {
      hn::StoreU(bytes, Bytes16(), out);  // four bytes too many, written over by the next step
    } else {
      HWY_ALIGN uint8_t last[16];
      hn::Store(bytes, Bytes16(), last);
      std::memcpy(out, last, 12);
    }
  }
}

void UnpackSixes(const uint8_t* HWY_RESTRICT packed, size_t count, uint8_t* HWY_RESTRICT codes) {
  const Words4 d32;
  HWY_ALIGN static constexpr uint8_t kSpread[16] = {0, 1, 2, 2, 3, 4,  5,  5,
                                                    6, 7, 8, 8, 9, 10, 11, 11};
  const auto spread = hn::Load(Bytes16(), kSpread);
  for (size_t i = 0; i < count; i += 16) {
    const uint8_t* in = packed + i / 4 * 3;
    HWY_ALIGN uint8_t last[16] = {};
    if (i + 32 > count) {  // sixteen bytes from here may end outside
      std::memcpy(last, in, 12);
      in = last;
    }
    const auto w = hn::BitCast(d32, hn::TableLookupBytes(hn::LoadU(Bytes16(), in), spread));
    const auto low = hn::Or(hn::And(w, hn::Set(d32, 0x3Fu)),
                            hn::And(hn::ShiftLeft<2>(w), hn::Set(d32, 0x3F00u)));
    const auto high = hn::Or(hn::And(hn::ShiftLeft<4>(w), hn::Set(d32, 0x3F0000u)),
                             hn::And(hn::ShiftLeft<6>(w), hn::Set(d32, 0x3F000000u)));
    hn::StoreU(hn::BitCast(Bytes16(), hn::Or(low, high)), Bytes16(), codes + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "assay/base/error.h"

namespace assay {
namespace {

HWY_EXPORT(PackNibbles);
HWY_EXPORT(UnpackNibbles);
HWY_EXPORT(PackSixes);
HWY_EXPORT(UnpackSixes);

void RequirePacking(int bits, size_t num_codes, size_t num_bytes) {
  if (num_codes % 16 != 0 || num_bytes != num_codes / 8 * static_cast<size_t>(bits)) {
    ThrowInternal("{} codes of {} bits do not fill {} bytes", num_codes, bits, num_bytes);
  }
}

}  // namespace

void PackCodes(int bits, std::span<const uint8_t> codes, std::span<std::byte> packed) {
  RequirePacking(bits, codes.size(), packed.size());
  if (codes.empty()) return;
  auto* out = reinterpret_cast<uint8_t*>(packed.data());
  if (bits == 4) {
    HWY_DYNAMIC_DISPATCH(PackNibbles)(codes.data(), codes.size(), out);
  } else if (bits == 6) {
    HWY_DYNAMIC_DISPATCH(PackSixes)(codes.data(), codes.size(), out);
  } else {
    std::memcpy(out, codes.data(), codes.size());
  }
}

void UnpackCodes(int bits, std::span<const std::byte> packed, std::span<uint8_t> codes) {
  RequirePacking(bits, codes.size(), packed.size());
  if (codes.empty()) return;
  const auto* in = reinterpret_cast<const uint8_t*>(packed.data());
  if (bits == 4) {
    HWY_DYNAMIC_DISPATCH(UnpackNibbles)(in, codes.size(), codes.data());
  } else if (bits == 6) {
    HWY_DYNAMIC_DISPATCH(UnpackSixes)(in, codes.size(), codes.data());
  } else {
    std::memcpy(codes.data(), in, codes.size());
  }
}

}  // namespace assay
#endif  // HWY_ONCE

// Per-instruction-set pieces of block formats: rounding and element codes in f32 lanes.

#if defined(ASSAY_FORMATS_FP_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_FORMATS_FP_BLOCKS_INL_H_
#undef ASSAY_FORMATS_FP_BLOCKS_INL_H_
#else
#define ASSAY_FORMATS_FP_BLOCKS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "assay/numeric/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A block of 16 holds a whole number of vectors of any width up to 16 lanes.
using FloatTag = hn::CappedTag<float, 16>;
using WordTag = hn::RebindToUnsigned<FloatTag>;
using ByteTag = hn::Rebind<uint8_t, FloatTag>;
using FloatVec = hn::Vec<FloatTag>;
using WordVec = hn::Vec<WordTag>;

constexpr uint32_t kSignBit = 0x80000000u;
constexpr uint32_t kAbsMask = 0x7FFFFFFFu;
constexpr uint32_t kExponentMask = 0x7F800000u;

HWY_INLINE WordVec Words(uint32_t value) { return hn::Set(WordTag(), value); }
HWY_INLINE WordVec BitsOf(FloatVec value) { return hn::BitCast(WordTag(), value); }
HWY_INLINE FloatVec FloatOf(WordVec bits) { return hn::BitCast(FloatTag(), bits); }

/// A float element: its code and its value in u32 and f32 lanes.
template <Element kElement>
struct FloatElement {
  /// Nearest even, saturating. Requires q that is not NaN.
  static HWY_INLINE WordVec Encode(FloatVec q) { return RoundCodes<kElement, true>(FloatTag(), q); }
  static HWY_INLINE FloatVec Decode(WordVec code) { return WidenCodes<kElement>(FloatTag(), code); }
};
using E2M1 = FloatElement<Element::kE2M1>;
using E2M3 = FloatElement<Element::kE2M3>;
using E3M2 = FloatElement<Element::kE3M2>;
using E4M3 = FloatElement<Element::kE4M3>;
using E5M2 = FloatElement<Element::kE5M2>;

/// Two's complement, value = code / 64; −128 is decoded but never made.
struct Int8 {
  static HWY_INLINE WordVec Encode(FloatVec q) {
    const FloatVec limit = hn::Set(FloatTag(), 127.0f);
    const FloatVec scaled = hn::Mul(q, hn::Set(FloatTag(), 64.0f));
    const FloatVec clamped = hn::Max(hn::Min(scaled, limit), hn::Neg(limit));
    // 1.5 · 2^23: the f32 adder rounds to integers, whose low byte is the code.
    const FloatVec magic = hn::Set(FloatTag(), 12582912.0f);
    return hn::And(BitsOf(hn::Add(clamped, magic)), Words(0xFF));
  }
  static HWY_INLINE FloatVec Decode(WordVec code) {
    const hn::RebindToSigned<FloatTag> di;
    const auto value = hn::ShiftRight<24>(hn::ShiftLeft<24>(hn::BitCast(di, code)));
    return hn::Mul(hn::ConvertTo(FloatTag(), value), hn::Set(FloatTag(), 1.0f / 64.0f));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#endif  // include guard

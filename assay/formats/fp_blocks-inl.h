// Per-instruction-set pieces of block formats: rounding and element codes in f32 lanes.

#if defined(ASSAY_FORMATS_FP_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_FORMATS_FP_BLOCKS_INL_H_
#undef ASSAY_FORMATS_FP_BLOCKS_INL_H_
#else
#define ASSAY_FORMATS_FP_BLOCKS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

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

/// A float element of 1 sign, kExponent and kMantissa bits, without infinities in range.
template <int kExponent, int kMantissa, int kBias, int kMaxExponent, int kMaxMantissa>
struct FloatElement {
  static constexpr int kSignShift = kExponent + kMantissa;
  static constexpr uint32_t kMagnitudeMask = (1u << kSignShift) - 1;
  static constexpr uint32_t kMinNormalBits = static_cast<uint32_t>(128 - kBias) << 23;
  static constexpr uint32_t kMaxBits = (static_cast<uint32_t>(127 + kMaxExponent) << 23) |
                                       (static_cast<uint32_t>(kMaxMantissa) << (23 - kMantissa));
  static constexpr int kDropped = 23 - kMantissa;  // mantissa bits an f32 has more

  /// Magnitude code of |q|, nearest even, saturating.
  /// With e = max(⌊log2 a⌋, 1 − bias), adding 2^(e+23−M) makes the f32 adder round a to a multiple
  /// of 2^(e−M); the sum's low bits count those multiples. Subnormals and carries into the next
  /// binade need no case of their own: 1.75 as e2m1 has e = 0, n = 4, code 4 + (0 << 1) = 4 (2.0).
  static HWY_INLINE WordVec EncodeMagnitude(FloatVec q) {
    const FloatVec a =
        hn::Min(FloatOf(hn::And(BitsOf(q), Words(kAbsMask))), FloatOf(Words(kMaxBits)));
    const WordVec binade = hn::Max(hn::And(BitsOf(a), Words(kExponentMask)), Words(kMinNormalBits));
    const WordVec magic = hn::Add(binade, Words(static_cast<uint32_t>(kDropped) << 23));
    const WordVec sum = BitsOf(hn::Add(a, FloatOf(magic)));
    const WordVec steps = hn::Sub(sum, magic);
    const WordVec base = hn::Sub(hn::ShiftRight<kDropped>(binade),
                                 Words(static_cast<uint32_t>(128 - kBias) << kMantissa));
    return hn::Add(steps, base);
  }

  /// The sign bit of q where the code keeps it.
  static HWY_INLINE WordVec SignOf(FloatVec q) {
    return hn::ShiftRight<31 - kSignShift>(hn::And(BitsOf(q), Words(kSignBit)));
  }

  static HWY_INLINE WordVec Encode(FloatVec q) { return hn::Or(EncodeMagnitude(q), SignOf(q)); }

  /// Exact value of a code. An exponent field of 0 is read as 1 with the implicit bit taken off
  /// again, so that no f32 subnormal arises.
  static HWY_INLINE FloatVec Decode(WordVec code) {
    const WordVec magnitude = hn::And(code, Words(kMagnitudeMask));
    const auto subnormal = hn::Lt(magnitude, Words(1u << kMantissa));
    const WordVec shifted = hn::ShiftLeft<kDropped>(magnitude);
    const WordVec rebias =
        hn::IfThenElse(subnormal, Words(static_cast<uint32_t>(128 - kBias) << 23),
                       Words(static_cast<uint32_t>(127 - kBias) << 23));
    const FloatVec implicit = FloatOf(hn::IfThenElseZero(subnormal, Words(kMinNormalBits)));
    const FloatVec value = hn::Sub(FloatOf(hn::Add(shifted, rebias)), implicit);
    const WordVec sign = hn::ShiftLeft<31 - kSignShift>(hn::And(code, Words(1u << kSignShift)));
    return FloatOf(hn::Or(BitsOf(value), sign));
  }
};

struct E2M1 : FloatElement<2, 1, 1, 2, 1> {};
struct E2M3 : FloatElement<2, 3, 1, 2, 7> {};
struct E3M2 : FloatElement<3, 2, 3, 4, 3> {};

/// e4m3fn: no infinity; magnitude 0x7F is NaN.
struct E4M3 : FloatElement<4, 3, 7, 8, 6> {
  static HWY_INLINE FloatVec Decode(WordVec code) {
    const auto nan = hn::Eq(hn::And(code, Words(kMagnitudeMask)), Words(0x7F));
    return FloatOf(hn::IfThenElse(nan, Words(0x7FC00000), BitsOf(FloatElement::Decode(code))));
  }
};

/// e5m2: magnitude 0x7C is infinity, above it NaN.
struct E5M2 : FloatElement<5, 2, 15, 15, 3> {
  static HWY_INLINE FloatVec Decode(WordVec code) {
    const auto special = hn::Gt(hn::And(code, Words(kMagnitudeMask)), Words(0x7B));
    const WordVec bits =
        hn::Or(hn::Or(hn::ShiftLeft<24>(hn::And(code, Words(0x80))), Words(kExponentMask)),
               hn::ShiftLeft<21>(hn::And(code, Words(3))));
    return FloatOf(hn::IfThenElse(special, bits, BitsOf(FloatElement::Decode(code))));
  }
};

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

/// Nearest even to bf16; NaN keeps sign and upper payload, made quiet.
HWY_INLINE FloatVec RoundToBF16Lanes(FloatVec value) {
  const WordVec bits = BitsOf(value);
  const WordVec odd = hn::And(hn::ShiftRight<16>(bits), Words(1));
  const WordVec rounded = hn::Add(bits, hn::Add(odd, Words(0x7FFF)));
  const auto nan = hn::Gt(hn::And(bits, Words(kAbsMask)), Words(kExponentMask));
  const WordVec chosen = hn::IfThenElse(nan, hn::Or(bits, Words(0x00400000)), rounded);
  return FloatOf(hn::And(chosen, Words(0xFFFF0000)));
}

/// Nearest even to f16, as f16 bits: subnormals included, 65520 and more infinite; NaN keeps sign
/// and upper payload, made quiet.
HWY_INLINE WordVec F16BitsOf(FloatVec value) {
  const WordVec bits = BitsOf(value);
  const WordVec sign = hn::ShiftRight<16>(hn::And(bits, Words(kSignBit)));
  const WordVec magnitude = hn::And(bits, Words(kAbsMask));
  const WordVec a = hn::Min(magnitude, Words(0x47800000));  // 65536 and above: the same, infinity
  const WordVec binade = hn::Max(hn::And(a, Words(kExponentMask)), Words(113u << 23));
  const WordVec magic = hn::Add(binade, Words(13u << 23));
  const WordVec steps = hn::Sub(BitsOf(hn::Add(FloatOf(a), FloatOf(magic))), magic);
  const WordVec code = hn::Add(steps, hn::Sub(hn::ShiftRight<13>(binade), Words(113u << 10)));
  const WordVec nan_code =
      hn::Or(Words(0x7E00), hn::And(hn::ShiftRight<13>(magnitude), Words(0x3FF)));
  const auto nan = hn::Gt(magnitude, Words(kExponentMask));
  return hn::Or(sign, hn::IfThenElse(nan, nan_code, code));
}

/// The same, widened again.
HWY_INLINE FloatVec RoundToF16Lanes(FloatVec value) {
  const WordVec code = F16BitsOf(value);
  const WordVec magnitude = hn::And(code, Words(0x7FFF));
  const auto subnormal = hn::Lt(magnitude, Words(0x400));
  const auto special = hn::Gt(magnitude, Words(0x7BFF));
  // A subnormal takes the exponent of the smallest normal and gives the implicit bit back.
  const WordVec rebias = hn::IfThenElse(subnormal, Words(113u << 23), Words(112u << 23));
  const FloatVec finite = hn::Sub(FloatOf(hn::Add(hn::ShiftLeft<13>(magnitude), rebias)),
                                  FloatOf(hn::IfThenElseZero(subnormal, Words(113u << 23))));
  const WordVec special_bits =
      hn::Or(hn::ShiftLeft<13>(hn::And(magnitude, Words(0x3FF))), Words(kExponentMask));
  const WordVec sign = hn::And(BitsOf(value), Words(kSignBit));
  return FloatOf(hn::Or(sign, hn::IfThenElse(special, special_bits, BitsOf(finite))));
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#endif  // include guard

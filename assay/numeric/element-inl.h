// Element conversions on vectors, for inclusion in files that are compiled once per target
// (hwy/foreach_target.h). Every function gives the bits of its scalar namesake in element.h for
// every input, NaN, infinities, subnormals and −0 included, on every target.
//
//   namespace hn = hwy::HWY_NAMESPACE;
//   const hn::ScalableTag<float> df;
//   const auto x = LoadElements<Element::kBF16>(df, bytes);           // Lanes(df) values
//   const auto codes = RoundCodes<Element::kE4M3, true>(df, x);       // one code per u32 lane
//   StoreElements<Element::kE4M3, true>(df, x, out);                  // or straight to memory

#include <cstddef>
#include <cstdint>
#include <limits>

#include "assay/numeric/element.h"
#include "hwy/highway.h"

// Included once per target.
#if defined(ASSAY_NUMERIC_ELEMENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_NUMERIC_ELEMENT_INL_H_
#undef ASSAY_NUMERIC_ELEMENT_INL_H_
#else
#define ASSAY_NUMERIC_ELEMENT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Codes travel in u32 lanes beside the f32 lanes they belong to.
template <class DF>
using CodesOf = hn::Vec<hn::RebindToUnsigned<DF>>;

/// Geometry of the types that share the generic conversion.
template <Element kElement>
struct VectorFacts;
template <>
struct VectorFacts<Element::kF16> {
  static constexpr int kBits = 16, kMantissaBits = 10, kBias = 15;
  static constexpr uint32_t kMax = 0x7BFF, kOverflow = 0x7C00;
};
template <>
struct VectorFacts<Element::kE4M3> {
  static constexpr int kBits = 8, kMantissaBits = 3, kBias = 7;
  static constexpr uint32_t kMax = 0x7E, kOverflow = 0x7F, kNaN = 0x7F;
};
template <>
struct VectorFacts<Element::kE5M2> {
  static constexpr int kBits = 8, kMantissaBits = 2, kBias = 15;
  static constexpr uint32_t kMax = 0x7B, kOverflow = 0x7C, kNaN = 0x7E;
};
template <>
struct VectorFacts<Element::kE4M3Fnuz> {
  static constexpr int kBits = 8, kMantissaBits = 3, kBias = 8;
  static constexpr uint32_t kMax = 0x7F, kOverflow = 0x80;
};
template <>
struct VectorFacts<Element::kE5M2Fnuz> {
  static constexpr int kBits = 8, kMantissaBits = 2, kBias = 16;
  static constexpr uint32_t kMax = 0x7F, kOverflow = 0x80;
};
template <>
struct VectorFacts<Element::kE2M1> {
  static constexpr int kBits = 4, kMantissaBits = 1, kBias = 1;
  static constexpr uint32_t kMax = 0x7, kOverflow = 0x7;
};
template <>
struct VectorFacts<Element::kE2M3> {
  static constexpr int kBits = 6, kMantissaBits = 3, kBias = 1;
  static constexpr uint32_t kMax = 0x1F, kOverflow = 0x1F;
};
template <>
struct VectorFacts<Element::kE3M2> {
  static constexpr int kBits = 6, kMantissaBits = 2, kBias = 3;
  static constexpr uint32_t kMax = 0x1F, kOverflow = 0x1F;
};

/// WidenMagnitude of element.h: lanes of magnitude bits, read as finite.
template <int kMantissaBits, int kBias, class DF>
HWY_INLINE hn::Vec<DF> WidenMagnitudes(DF df, CodesOf<DF> magnitude) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const auto normal = hn::Add(hn::ShiftLeft<23 - kMantissaBits>(magnitude),
                              hn::Set(du, static_cast<uint32_t>(127 - kBias) << 23));
  // A subnormal m · 2^(1−bias−M) is (1 + m/2^M) · 2^(1−bias) less its leading 1.
  const uint32_t min_normal = static_cast<uint32_t>(128 - kBias) << 23;
  const auto with_one = hn::Add(normal, hn::Set(du, 1u << 23));
  const auto subnormal =
      hn::Sub(hn::BitCast(df, with_one), hn::BitCast(df, hn::Set(du, min_normal)));
  const auto is_subnormal =
      hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, int32_t{1} << kMantissaBits));
  return hn::IfThenElse(hn::RebindMask(df, is_subnormal), subnormal, hn::BitCast(df, normal));
}

/// RoundMagnitude of element.h, then min(kLimit), so that larger codes are one value.
template <int kMantissaBits, int kBias, uint32_t kLimit, class DF>
HWY_INLINE CodesOf<DF> RoundMagnitudes(DF df, CodesOf<DF> magnitude) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  constexpr int kShift = 23 - kMantissaBits;
  constexpr uint32_t kMinNormal = static_cast<uint32_t>(128 - kBias) << 23;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  constexpr uint32_t kAlmostHalf = (1u << (kShift - 1)) - 1;
  const auto odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(du, 1u));
  // Unsigned wrap-around: below kMinNormal the lane is not used.
  const auto normal =
      hn::ShiftRight<kShift>(hn::Add(hn::Add(magnitude, hn::Set(du, kAlmostHalf - kRebias)), odd));
  const auto magic = hn::Set(df, numeric_internal::PowerOfTwo(1 - kBias - kMantissaBits + 23));
  const auto subnormal =
      hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude), magic)), hn::BitCast(du, magic));
  const auto is_subnormal = hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, int32_t{kMinNormal}));
  const auto code = hn::IfThenElse(hn::RebindMask(du, is_subnormal), subnormal, normal);
  return hn::Min(code, hn::Set(du, kLimit));
}

/// Values of codes in u32 lanes. Requires codes < 2^BitsOf(kElement). Exact.
template <Element kElement, class DF>
HWY_INLINE hn::Vec<DF> WidenCodes(DF df, CodesOf<DF> codes) {
  const hn::RebindToUnsigned<DF> du;
  namespace ni = numeric_internal;
  if constexpr (kElement == Element::kF32) {
    return hn::BitCast(df, codes);
  } else if constexpr (kElement == Element::kBF16) {
    return hn::BitCast(df, hn::ShiftLeft<16>(codes));
  } else if constexpr (kElement == Element::kE8M0) {
    auto bits = hn::ShiftLeft<23>(codes);
    bits = hn::IfThenElse(hn::Eq(codes, hn::Zero(du)), hn::Set(du, 0x00400000u), bits);
    bits = hn::IfThenElse(hn::Eq(codes, hn::Set(du, 0xFFu)), hn::Set(du, 0x7FC00000u), bits);
    return hn::BitCast(df, bits);
  } else if constexpr (kElement == Element::kE5M2) {
    return WidenCodes<Element::kF16>(df, hn::ShiftLeft<8>(codes));
  } else {
    using Facts = VectorFacts<kElement>;
    constexpr uint32_t kSign = 1u << (Facts::kBits - 1);
    const auto magnitude = hn::And(codes, hn::Set(du, kSign - 1));
    const auto sign = hn::ShiftLeft<32 - Facts::kBits>(hn::And(codes, hn::Set(du, kSign)));
    auto bits = hn::BitCast(du, WidenMagnitudes<Facts::kMantissaBits, Facts::kBias>(df, magnitude));
    if constexpr (kElement == Element::kF16) {
      const auto infinity = hn::Set(du, 0x7C00u);
      const auto special = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(du, ni::kF32Infinity));
      bits = hn::IfThenElse(hn::Not(hn::Lt(magnitude, infinity)), special, bits);
      bits = hn::Or(bits,
                    hn::IfThenElseZero(hn::Gt(magnitude, infinity), hn::Set(du, ni::kF32QuietBit)));
    }
    const auto nan = hn::Set(du, ni::kF32Infinity | ni::kF32QuietBit);
    if constexpr (kElement == Element::kE4M3) {
      bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(du, 0x7Fu)), nan, bits);
    }
    if constexpr (kElement == Element::kE4M3Fnuz || kElement == Element::kE5M2Fnuz) {
      return hn::BitCast(
          df, hn::IfThenElse(hn::Eq(codes, hn::Set(du, 0x80u)), nan, hn::Or(bits, sign)));
    }
    return hn::BitCast(df, hn::Or(bits, sign));
  }
}

/// Codes of values, one in each u32 lane: FromFloat, or with kSaturating FromFloatSaturating.
template <Element kElement, bool kSaturating = false, class DF>
HWY_INLINE CodesOf<DF> RoundCodes(DF df, hn::Vec<DF> values) {
  const hn::RebindToUnsigned<DF> du;
  namespace ni = numeric_internal;
  if constexpr (kSaturating && (kElement == Element::kF32 || kElement == Element::kBF16 ||
                                kElement == Element::kF16)) {
    constexpr float kLargest = kElement == Element::kF32    ? std::numeric_limits<float>::max()
                               : kElement == Element::kBF16 ? BF16ToFloat(0x7F7F)
                                                            : F16ToFloat(0x7BFF);
    const auto largest = hn::Set(df, kLargest);
    values = hn::IfThenElse(hn::Gt(values, largest), largest, values);
    values = hn::IfThenElse(hn::Lt(values, hn::Neg(largest)), hn::Neg(largest), values);
    return RoundCodes<kElement, false>(df, values);
  }
  const auto bits = hn::BitCast(du, values);
  const auto magnitude = hn::And(bits, hn::Set(du, ~ni::kF32Sign));
  const hn::RebindToSigned<DF> di;
  const auto is_nan = hn::RebindMask(
      du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, int32_t{ni::kF32Infinity})));
  if constexpr (kElement == Element::kF32) {
    return bits;
  } else if constexpr (kElement == Element::kBF16) {
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd);
    const auto quiet = hn::Or(bits, hn::Set(du, ni::kF32QuietBit));
    return hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
  } else if constexpr (kElement == Element::kE8M0) {
    const auto exponent = hn::ShiftRight<23>(magnitude);
    const auto mantissa = hn::And(magnitude, hn::Set(du, 0x7FFFFFu));
    // 2^−127 itself stays at code 0, the same mantissa on a normal number rounds up.
    const auto zero = hn::Zero(du);
    const auto limit = hn::Add(hn::Set(du, 0x3FFFFFu),
                               hn::IfThenElseZero(hn::Eq(exponent, zero), hn::Set(du, 1u)));
    auto code = hn::Add(exponent, hn::IfThenElseZero(hn::Gt(mantissa, limit), hn::Set(du, 1u)));
    code = hn::Min(code, hn::Set(du, kSaturating ? 0xFEu : 0xFFu));
    const auto not_positive = hn::Or(
        hn::Eq(magnitude, zero), hn::RebindMask(du, hn::Lt(hn::BitCast(di, bits), hn::Zero(di))));
    code = hn::IfThenElse(not_positive, hn::Set(du, 0xFFu), code);
    return hn::IfThenElse(is_nan, hn::Set(du, 0xFFu), code);
  } else {
    using Facts = VectorFacts<kElement>;
    constexpr uint32_t kSign = 1u << (Facts::kBits - 1);
    constexpr uint32_t kLimit = kSaturating ? Facts::kMax : Facts::kOverflow;
    auto code = RoundMagnitudes<Facts::kMantissaBits, Facts::kBias, kLimit>(df, magnitude);
    const auto sign = hn::And(hn::ShiftRight<32 - Facts::kBits>(bits), hn::Set(du, kSign));
    if constexpr (kElement == Element::kE4M3Fnuz || kElement == Element::kE5M2Fnuz) {
      // Neither zero nor the one NaN has a sign; kLimit 0x80 is that NaN.
      const auto zero = hn::Eq(code, hn::Zero(du));
      code = hn::Or(hn::IfThenZeroElse(zero, sign), code);
      return hn::IfThenElse(is_nan, hn::Set(du, 0x80u), code);
    } else if constexpr (Facts::kBits < 8) {
      const auto nan = hn::Xor(sign, hn::Set(du, kSign));
      return hn::IfThenElse(is_nan, nan, hn::Or(sign, code));
    } else if constexpr (kElement == Element::kF16) {
      const auto nan =
          hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3FFu)), hn::Set(du, 0x7E00u));
      return hn::Or(sign, hn::IfThenElse(is_nan, nan, code));
    } else {
      return hn::Or(sign, hn::IfThenElse(is_nan, hn::Set(du, Facts::kNaN), code));
    }
  }
}

// F16C converts with the same rounding and the same NaN policy, in one instruction.
#undef ASSAY_NATIVE_F16
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
#define ASSAY_NATIVE_F16 1
#else
#define ASSAY_NATIVE_F16 0
#endif

/// u32 lanes of Lanes(df) little-endian codes of 8 or 16 bits, at any alignment.
template <size_t kBytes, class DF>
HWY_INLINE CodesOf<DF> LoadCodes(DF /*df*/, const std::byte* bytes) {
  const hn::RebindToUnsigned<DF> du;
  const auto* raw = reinterpret_cast<const uint8_t*>(bytes);
  if constexpr (kBytes == 1) {
    return hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint8_t, DF>(), raw));
  } else if constexpr (kBytes == 2) {
    const hn::Rebind<uint16_t, DF> d16;
    const hn::Repartition<uint8_t, decltype(d16)> d8;
    return hn::PromoteTo(du, hn::BitCast(d16, hn::LoadU(d8, raw)));
  } else {
    static_assert(kBytes == 4);
    return hn::BitCast(du, hn::LoadU(hn::Repartition<uint8_t, DF>(), raw));
  }
}

/// The low kBytes of each u32 lane, little-endian, at any alignment.
/// Requires lanes < 2^(8 · kBytes).
template <size_t kBytes, class DF>
HWY_INLINE void StoreCodes(DF /*df*/, CodesOf<DF> codes, std::byte* bytes) {
  const hn::RebindToSigned<DF> di;
  auto* raw = reinterpret_cast<uint8_t*>(bytes);
  if constexpr (kBytes == 1) {
    const hn::Rebind<uint8_t, DF> d8;
    hn::StoreU(hn::DemoteTo(d8, hn::BitCast(di, codes)), d8, raw);
  } else if constexpr (kBytes == 2) {
    const hn::Rebind<uint16_t, DF> d16;
    const hn::Repartition<uint8_t, decltype(d16)> d8;
    hn::StoreU(hn::BitCast(d8, hn::DemoteTo(d16, hn::BitCast(di, codes))), d8, raw);
  } else {
    static_assert(kBytes == 4);
    const hn::Repartition<uint8_t, DF> d8;
    hn::StoreU(hn::BitCast(d8, codes), d8, raw);
  }
}

template <Element kElement>
inline constexpr size_t kBytesOfElement =
    kElement == Element::kF32                                 ? 4
    : kElement == Element::kBF16 || kElement == Element::kF16 ? 2
                                                              : 1;

/// Loads Lanes(df) elements of 8 bits or more at any alignment (fp4 and fp6: one code per byte) and
/// widens them.
template <Element kElement, class DF>
HWY_INLINE hn::Vec<DF> LoadElements(DF df, const std::byte* bytes) {
#if ASSAY_NATIVE_F16
  if constexpr (kElement == Element::kF16) {
    const hn::Rebind<hwy::float16_t, DF> d16;
    const hn::Repartition<uint8_t, decltype(d16)> d8;
    const auto raw = hn::LoadU(d8, reinterpret_cast<const uint8_t*>(bytes));
    return hn::PromoteTo(df, hn::BitCast(d16, raw));
  }
#endif
  return WidenCodes<kElement>(df, LoadCodes<kBytesOfElement<kElement>>(df, bytes));
}

/// The inverse of LoadElements: rounds as RoundCodes and stores.
template <Element kElement, bool kSaturating = false, class DF>
HWY_INLINE void StoreElements(DF df, hn::Vec<DF> values, std::byte* bytes) {
#if ASSAY_NATIVE_F16
  if constexpr (kElement == Element::kF16 && !kSaturating) {
    const hn::Rebind<hwy::float16_t, DF> d16;
    const hn::Repartition<uint8_t, decltype(d16)> d8;
    hn::StoreU(hn::BitCast(d8, hn::DemoteTo(d16, values)), d8, reinterpret_cast<uint8_t*>(bytes));
    return;
  }
#endif
  const auto codes = RoundCodes<kElement, kSaturating>(df, values);
  StoreCodes<kBytesOfElement<kElement>>(df, codes, bytes);
}

/// Values rounded to bf16 (f16) and widened again, without leaving the registers.
template <Element kElement, class DF>
HWY_INLINE hn::Vec<DF> RoundThrough(DF df, hn::Vec<DF> values) {
#if ASSAY_NATIVE_F16
  if constexpr (kElement == Element::kF16) {
    const hn::Rebind<hwy::float16_t, DF> d16;
    return hn::PromoteTo(df, hn::DemoteTo(d16, values));
  }
#endif
  return WidenCodes<kElement>(df, RoundCodes<kElement>(df, values));
}

}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ASSAY_NUMERIC_ELEMENT_INL_H_

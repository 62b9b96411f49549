#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace assay {

/// The scalar number formats that block formats are built from.
/// Values: docs/formats/element-types.md has ranges, special values and rounding of each.
enum class Element : uint8_t {
  kF32,
  kBF16,
  kF16,
  kE4M3,      ///< OCP e4m3fn: no infinity, NaN 0x7F and 0xFF, max 448
  kE5M2,      ///< OCP e5m2: the upper byte of an f16
  kE4M3Fnuz,  ///< bias 8, no −0, NaN 0x80, max 240
  kE5M2Fnuz,  ///< bias 16, no −0, NaN 0x80, max 57344
  kE8M0,      ///< power-of-two scale 2^(c − 127), NaN 0xFF, no zero, no sign
  kE2M1,      ///< fp4, max 6
  kE2M3,      ///< fp6, max 7.5
  kE3M2,      ///< fp6, max 28
};

/// Bits of one code.
int BitsOf(Element element) noexcept;

/// "f32", "bf16", "f16", "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0", "e2m1", "e2m3", "e3m2".
std::string_view NameOf(Element element) noexcept;

/// Largest finite value.
float MaxOf(Element element) noexcept;

namespace numeric_internal {

inline constexpr uint32_t kF32Sign = 0x80000000u;
inline constexpr uint32_t kF32Infinity = 0x7F800000u;
inline constexpr uint32_t kF32QuietBit = 0x00400000u;

/// 2^exponent. Requires −126 ≤ exponent ≤ 127.
constexpr float PowerOfTwo(int exponent) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

/// Magnitude of a code without sign bit, infinities and NaN read as if they were finite.
template <int kMantissaBits, int kBias>
constexpr float WidenMagnitude(uint32_t code) noexcept {
  if (code >> kMantissaBits == 0) {
    return static_cast<float>(code) * PowerOfTwo(1 - kBias - kMantissaBits);
  }
  return std::bit_cast<float>((code << (23 - kMantissaBits)) +
                              (static_cast<uint32_t>(127 - kBias) << 23));
}

/// Nearest code (ties to even) of an f32 magnitude, exponents beyond the type's range continued
/// upwards: the caller compares with its largest code.
template <int kMantissaBits, int kBias>
constexpr uint32_t RoundMagnitude(uint32_t magnitude_bits) noexcept {
  constexpr int kShift = 23 - kMantissaBits;
  constexpr uint32_t kMinNormal = static_cast<uint32_t>(128 - kBias) << 23;
  if constexpr (kBias < 127) {
    if (magnitude_bits < kMinNormal) {
      // Adding 2^23 smallest subnormals leaves the rounded count of them in the mantissa.
      constexpr float kMagic = PowerOfTwo(1 - kBias - kMantissaBits + 23);
      return std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude_bits) + kMagic) -
             std::bit_cast<uint32_t>(kMagic);
    }
  }
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  constexpr uint32_t kAlmostHalf = (1u << (kShift - 1)) - 1;
  return (magnitude_bits - kRebias + kAlmostHalf + ((magnitude_bits >> kShift) & 1)) >> kShift;
}

constexpr uint32_t BitsOfFloat(float x) noexcept { return std::bit_cast<uint32_t>(x); }
constexpr bool IsNaNBits(uint32_t magnitude_bits) noexcept { return magnitude_bits > kF32Infinity; }

/// Sign in bit `position`.
constexpr uint32_t SignAt(uint32_t bits, int position) noexcept { return bits >> 31 << position; }

constexpr float WithSign(float magnitude, bool negative) noexcept {
  return std::bit_cast<float>(BitsOfFloat(magnitude) | (negative ? kF32Sign : 0u));
}

}  // namespace numeric_internal

/// Exact; NaN bits unchanged.
constexpr float BF16ToFloat(uint16_t code) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
}

/// Nearest even; overflow to infinity. NaN: sign and upper payload kept, quiet bit set.
constexpr uint16_t FloatToBF16(float x) noexcept {
  namespace ni = numeric_internal;
  const uint32_t bits = ni::BitsOfFloat(x);
  if (ni::IsNaNBits(bits & ~ni::kF32Sign)) return static_cast<uint16_t>(bits >> 16 | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16);
}

/// Exact; NaN: sign and payload kept, quiet bit set (as F16C does).
constexpr float F16ToFloat(uint16_t code) noexcept {
  namespace ni = numeric_internal;
  const uint32_t magnitude = code & 0x7FFFu;
  const uint32_t sign = static_cast<uint32_t>(code & 0x8000u) << 16;
  if (magnitude >= 0x7C00u) {
    const uint32_t quiet = magnitude > 0x7C00u ? ni::kF32QuietBit : 0u;
    return std::bit_cast<float>(sign | ni::kF32Infinity | (magnitude & 0x3FFu) << 13 | quiet);
  }
  return ni::WithSign(ni::WidenMagnitude<10, 15>(magnitude), sign != 0);
}

/// Nearest even, subnormals included; 65520 and above to infinity.
/// NaN: sign and payload bits 22..13 kept, quiet bit set.
constexpr uint16_t FloatToF16(float x) noexcept {
  namespace ni = numeric_internal;
  const uint32_t bits = ni::BitsOfFloat(x);
  const uint32_t magnitude = bits & ~ni::kF32Sign;
  const uint32_t sign = ni::SignAt(bits, 15);
  if (ni::IsNaNBits(magnitude)) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  const uint32_t code = ni::RoundMagnitude<10, 15>(magnitude);
  return static_cast<uint16_t>(sign | (code > 0x7C00u ? 0x7C00u : code));
}

/// Exact; 0x7F and 0xFF are NaN.
constexpr float E4M3ToFloat(uint8_t code) noexcept {
  namespace ni = numeric_internal;
  const uint32_t magnitude = code & 0x7Fu;
  const bool negative = (code & 0x80u) != 0;
  if (magnitude == 0x7Fu) {
    return ni::WithSign(std::bit_cast<float>(ni::kF32Infinity | ni::kF32QuietBit), negative);
  }
  return ni::WithSign(ni::WidenMagnitude<3, 7>(magnitude), negative);
}

namespace numeric_internal {

/// One rounding for the signed 8-bit types: overflow (infinity included) and NaN are codes.
template <int kMantissaBits, int kBias, uint32_t kMax>
constexpr uint8_t RoundFp8(float x, uint32_t overflow, uint32_t nan) noexcept {
  const uint32_t bits = BitsOfFloat(x);
  const uint32_t magnitude = bits & ~kF32Sign;
  const uint32_t sign = SignAt(bits, 7);
  if (IsNaNBits(magnitude)) return static_cast<uint8_t>(sign | nan);
  const uint32_t code = RoundMagnitude<kMantissaBits, kBias>(magnitude);
  return static_cast<uint8_t>(sign | (code > kMax ? overflow : code));
}

/// The same for the types without −0, whose only NaN is 0x80.
template <int kMantissaBits, int kBias, bool kSaturate>
constexpr uint8_t RoundFnuz(float x) noexcept {
  const uint32_t bits = BitsOfFloat(x);
  const uint32_t magnitude = bits & ~kF32Sign;
  if (IsNaNBits(magnitude)) return 0x80;
  uint32_t code = RoundMagnitude<kMantissaBits, kBias>(magnitude);
  if (code > 0x7Fu) {
    if (!kSaturate) return 0x80;
    code = 0x7Fu;
  }
  return static_cast<uint8_t>(code == 0 ? 0u : SignAt(bits, 7) | code);
}

template <int kMantissaBits, int kBias>
constexpr float WidenFnuz(uint8_t code) noexcept {
  if (code == 0x80u) return std::bit_cast<float>(kF32Infinity | kF32QuietBit);
  return WithSign(WidenMagnitude<kMantissaBits, kBias>(code & 0x7Fu), (code & 0x80u) != 0);
}

/// fp4 and fp6: always saturating; NaN is the code of −0, and 0 for a NaN with the sign bit set.
template <int kBits, int kMantissaBits, int kBias>
constexpr uint8_t RoundSmall(float x) noexcept {
  constexpr int kSignBit = kBits - 1;
  constexpr uint32_t kMax = (1u << kSignBit) - 1;
  const uint32_t bits = BitsOfFloat(x);
  const uint32_t magnitude = bits & ~kF32Sign;
  if (IsNaNBits(magnitude)) return static_cast<uint8_t>(SignAt(~bits, kSignBit));
  const uint32_t code = RoundMagnitude<kMantissaBits, kBias>(magnitude);
  return static_cast<uint8_t>(SignAt(bits, kSignBit) | (code > kMax ? kMax : code));
}

template <int kBits, int kMantissaBits, int kBias>
constexpr float WidenSmall(uint8_t code) noexcept {
  constexpr uint32_t kSign = 1u << (kBits - 1);
  return WithSign(WidenMagnitude<kMantissaBits, kBias>(code & (kSign - 1)), (code & kSign) != 0);
}

}  // namespace numeric_internal

/// Nearest even; above 464 and infinity to NaN; NaN to sign | 0x7F.
constexpr uint8_t FloatToE4M3(float x) noexcept {
  return numeric_internal::RoundFp8<3, 7, 0x7E>(x, 0x7F, 0x7F);
}

/// Nearest even; above 448 and infinity to ±448; NaN to sign | 0x7F.
constexpr uint8_t FloatToE4M3Saturating(float x) noexcept {
  return numeric_internal::RoundFp8<3, 7, 0x7E>(x, 0x7E, 0x7F);
}

/// MLX's to_fp8: as FloatToE4M3Saturating, and NaN becomes ±448 too.
constexpr uint8_t FloatToE4M3AsMlx(float x) noexcept {
  return numeric_internal::RoundFp8<3, 7, 0x7E>(x, 0x7E, 0x7E);
}

/// Exact; infinities and NaN as in f16, NaN quiet.
constexpr float E5M2ToFloat(uint8_t code) noexcept {
  return F16ToFloat(static_cast<uint16_t>(code << 8));
}

/// Nearest even; 61440 and above to infinity; NaN to sign | 0x7E.
constexpr uint8_t FloatToE5M2(float x) noexcept {
  return numeric_internal::RoundFp8<2, 15, 0x7B>(x, 0x7C, 0x7E);
}

/// Nearest even; above 57344 and infinity to ±57344; NaN to sign | 0x7E.
constexpr uint8_t FloatToE5M2Saturating(float x) noexcept {
  return numeric_internal::RoundFp8<2, 15, 0x7B>(x, 0x7B, 0x7E);
}

constexpr float E4M3FnuzToFloat(uint8_t code) noexcept {
  return numeric_internal::WidenFnuz<3, 8>(code);
}

/// Nearest even; 248 and above, infinity and NaN to 0x80. Results that round to zero are +0.
constexpr uint8_t FloatToE4M3Fnuz(float x) noexcept {
  return numeric_internal::RoundFnuz<3, 8, false>(x);
}

/// As FloatToE4M3Fnuz, overflow and infinity to ±240.
constexpr uint8_t FloatToE4M3FnuzSaturating(float x) noexcept {
  return numeric_internal::RoundFnuz<3, 8, true>(x);
}

constexpr float E5M2FnuzToFloat(uint8_t code) noexcept {
  return numeric_internal::WidenFnuz<2, 16>(code);
}

/// Nearest even; 61440 and above, infinity and NaN to 0x80. Results that round to zero are +0.
constexpr uint8_t FloatToE5M2Fnuz(float x) noexcept {
  return numeric_internal::RoundFnuz<2, 16, false>(x);
}

/// As FloatToE5M2Fnuz, overflow and infinity to ±57344.
constexpr uint8_t FloatToE5M2FnuzSaturating(float x) noexcept {
  return numeric_internal::RoundFnuz<2, 16, true>(x);
}

/// 2^(code − 127), exact (code 0 is an f32 subnormal); 0xFF is NaN.
constexpr float E8M0ToFloat(uint8_t code) noexcept {
  if (code == 0) return std::bit_cast<float>(0x00400000u);
  if (code == 0xFF) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}

/// torch's cast: the sign is ignored; 1.5 · 2^n and above round up to 2^(n+1); up to 2^−127
/// (zero included) to code 0, other subnormals to code 1; infinity, NaN and 1.5 · 2^127 to 0xFF.
constexpr uint8_t FloatToE8M0AsTorch(float x) noexcept {
  const uint32_t magnitude = numeric_internal::BitsOfFloat(x) & ~numeric_internal::kF32Sign;
  const uint32_t exponent = magnitude >> 23;
  const uint32_t mantissa = magnitude & 0x7FFFFFu;
  if (exponent == 0xFF) return 0xFF;
  const bool up = exponent == 0 ? mantissa > 0x400000u : mantissa >= 0x400000u;
  return static_cast<uint8_t>(exponent + (up ? 1 : 0));
}

/// As torch's cast for positive values; zero (both signs) and negative values to NaN 0xFF.
/// A format that chooses scales by floor or ceiling of log2 has its own rule: this is the cast.
constexpr uint8_t FloatToE8M0(float x) noexcept {
  return x > 0 ? FloatToE8M0AsTorch(x) : uint8_t{0xFF};
}

/// As FloatToE8M0, but overflow and +infinity to 254 (2^127).
constexpr uint8_t FloatToE8M0Saturating(float x) noexcept {
  if (!(x > 0)) return 0xFF;
  const uint8_t code = FloatToE8M0AsTorch(x);
  return code == 0xFF ? uint8_t{0xFE} : code;
}

constexpr float E2M1ToFloat(uint8_t code) noexcept {
  return numeric_internal::WidenSmall<4, 1, 1>(code);
}

/// Nearest even, saturating at ±6 (infinity too), sign kept on zero. NaN: 0x8, negative NaN: 0.
constexpr uint8_t FloatToE2M1(float x) noexcept { return numeric_internal::RoundSmall<4, 1, 1>(x); }

constexpr float E2M3ToFloat(uint8_t code) noexcept {
  return numeric_internal::WidenSmall<6, 3, 1>(code);
}

/// Nearest even, saturating at ±7.5 (infinity too), sign kept on zero. NaN: 0x20, negative NaN: 0.
constexpr uint8_t FloatToE2M3(float x) noexcept { return numeric_internal::RoundSmall<6, 3, 1>(x); }

constexpr float E3M2ToFloat(uint8_t code) noexcept {
  return numeric_internal::WidenSmall<6, 2, 3>(code);
}

/// Nearest even, saturating at ±28 (infinity too), sign kept on zero. NaN: 0x20, negative NaN: 0.
constexpr uint8_t FloatToE3M2(float x) noexcept { return numeric_internal::RoundSmall<6, 2, 3>(x); }

/// x rounded once to bf16 (f16) and widened again.
constexpr float RoundToBF16(float x) noexcept { return BF16ToFloat(FloatToBF16(x)); }
constexpr float RoundToF16(float x) noexcept { return F16ToFloat(FloatToF16(x)); }

/// Value of a code; bits above BitsOf(element) are ignored.
float ToFloat(Element element, uint32_t code) noexcept;

/// Nearest code by the type's non-saturating conversion (fp4 and fp6 have only the saturating one).
uint32_t FromFloat(Element element, float x) noexcept;

/// Nearest code; overflow and infinity become the largest finite code, NaN as in FromFloat.
uint32_t FromFloatSaturating(Element element, float x) noexcept;

}  // namespace assay

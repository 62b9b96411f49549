#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "assay/formats/affine_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/formats/affine_encode.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "assay/formats/affine_packing-inl.h"
#include "assay/numeric/element-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {
namespace {

using affine_internal::Geometry;

/// Groups that pass through the steps together, so that the scales are computed in full vectors.
/// Their codes and values stay in the first cache.
constexpr size_t kGroupsPerBlock = 32;
constexpr size_t kMaxGroupSize = 128;

/// What the steps hand to each other, one entry per group of a block.
struct Block {
  std::array<float, kGroupsPerBlock> low{};
  std::array<float, kGroupsPerBlock> high{};
  std::array<float, kGroupsPerBlock> scale{};
  std::array<float, kGroupsPerBlock> bias{};
  std::array<float, kGroupsPerBlock> divisor{};
  std::array<float, kGroupsPerBlock> reciprocal_below{};
  std::array<float, kGroupsPerBlock> reciprocal_above{};
  alignas(64) std::array<uint8_t, kGroupsPerBlock * kMaxGroupSize + kPackingSlack> codes{};
  alignas(64) std::array<uint8_t, kGroupsPerBlock * kMaxGroupSize + kPackingSlack> packed{};
};

/// The largest signed, largest unsigned and smallest unsigned of a group's sign-magnitude codes.
template <typename TU>
struct Extremes {
  TU signed_max;
  TU unsigned_max;
  TU unsigned_min;
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSE4
/// Smallest of all 16-bit lanes, by the instruction that finds it in 8 of them.
template <class D>
HWY_INLINE uint16_t MinOf16(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 8) {
    const hn::Half<D> dh;
    return MinOf16(dh, hn::Min(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)));
  } else {
    return static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_minpos_epu16(v.raw)));
  }
}
#endif

template <class D, class DI, typename TU>
HWY_INLINE Extremes<TU> Reduce(D d, DI di, hn::Vec<DI> signed_max, hn::Vec<D> unsigned_max,
                               hn::Vec<D> unsigned_min, TU /*tag*/) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSE4
  if constexpr (sizeof(TU) == 2) {
    const auto flip_signed = hn::Set(d, TU{0x7FFF});
    const auto flip = hn::Set(d, TU{0xFFFF});
    return {static_cast<TU>(MinOf16(d, hn::Xor(hn::BitCast(d, signed_max), flip_signed)) ^ 0x7FFF),
            static_cast<TU>(MinOf16(d, hn::Xor(unsigned_max, flip)) ^ 0xFFFF),
            MinOf16(d, unsigned_min)};
  }
#endif
  return {static_cast<TU>(hn::GetLane(hn::MaxOfLanes(di, signed_max))),
          hn::GetLane(hn::MaxOfLanes(d, unsigned_max)),
          hn::GetLane(hn::MinOfLanes(d, unsigned_min))};
}

template <Element kElement>
HWY_INLINE float WidenOne(uint32_t code) {
  if constexpr (kElement == Element::kBF16) return BF16ToFloat(static_cast<uint16_t>(code));
  if constexpr (kElement == Element::kF16) return F16ToFloat(static_cast<uint16_t>(code));
  if constexpr (kElement == Element::kF32) return std::bit_cast<float>(code);
}

/// Smallest and largest value of each group. Returns the first group with a NaN or infinity, or
/// num_groups.
/// The codes are sign and magnitude. Read as integers, signed or not, they need no mapping: the
/// largest value is the largest signed code if any is positive, else the smallest unsigned one;
/// the smallest value is the largest unsigned code if any is negative, else the smallest. The
/// codes of NaN and infinity lie beyond all others of their sign.
template <Element kElement>
size_t FindRanges(const std::byte* values, size_t num_groups, size_t group_size, Block& block) {
  using TU = std::conditional_t<kElement == Element::kF32, uint32_t, uint16_t>;
  constexpr TU kInfinity = kElement == Element::kF32    ? static_cast<TU>(0x7F800000)
                           : kElement == Element::kBF16 ? TU{0x7F80}
                                                        : TU{0x7C00};
  constexpr TU kSign = static_cast<TU>(TU{1} << (8 * sizeof(TU) - 1));
  const hn::CappedTag<TU, 32> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Repartition<uint8_t, decltype(d)> d8;
  const size_t lanes = hn::Lanes(d);
  const auto* from = reinterpret_cast<const uint8_t*>(values);
  for (size_t g = 0; g < num_groups; ++g) {
    auto unsigned_max = hn::BitCast(d, hn::LoadU(d8, from));
    auto unsigned_min = unsigned_max;
    auto signed_max = hn::BitCast(di, unsigned_max);
    for (size_t i = lanes; i < group_size; i += lanes) {
      const auto v = hn::BitCast(d, hn::LoadU(d8, from + i * sizeof(TU)));
      unsigned_max = hn::Max(unsigned_max, v);
      unsigned_min = hn::Min(unsigned_min, v);
      signed_max = hn::Max(signed_max, hn::BitCast(di, v));
    }
    from += group_size * sizeof(TU);
    const auto found = Reduce(d, di, signed_max, unsigned_max, unsigned_min, TU{});
    const bool any_positive = found.signed_max < kSign;
    const bool any_negative = found.unsigned_max >= kSign;
    if ((any_positive && found.signed_max >= kInfinity) ||
        (any_negative && found.unsigned_max >= (kSign | kInfinity))) {
      return g;
    }
    block.high[g] = WidenOne<kElement>(any_positive ? found.signed_max : found.unsigned_min);
    block.low[g] = WidenOne<kElement>(any_negative ? found.unsigned_max : found.unsigned_min);
  }
  return num_groups;
}

/// Nearest integer, ties to even, of any float. (hn::Round is not exact on every target.)
template <class DF>
HWY_INLINE hn::Vec<DF> RoundToInteger(DF df, hn::Vec<DF> x) {
  const auto all_integers = hn::Set(df, 8388608.0F);  // 2^23: from here on there are no fractions
  const auto magnitude = hn::Abs(x);
  const auto rounded = hn::Sub(hn::Add(magnitude, all_integers), all_integers);
  return hn::CopySign(hn::IfThenElse(hn::Lt(magnitude, all_integers), rounded, x), x);
}

/// Scale and bias of each group from its range. Returns the first group whose range exceeds f32,
/// or num_groups.
size_t ChooseScales(float top, size_t num_groups, Block& block) {
  const hn::CappedTag<float, kGroupsPerBlock> df;
  const size_t lanes = hn::Lanes(df);
  const auto epsilon = hn::Set(df, 1e-7F);
  const auto zero = hn::Zero(df);
  for (size_t g = 0; g < num_groups; g += lanes) {
    const auto low = hn::LoadU(df, block.low.data() + g);
    const auto high = hn::LoadU(df, block.high.data() + g);
    const auto range = hn::Sub(high, low);
    const auto overflows = hn::Gt(range, hn::Set(df, std::numeric_limits<float>::max()));
    if (HWY_UNLIKELY(!hn::AllFalse(df, overflows))) {
      const auto first = g + static_cast<size_t>(hn::FindFirstTrue(df, overflows));
      if (first < num_groups) return first;
    }
    auto scale = hn::Div(range, hn::Set(df, top));
    scale = hn::IfThenElse(hn::Lt(scale, epsilon), epsilon, scale);
    const auto low_is_edge = hn::Gt(hn::Abs(low), hn::Abs(high));
    scale = hn::IfThenElse(low_is_edge, scale, hn::Neg(scale));
    const auto edge = hn::IfThenElse(low_is_edge, low, high);
    const auto steps = RoundToInteger(df, hn::Div(edge, scale));
    const auto some_steps = hn::Ne(steps, zero);
    scale = hn::IfThenElse(some_steps, hn::Div(edge, steps), scale);
    hn::StoreU(scale, df, block.scale.data() + g);
    hn::StoreU(hn::IfThenElseZero(some_steps, edge), df, block.bias.data() + g);
    // A constant group beyond 3.4e31: every difference is 0 and so is every code.
    const auto vanished = hn::Eq(scale, zero);
    const auto divisor = hn::IfThenElse(vanished, hn::Set(df, 1.0F), scale);
    hn::StoreU(divisor, df, block.divisor.data() + g);
    // Reciprocals of larger divisors are subnormal, so less exact than ChooseCodes relies on.
    const auto reciprocal = hn::Div(hn::Set(df, 1.0F), divisor);
    const auto huge = hn::Gt(hn::Abs(divisor), hn::Set(df, 0x1p120F));
    const auto below = hn::Mul(reciprocal, hn::Set(df, 1.0F - 0x1p-21F));
    const auto above = hn::Mul(reciprocal, hn::Set(df, 1.0F + 0x1p-21F));
    hn::StoreU(hn::IfThenZeroElse(huge, below), df, block.reciprocal_below.data() + g);
    hn::StoreU(hn::IfThenElse(huge, hn::Inf(df), above), df, block.reciprocal_above.data() + g);
  }
  return num_groups;
}

/// 2 · Lanes(df) consecutive values, those with even and those with odd index.
template <Element kElement, class DF>
HWY_INLINE void LoadEvenOdd(DF df, const std::byte* from, hn::Vec<DF>& even, hn::Vec<DF>& odd) {
  if constexpr (kElement == Element::kBF16) {
    const hn::RebindToUnsigned<DF> du;
    const hn::Repartition<uint8_t, DF> d8;
    const auto pairs = hn::BitCast(du, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(from)));
    even = hn::BitCast(df, hn::ShiftLeft<16>(pairs));
    odd = hn::BitCast(df, hn::And(pairs, hn::Set(du, 0xFFFF0000U)));
  } else {
    const auto first = LoadElements<kElement>(df, from);
    const auto second =
        LoadElements<kElement>(df, from + hn::Lanes(df) * kBytesOfElement<kElement>);
    even = hn::ConcatEven(df, second, first);
    odd = hn::ConcatOdd(df, second, first);
  }
}

/// Lanes whose low 16 bits are codes, even and odd, to one code per byte.
template <class D16, class VU>
HWY_INLINE void StoreCodeBytes(D16 d16, VU even, VU odd, hn::Vec<D16> limit, uint8_t* to) {
  const hn::RebindToSigned<D16> di16;
  const hn::Rebind<uint8_t, D16> d8;
  const auto high = hn::BitCast(d16, hn::ShiftLeft<16>(odd));
  const auto both = hn::Min(hn::OddEven(high, hn::BitCast(d16, even)), limit);
  hn::StoreU(hn::DemoteTo(d8, hn::BitCast(di16, both)), d8, to);
}

/// One code per byte: rint((value − bias) / scale), at most `top`.
/// Why no division: q lies between the products with reciprocals that are 2^−21 too small and too
/// large. (1 / scale, its factor, the product and q itself each err by at most 2^−24.) Where both
/// round to the same integer, so does q; a group in which some do not is divided.
template <Element kElement>
void ChooseCodes(const std::byte* values, size_t num_groups, size_t group_size, uint32_t top,
                 const Block& block, uint8_t* HWY_RESTRICT codes) {
  const hn::CappedTag<float, 16> df;
  using VF = hn::Vec<decltype(df)>;
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::Repartition<uint16_t, decltype(df)> d16;
  const size_t step = 2 * hn::Lanes(df);
  const size_t step_bytes = step * kBytesOfElement<kElement>;
  // Adding it rounds to an integer, ties to even, which is then in the low bits.
  const auto magic = hn::Set(df, 12582912.0F);  // 1.5 · 2^23
  const auto limit = hn::Set(d16, static_cast<uint16_t>(top));
  VF even;
  VF odd;
  for (size_t g = 0; g < num_groups; ++g) {
    const auto bias = hn::Set(df, block.bias[g]);
    const auto below = hn::Set(df, block.reciprocal_below[g]);
    const auto above = hn::Set(df, block.reciprocal_above[g]);
    auto differences = hn::Zero(du);
    for (size_t i = 0; i < group_size; i += step) {
      LoadEvenOdd<kElement>(df, values + i / step * step_bytes, even, odd);
      even = hn::Sub(even, bias);
      odd = hn::Sub(odd, bias);
      const auto even_code = hn::BitCast(du, hn::MulAdd(even, below, magic));
      const auto odd_code = hn::BitCast(du, hn::MulAdd(odd, below, magic));
      const auto even_above = hn::BitCast(du, hn::MulAdd(even, above, magic));
      const auto odd_above = hn::BitCast(du, hn::MulAdd(odd, above, magic));
      differences = hn::Or(differences, hn::Xor(even_code, even_above));
      differences = hn::Or(differences, hn::Xor(odd_code, odd_above));
      StoreCodeBytes(d16, even_code, odd_code, limit, codes + i);
    }
    if (HWY_UNLIKELY(!hn::AllTrue(du, hn::Eq(differences, hn::Zero(du))))) {
      const auto divisor = hn::Set(df, block.divisor[g]);
      for (size_t i = 0; i < group_size; i += step) {
        LoadEvenOdd<kElement>(df, values + i / step * step_bytes, even, odd);
        even = hn::Add(hn::Div(hn::Sub(even, bias), divisor), magic);
        odd = hn::Add(hn::Div(hn::Sub(odd, bias), divisor), magic);
        StoreCodeBytes(d16, hn::BitCast(du, even), hn::BitCast(du, odd), limit, codes + i);
      }
    }
    values += group_size * kBytesOfElement<kElement>;
    codes += group_size;
  }
}

template <Element kElement>
void StoreParameters(const std::array<float, kGroupsPerBlock>& from, size_t num_groups,
                     std::byte* to) {
  std::array<std::byte, kGroupsPerBlock * sizeof(float)> rounded;
  const hn::CappedTag<float, kGroupsPerBlock> df;
  for (size_t g = 0; g < num_groups; g += hn::Lanes(df)) {
    StoreElements<kElement>(df, hn::LoadU(df, from.data() + g),
                            rounded.data() + g * kBytesOfElement<kElement>);
  }
  std::memcpy(to, rounded.data(), num_groups * kBytesOfElement<kElement>);
}

void Pack(int bits, const uint8_t* codes, size_t num_codes, uint8_t* out) {
  switch (bits) {
    case 2:
      return PackCodes<2>(codes, num_codes, out);
    case 3:
      return PackCodes<3>(codes, num_codes, out);
    case 4:
      return PackCodes<4>(codes, num_codes, out);
    case 5:
      return PackCodes<5>(codes, num_codes, out);
    default:
      return PackCodes<6>(codes, num_codes, out);
  }
}

template <Element kElement>
int64_t Encode(const Geometry& geometry, const std::byte* values, int64_t num_groups,
               std::byte* codes, std::byte* scales, std::byte* biases) {
  Block block;
  const auto group_size = static_cast<size_t>(geometry.group_size);
  const auto code_bytes = static_cast<size_t>(geometry.CodeBytesPerGroup());
  const uint32_t top = (1U << geometry.bits) - 1;
  const auto total = static_cast<size_t>(num_groups);
  for (size_t first = 0; first < total; first += kGroupsPerBlock) {
    const size_t wanted = std::min(kGroupsPerBlock, total - first);
    const std::byte* from = values + first * group_size * kBytesOfElement<kElement>;
    const size_t finite = FindRanges<kElement>(from, wanted, group_size, block);
    const size_t good = ChooseScales(static_cast<float>(top), finite, block);
    if (good < wanted) return static_cast<int64_t>(first + good);
    StoreParameters<kElement>(block.scale, good, scales + first * kBytesOfElement<kElement>);
    StoreParameters<kElement>(block.bias, good, biases + first * kBytesOfElement<kElement>);
    auto* out = reinterpret_cast<uint8_t*>(codes) + first * code_bytes;
    if (geometry.bits == 8) {
      ChooseCodes<kElement>(from, good, group_size, top, block, out);
    } else {
      ChooseCodes<kElement>(from, good, group_size, top, block, block.codes.data());
      Pack(geometry.bits, block.codes.data(), good * group_size, block.packed.data());
      std::memcpy(out, block.packed.data(), good * code_bytes);
    }
  }
  return num_groups;
}

}  // namespace

int64_t EncodeGroups(const Geometry& geometry, const std::byte* values, int64_t num_groups,
                     std::byte* codes, std::byte* scales, std::byte* biases) {
  if (geometry.dtype == DType::kBF16) {
    return Encode<Element::kBF16>(geometry, values, num_groups, codes, scales, biases);
  }
  if (geometry.dtype == DType::kF16) {
    return Encode<Element::kF16>(geometry, values, num_groups, codes, scales, biases);
  }
  return Encode<Element::kF32>(geometry, values, num_groups, codes, scales, biases);
}

}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay::affine_internal {
namespace {
HWY_EXPORT(EncodeGroups);
}  // namespace

int64_t EncodeGroups(const Geometry& geometry, const std::byte* values, int64_t num_groups,
                     std::byte* codes, std::byte* scales, std::byte* biases) noexcept {
  return HWY_DYNAMIC_DISPATCH(EncodeGroups)(geometry, values, num_groups, codes, scales, biases);
}

}  // namespace assay::affine_internal
#endif  // HWY_ONCE

#include <algorithm>
#include <array>
#include <cstring>

#include "assay/formats/affine_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/formats/affine_decode.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "assay/formats/affine_packing-inl.h"
#include "assay/numeric/element-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {
namespace {

using affine_internal::Geometry;

constexpr size_t kGroupsPerBlock = 32;
constexpr size_t kMaxGroupSize = 128;
constexpr size_t kMaxCodes = kGroupsPerBlock * kMaxGroupSize;

/// Scales and biases of a block of groups, widened, and their codes, one per byte.
struct Block {
  alignas(64) std::array<float, kGroupsPerBlock> scale{};
  alignas(64) std::array<float, kGroupsPerBlock> bias{};
  alignas(64) std::array<uint8_t, kMaxCodes + kPackingSlack> packed;
  alignas(64) std::array<uint8_t, kMaxCodes + kPackingSlack> codes;
};

template <Element kElement>
void WidenParameters(const std::byte* from, size_t num_groups,
                     std::array<float, kGroupsPerBlock>& to) {
  const hn::CappedTag<float, kGroupsPerBlock> df;
  std::array<std::byte, kGroupsPerBlock * sizeof(float)> copy{};
  std::memcpy(copy.data(), from, num_groups * kBytesOfElement<kElement>);
  for (size_t g = 0; g < num_groups; g += hn::Lanes(df)) {
    hn::StoreU(LoadElements<kElement>(df, copy.data() + g * kBytesOfElement<kElement>), df,
               to.data() + g);
  }
}

/// Rounds to kElement, in f32. Requires x that is not NaN.
template <Element kElement, class DF>
HWY_INLINE hn::Vec<DF> RoundStep(DF df, hn::Vec<DF> x) {
  if constexpr (kElement == Element::kF32) {
    return x;
  } else if constexpr (kElement == Element::kBF16) {
    const hn::RebindToUnsigned<DF> du;
    const auto bits = hn::BitCast(du, x);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFU)), odd);
    return hn::BitCast(df, hn::And(rounded, hn::Set(du, 0xFFFF0000U)));
  } else {
    return RoundThrough<kElement>(df, x);
  }
}

/// code · scale + bias, each operation rounded to f32 and then to kStep.
template <Element kStep, class DF>
HWY_INLINE hn::Vec<DF> ValueOf(DF df, hn::Vec<DF> code, hn::Vec<DF> scale, hn::Vec<DF> bias) {
  return RoundStep<kStep>(df, hn::Add(RoundStep<kStep>(df, hn::Mul(code, scale)), bias));
}

/// The codes of bf16 or f16. Requires x that is not NaN.
template <Element kElement, class DF>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, DF>> RoundToWords(DF df, hn::Vec<DF> x) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
#if ASSAY_NATIVE_F16
  if constexpr (kElement == Element::kF16) {
    return hn::BitCast(d16, hn::DemoteTo(hn::Rebind<hwy::float16_t, DF>(), x));
  }
#endif
  if constexpr (kElement == Element::kBF16) {
    const auto bits = hn::BitCast(du, RoundStep<Element::kBF16>(df, x));
    return hn::DemoteTo(d16, hn::BitCast(di, hn::ShiftRight<16>(bits)));
  } else {
    return hn::DemoteTo(d16, hn::BitCast(di, RoundCodes<kElement>(df, x)));
  }
}

template <Element kElement, class DF>
HWY_INLINE void StoreValues(DF df, hn::Vec<DF> x, std::byte* to) {
  auto* bytes = reinterpret_cast<uint8_t*>(to);
  if constexpr (kElement == Element::kF32) {
    const hn::Repartition<uint8_t, DF> d8;
    hn::StoreU(hn::BitCast(d8, x), d8, bytes);
  } else {
    const hn::Repartition<uint8_t, hn::Rebind<uint16_t, DF>> d8;
    hn::StoreU(hn::BitCast(d8, RoundToWords<kElement>(df, x)), d8, bytes);
  }
}

template <Element kStep, Element kOut>
void Compute(const Block& block, size_t num_groups, size_t group_size, std::byte* out) {
  const hn::CappedTag<float, 32> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<uint8_t, decltype(df)> d8;
  const size_t lanes = hn::Lanes(df);
  const uint8_t* codes = block.codes.data();
  for (size_t g = 0; g < num_groups; ++g) {
    const auto scale = hn::Set(df, block.scale[g]);
    const auto bias = hn::Set(df, block.bias[g]);
    for (size_t i = 0; i < group_size; i += lanes) {
      const auto code = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, codes)));
      StoreValues<kOut>(df, ValueOf<kStep>(df, code, scale, bias), out);
      codes += lanes;
      out += lanes * kBytesOfElement<kOut>;
    }
  }
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
constexpr size_t kTableSize = 32;
#else
constexpr size_t kTableSize = 16;
#endif

/// What codes first, first + 1, … decode to: as many as fill a vector of f32.
template <Element kOut, class DF>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, DF>> Words(DF df, size_t first, hn::Vec<DF> scale,
                                                   hn::Vec<DF> bias) {
  const hn::RebindToSigned<DF> di;
  const auto codes = hn::ConvertTo(df, hn::Iota(di, static_cast<int32_t>(first)));
  return RoundToWords<kOut>(df, ValueOf<kOut>(df, codes, scale, bias));
}

/// For few codes: computes what each code decodes to once per group, then looks codes up.
/// Requires num_codes ≤ kTableSize.
template <Element kOut>
void LookUp(const Block& block, size_t num_groups, size_t group_size, size_t num_codes,
            std::byte* out) {
  const hn::CappedTag<float, 16> df;
  const uint8_t* codes = block.codes.data();
  auto* to = reinterpret_cast<uint8_t*>(out);
  for (size_t g = 0; g < num_groups; ++g) {
    const auto scale = hn::Set(df, block.scale[g]);
    const auto bias = hn::Set(df, block.bias[g]);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    const hn::Full512<uint16_t> d16;
    const hn::Repartition<uint8_t, decltype(d16)> d_out;
    const auto first = Words<kOut>(df, 0, scale, bias);
    const auto second = num_codes > 16 ? Words<kOut>(df, 16, scale, bias) : first;
    const auto table = hn::Combine(d16, second, first);
    for (size_t i = 0; i < group_size; i += 32, codes += 32, to += 64) {
      const auto index = hn::PromoteTo(d16, hn::LoadU(hn::Full256<uint8_t>(), codes));
      const hn::Vec<decltype(d16)> found{_mm512_permutexvar_epi16(index.raw, table.raw)};
      hn::StoreU(hn::BitCast(d_out, found), d_out, to);
    }
#else
    const hn::CappedTag<uint8_t, 16> d8;
    const hn::Repartition<uint16_t, decltype(d8)> d16;
    alignas(64) std::array<uint16_t, kTableSize> table;
    const hn::Rebind<uint16_t, decltype(df)> d_words;
    for (size_t code = 0; code < num_codes; code += hn::Lanes(df)) {
      hn::StoreU(Words<kOut>(df, code, scale, bias), d_words, table.data() + code);
    }
    const auto first = hn::BitCast(d8, hn::Load(d16, table.data()));
    const auto second = hn::BitCast(d8, hn::Load(d16, table.data() + 8));
    const auto low_bytes = hn::ConcatEven(d8, second, first);
    const auto high_bytes = hn::ConcatOdd(d8, second, first);
    for (size_t i = 0; i < group_size; i += 16, codes += 16, to += 32) {
      const auto index = hn::LoadU(d8, codes);
      const auto low = hn::TableLookupBytes(low_bytes, index);
      const auto high = hn::TableLookupBytes(high_bytes, index);
      hn::StoreU(hn::InterleaveLower(d8, low, high), d8, to);
      hn::StoreU(hn::InterleaveUpper(d8, low, high), d8, to + 16);
    }
#endif
  }
}

template <Element kStep>
void DecodeBlock(const Block& block, size_t num_groups, size_t group_size, int bits,
                 DType out_dtype, std::byte* out) {
  const size_t num_codes = size_t{1} << bits;
  switch (out_dtype) {
    case DType::kBF16:
      if (kStep == Element::kBF16 && num_codes <= kTableSize) {
        return LookUp<Element::kBF16>(block, num_groups, group_size, num_codes, out);
      }
      return Compute<kStep, Element::kBF16>(block, num_groups, group_size, out);
    case DType::kF16:
      if (kStep == Element::kF16 && num_codes <= kTableSize) {
        return LookUp<Element::kF16>(block, num_groups, group_size, num_codes, out);
      }
      return Compute<kStep, Element::kF16>(block, num_groups, group_size, out);
    default:
      return Compute<kStep, Element::kF32>(block, num_groups, group_size, out);
  }
}

void Unpack(int bits, const uint8_t* packed, size_t num_codes, uint8_t* codes) {
  switch (bits) {
    case 2:
      return UnpackCodes<2>(packed, num_codes, codes);
    case 3:
      return UnpackCodes<3>(packed, num_codes, codes);
    case 4:
      return UnpackCodes<4>(packed, num_codes, codes);
    case 5:
      return UnpackCodes<5>(packed, num_codes, codes);
    case 6:
      return UnpackCodes<6>(packed, num_codes, codes);
    default:
      std::memcpy(codes, packed, num_codes);
  }
}

bool AllFinite(const std::array<float, kGroupsPerBlock>& values) {
  const hn::CappedTag<float, kGroupsPerBlock> df;
  const hn::RebindToSigned<decltype(df)> di;
  const auto exponent = hn::Set(di, 0x7F800000);
  auto largest = hn::Zero(di);
  for (size_t g = 0; g < kGroupsPerBlock; g += hn::Lanes(df)) {
    const auto bits = hn::BitCast(di, hn::LoadU(df, values.data() + g));
    largest = hn::Max(largest, hn::And(bits, exponent));
  }
  return hn::AllFalse(di, hn::Eq(largest, exponent));
}

template <Element kElement>
void Decode(const Geometry& geometry, const std::byte* codes, const std::byte* scales,
            const std::byte* biases, int64_t num_groups, DecodeRounding rounding, DType out_dtype,
            std::byte* out) {
  Block block;
  const auto group_size = static_cast<size_t>(geometry.group_size);
  const auto code_bytes = static_cast<size_t>(geometry.CodeBytesPerGroup());
  const size_t out_bytes = group_size * (out_dtype == DType::kF32 ? 4 : 2);
  const auto total = static_cast<size_t>(num_groups);
  for (size_t first = 0; first < total; first += kGroupsPerBlock) {
    const size_t wanted = std::min(kGroupsPerBlock, total - first);
    const std::byte* block_codes = codes + first * code_bytes;
    const std::byte* block_scales = scales + first * kBytesOfElement<kElement>;
    const std::byte* block_biases = biases + first * kBytesOfElement<kElement>;
    std::byte* to = out + first * out_bytes;
    WidenParameters<kElement>(block_scales, wanted, block.scale);
    WidenParameters<kElement>(block_biases, wanted, block.bias);
    if (HWY_UNLIKELY(!AllFinite(block.scale) || !AllFinite(block.bias))) {
      affine_internal::DecodeGroupsScalar(geometry, block_codes, block_scales, block_biases,
                                          static_cast<int64_t>(wanted), rounding, out_dtype, to);
      continue;
    }
    // UnpackCodes reads past the end: only the last block could leave the plane.
    const auto* packed = reinterpret_cast<const uint8_t*>(block_codes);
    if ((total - first - wanted) * code_bytes < kPackingSlack) {
      std::memcpy(block.packed.data(), packed, wanted * code_bytes);
      packed = block.packed.data();
    }
    Unpack(geometry.bits, packed, wanted * group_size, block.codes.data());
    if (rounding == DecodeRounding::kNone) {
      DecodeBlock<Element::kF32>(block, wanted, group_size, geometry.bits, out_dtype, to);
    } else {
      DecodeBlock<kElement>(block, wanted, group_size, geometry.bits, out_dtype, to);
    }
  }
}

}  // namespace

void DecodeGroups(const Geometry& geometry, const std::byte* codes, const std::byte* scales,
                  const std::byte* biases, int64_t num_groups, DecodeRounding rounding,
                  DType out_dtype, std::byte* out) {
  if (geometry.dtype == DType::kBF16) {
    return Decode<Element::kBF16>(geometry, codes, scales, biases, num_groups, rounding, out_dtype,
                                  out);
  }
  if (geometry.dtype == DType::kF16) {
    return Decode<Element::kF16>(geometry, codes, scales, biases, num_groups, rounding, out_dtype,
                                 out);
  }
  return Decode<Element::kF32>(geometry, codes, scales, biases, num_groups, rounding, out_dtype,
                               out);
}

}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay::affine_internal {
namespace {
HWY_EXPORT(DecodeGroups);
}  // namespace

void DecodeGroups(const Geometry& geometry, const std::byte* codes, const std::byte* scales,
                  const std::byte* biases, int64_t num_groups, DecodeRounding rounding,
                  DType out_dtype, std::byte* out) noexcept {
  HWY_DYNAMIC_DISPATCH(DecodeGroups)
  (geometry, codes, scales, biases, num_groups, rounding, out_dtype, out);
}

}  // namespace assay::affine_internal
#endif  // HWY_ONCE

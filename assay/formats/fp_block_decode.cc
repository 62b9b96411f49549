#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/formats/fp_block_decode.cc"
#include <hwy/foreach_target.h>

#include "assay/formats/fp_blocks-inl.h"
#include "assay/formats/fp_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {

// ---- what becomes of a product ----

template <Element kRound>
struct StoreF32 {
  static constexpr size_t kBytes = 4;
  HWY_INLINE void operator()(FloatVec value, std::byte* out) const {
    const FloatTag d;
    if constexpr (kRound != Element::kF32) value = RoundThrough<kRound>(d, value);
    StoreElements<Element::kF32>(d, value, out);
  }
};

template <Element kRound>
struct StoreHalf {
  static constexpr size_t kBytes = 2;
  HWY_INLINE void operator()(FloatVec value, std::byte* out) const {
    StoreElements<kRound>(FloatTag(), value, out);
  }
};

template <class Code, class Store>
void DecodeLoop(const Store& store, const uint8_t* HWY_RESTRICT codes, size_t block,
                const uint8_t* HWY_RESTRICT scales, size_t num_blocks,
                const float* HWY_RESTRICT scale_values, std::byte* HWY_RESTRICT out) {
  const FloatTag d;
  const WordTag du;
  const ByteTag d8;
  for (size_t b = 0; b < num_blocks; ++b) {
    const FloatVec scale = hn::Set(d, scale_values[scales[b]]);
    for (size_t i = b * block; i < (b + 1) * block; i += hn::Lanes(d)) {
      const WordVec code = hn::PromoteTo(du, hn::LoadU(d8, codes + i));
      store(hn::Mul(Code::Decode(code), scale), out + i * Store::kBytes);
    }
  }
}

template <class Code>
void DecodeElement(const uint8_t* codes, size_t block, const uint8_t* scales, size_t num_blocks,
                   const float* scale_values, DType round_to, DType out_dtype, std::byte* out) {
  const auto decode = [&](const auto& store) HWY_ATTR {
    DecodeLoop<Code>(store, codes, block, scales, num_blocks, scale_values, out);
  };
  if (out_dtype == DType::kBF16) return decode(StoreHalf<Element::kBF16>{});
  if (out_dtype == DType::kF16) return decode(StoreHalf<Element::kF16>{});
  if (round_to == DType::kBF16) return decode(StoreF32<Element::kBF16>{});
  if (round_to == DType::kF16) return decode(StoreF32<Element::kF16>{});
  decode(StoreF32<Element::kF32>{});
}

void DecodeAllBlocks(BlockElement element, const uint8_t* codes, size_t block,
                     const uint8_t* scales, size_t num_blocks, const float* scale_values,
                     DType round_to, DType out_dtype, std::byte* out) {
  switch (element) {
    case BlockElement::kE2M1:
      return DecodeElement<E2M1>(codes, block, scales, num_blocks, scale_values, round_to,
                                 out_dtype, out);
    case BlockElement::kE2M3:
      return DecodeElement<E2M3>(codes, block, scales, num_blocks, scale_values, round_to,
                                 out_dtype, out);
    case BlockElement::kE3M2:
      return DecodeElement<E3M2>(codes, block, scales, num_blocks, scale_values, round_to,
                                 out_dtype, out);
    case BlockElement::kE4M3:
      return DecodeElement<E4M3>(codes, block, scales, num_blocks, scale_values, round_to,
                                 out_dtype, out);
    case BlockElement::kE5M2:
      return DecodeElement<E5M2>(codes, block, scales, num_blocks, scale_values, round_to,
                                 out_dtype, out);
    case BlockElement::kInt8:
      return DecodeElement<Int8>(codes, block, scales, num_blocks, scale_values, round_to,
                                 out_dtype, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "assay/base/error.h"

namespace assay {
namespace {
HWY_EXPORT(DecodeAllBlocks);
}  // namespace

void DecodeBlocks(BlockElement element, std::span<const uint8_t> codes, int block,
                  std::span<const std::byte> scales, std::span<const float, 256> scale_values,
                  DType round_to, DType out_dtype, std::span<std::byte> values) {
  const size_t num_values = static_cast<size_t>(block) * scales.size();
  if ((block != 16 && block != 32) || codes.size() != num_values ||
      values.size() != num_values * static_cast<size_t>(BitsOf(out_dtype) / 8) ||
      (out_dtype != DType::kF32 && out_dtype != round_to)) {
    ThrowInternal("blocks of {}: {} codes, {} scales, {} bytes of {} do not agree", block,
                  codes.size(), scales.size(), values.size(), NameOf(out_dtype));
  }
  HWY_DYNAMIC_DISPATCH(DecodeAllBlocks)
  (element, codes.data(), static_cast<size_t>(block),
   reinterpret_cast<const uint8_t*>(scales.data()), scales.size(), scale_values.data(), round_to,
   out_dtype, values.data());
}

}  // namespace assay
#endif  // HWY_ONCE

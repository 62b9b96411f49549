#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/formats/fp_block_encode.cc"
#include <hwy/foreach_target.h>

#include "assay/formats/fp_blocks-inl.h"
#include "assay/formats/fp_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {

// Bit patterns of non-negative floats order as integers, NaN above infinity above all others.
using IntTag = hn::RebindToSigned<FloatTag>;
using IntVec = hn::Vec<IntTag>;

HWY_INLINE IntVec AbsMaxOfRun(const float* HWY_RESTRICT values, size_t count) {
  const FloatTag d;
  const IntTag di;
  IntVec largest = hn::Zero(di);
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const WordVec bits = BitsOf(hn::LoadU(d, values + i));
    largest = hn::Max(largest, hn::BitCast(di, hn::And(bits, Words(kAbsMask))));
  }
  return largest;
}

#if !HWY_HAVE_SCALABLE
/// Lane-wise maximum of a vector's 128-bit parts.
template <class D, class V = hn::Vec<D>>
HWY_INLINE auto FoldTo128(D /*d*/, V v) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return FoldTo128(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// One lane for each of four blocks. Interleaving two vectors and taking the maximum of the halves
/// folds both at once: three such steps cost what folding one vector alone would.
HWY_INLINE hn::Vec<hn::FixedTag<int32_t, 4>> FoldFour(IntVec a, IntVec b, IntVec c, IntVec e) {
  const IntTag di;
  const hn::Repartition<int64_t, IntTag> di64;
  const IntVec ab = hn::Max(hn::InterleaveLower(di, a, b), hn::InterleaveUpper(di, a, b));
  const IntVec ce = hn::Max(hn::InterleaveLower(di, c, e), hn::InterleaveUpper(di, c, e));
  const auto ab64 = hn::BitCast(di64, ab);
  const auto ce64 = hn::BitCast(di64, ce);
  return FoldTo128(di, hn::Max(hn::BitCast(di, hn::InterleaveLower(di64, ab64, ce64)),
                               hn::BitCast(di, hn::InterleaveUpper(di64, ab64, ce64))));
}
#endif

void AbsMaxOfBlocks(const float* HWY_RESTRICT values, size_t block, size_t num_blocks,
                    uint32_t* HWY_RESTRICT amax_bits) {
  size_t b = 0;
#if !HWY_HAVE_SCALABLE
  const hn::FixedTag<uint32_t, 4> four_words;
  for (; b + 4 <= num_blocks; b += 4) {
    const float* v = values + b * block;
    const auto folded =
        FoldFour(AbsMaxOfRun(v, block), AbsMaxOfRun(v + block, block),
                 AbsMaxOfRun(v + 2 * block, block), AbsMaxOfRun(v + 3 * block, block));
    hn::StoreU(hn::BitCast(four_words, folded), four_words, amax_bits + b);
  }
#endif
  for (; b < num_blocks; ++b) {
    const IntTag di;
    const auto largest = hn::MaxOfLanes(di, AbsMaxOfRun(values + b * block, block));
    amax_bits[b] = static_cast<uint32_t>(hn::GetLane(largest));
  }
}

// ---- quotients ----

// Their constants are floats, not vectors: SVE's vectors cannot be members.

struct MultiplyQuotient {
  HWY_INLINE FloatVec operator()(FloatVec value, FloatVec factor) const {
    return hn::Mul(value, factor);
  }
};

struct DivideQuotient {
  HWY_INLINE FloatVec operator()(FloatVec value, FloatVec factor) const {
    return hn::Div(value, factor);
  }
};

template <DType kRound>
struct RoundedQuotient {
  float post;
  HWY_INLINE FloatVec operator()(FloatVec value, FloatVec factor) const {
    FloatVec quotient = hn::Div(value, factor);
    if constexpr (kRound == DType::kBF16)
      quotient = RoundThrough<Element::kBF16>(FloatTag(), quotient);
    if constexpr (kRound == DType::kF16)
      quotient = RoundThrough<Element::kF16>(FloatTag(), quotient);
    return hn::Mul(quotient, hn::Set(FloatTag(), post));
  }
};

// ---- roundings of e2m1 beside nearest even ----

/// Magnitude code with ties toward zero. From 1 on an f32's exponent and upper mantissa bit, less
/// the difference of the biases, are the code: adding all but half of what is cut off carries when
/// it is more than half. Below 1 stand two thresholds. Requires q that is not NaN.
HWY_INLINE WordVec MagnitudeTiesDown(FloatVec q) {
  const FloatTag d;
  const WordTag du;
  const WordVec bits = hn::And(BitsOf(q), Words(kAbsMask));
  const WordVec normal =
      hn::Min(hn::ShiftRight<22>(hn::Add(bits, Words(0x1FFFFFu - (126u << 23)))), Words(7));
  const FloatVec a = FloatOf(bits);
  const auto above = [&](float threshold) HWY_ATTR {
    const auto mask = hn::Gt(a, hn::Set(d, threshold));
    return hn::IfThenElseZero(hn::RebindMask(du, mask), Words(1));
  };
  const auto below_one = hn::RebindMask(du, hn::Lt(a, hn::Set(d, 1.0f)));
  return hn::IfThenElse(below_one, hn::Add(above(0.25f), above(0.75f)), normal);
}

template <class Code>
struct NearestEven {
  HWY_INLINE WordVec operator()(FloatVec q, FloatVec /*value*/) const { return Code::Encode(q); }
};

struct NearestEvenPlainZero {
  float underflow;
  HWY_INLINE WordVec operator()(FloatVec q, FloatVec /*value*/) const {
    const WordTag du;
    const auto negative = hn::RebindMask(du, hn::Lt(q, hn::Set(FloatTag(), -underflow)));
    return hn::Or(hn::And(E2M1::Encode(q), Words(7)), hn::IfThenElseZero(negative, Words(8)));
  }
};

struct NearestEvenNegative {
  HWY_INLINE WordVec operator()(FloatVec q, FloatVec value) const {
    const WordTag du;
    const auto negative = hn::RebindMask(du, hn::Lt(value, hn::Zero(FloatTag())));
    return hn::Or(hn::And(E2M1::Encode(q), Words(7)), hn::IfThenElseZero(negative, Words(8)));
  }
};

struct DownZeroNegative {
  HWY_INLINE WordVec operator()(FloatVec q, FloatVec /*value*/) const {
    const WordTag du;
    const auto positive = hn::RebindMask(du, hn::Gt(q, hn::Zero(FloatTag())));
    return hn::Or(MagnitudeTiesDown(q), hn::IfThenZeroElse(positive, Words(8)));
  }
};

struct DownPlainZero {
  HWY_INLINE WordVec operator()(FloatVec q, FloatVec /*value*/) const {
    const WordTag du;
    const WordVec magnitude = MagnitudeTiesDown(q);
    const auto negative = hn::RebindMask(du, hn::Lt(q, hn::Zero(FloatTag())));
    const auto signed_code = hn::And(negative, hn::Ne(magnitude, hn::Zero(du)));
    const WordVec code = hn::Or(magnitude, hn::IfThenElseZero(signed_code, Words(8)));
    const auto finite = hn::Lt(hn::And(BitsOf(q), Words(kAbsMask)), Words(kExponentMask));
    return hn::IfThenElseZero(finite, code);
  }
};

// ---- the loop ----

template <class Round, class Quotient>
HWY_INLINE void EncodeLoop(const Round& round, const Quotient& quotient,
                           const float* HWY_RESTRICT values, size_t block,
                           const float* HWY_RESTRICT factors, size_t num_blocks,
                           uint8_t* HWY_RESTRICT codes) {
  const FloatTag d;
  const ByteTag d8;
  const hn::RebindToSigned<FloatTag> di;
  for (size_t b = 0; b < num_blocks; ++b) {
    const FloatVec factor = hn::Set(d, factors[b]);
    for (size_t i = b * block; i < (b + 1) * block; i += hn::Lanes(d)) {
      const FloatVec value = hn::LoadU(d, values + i);
      const WordVec code = round(quotient(value, factor), value);
      hn::StoreU(hn::DemoteTo(d8, hn::BitCast(di, code)), d8, codes + i);
    }
  }
}

template <class Round>
void EncodeWithQuotient(const Round& round, const BlockQuotient& q, const float* values,
                        size_t block, const float* factors, size_t num_blocks, uint8_t* codes) {
  const auto encode = [&](const auto& quotient) HWY_ATTR {
    EncodeLoop(round, quotient, values, block, factors, num_blocks, codes);
  };
  switch (q.kind) {
    case BlockQuotient::Kind::kMultiply:
      return encode(MultiplyQuotient{});
    case BlockQuotient::Kind::kDivide:
      return encode(DivideQuotient{});
    case BlockQuotient::Kind::kDivideRoundThenMultiply:
      if (q.round_to == DType::kBF16) return encode(RoundedQuotient<DType::kBF16>{q.post});
      if (q.round_to == DType::kF16) return encode(RoundedQuotient<DType::kF16>{q.post});
      return encode(RoundedQuotient<DType::kF32>{q.post});
  }
}

template <class Code>
void EncodeMultiplied(const float* values, size_t block, const float* factors, size_t num_blocks,
                      uint8_t* codes) {
  EncodeLoop(NearestEven<Code>{}, MultiplyQuotient{}, values, block, factors, num_blocks, codes);
}

void EncodeAllBlocks(BlockElement element, ElementRounding rounding, const BlockQuotient& q,
                     const float* values, size_t block, const float* factors, size_t num_blocks,
                     uint8_t* codes) {
  switch (element) {
    case BlockElement::kE2M3:
      return EncodeMultiplied<E2M3>(values, block, factors, num_blocks, codes);
    case BlockElement::kE3M2:
      return EncodeMultiplied<E3M2>(values, block, factors, num_blocks, codes);
    case BlockElement::kE4M3:
      return EncodeMultiplied<E4M3>(values, block, factors, num_blocks, codes);
    case BlockElement::kE5M2:
      return EncodeMultiplied<E5M2>(values, block, factors, num_blocks, codes);
    case BlockElement::kInt8:
      return EncodeMultiplied<Int8>(values, block, factors, num_blocks, codes);
    case BlockElement::kE2M1:
      break;
  }
  switch (rounding) {
    case ElementRounding::kNearestEven:
      return EncodeWithQuotient(NearestEven<E2M1>{}, q, values, block, factors, num_blocks, codes);
    case ElementRounding::kNearestEvenPlainZero:
      return EncodeWithQuotient(NearestEvenPlainZero{q.underflow}, q, values, block, factors,
                                num_blocks, codes);
    case ElementRounding::kNearestEvenNegative:
      return EncodeWithQuotient(NearestEvenNegative{}, q, values, block, factors, num_blocks,
                                codes);
    case ElementRounding::kDownZeroNegative:
      return EncodeWithQuotient(DownZeroNegative{}, q, values, block, factors, num_blocks, codes);
    case ElementRounding::kDownPlainZero:
      return EncodeWithQuotient(DownPlainZero{}, q, values, block, factors, num_blocks, codes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "assay/base/error.h"

namespace assay {
namespace {

HWY_EXPORT(AbsMaxOfBlocks);
HWY_EXPORT(EncodeAllBlocks);

void RequireBlocks(int block, size_t num_values, size_t num_blocks) {
  if ((block != 16 && block != 32) || num_values != static_cast<size_t>(block) * num_blocks) {
    ThrowInternal("blocks of {}: {} values do not make {} blocks", block, num_values, num_blocks);
  }
}

}  // namespace

uint32_t AbsMaxBits(std::span<const float> values) {
  if (values.size() % 16 != 0) ThrowInternal("{} values are no blocks of 16", values.size());
  if (values.empty()) return 0;
  uint32_t amax_bits = 0;
  HWY_DYNAMIC_DISPATCH(AbsMaxOfBlocks)(values.data(), values.size(), 1, &amax_bits);
  return amax_bits;
}

void BlockAbsMax(std::span<const float> values, int block, std::span<uint32_t> amax_bits) {
  RequireBlocks(block, values.size(), amax_bits.size());
  HWY_DYNAMIC_DISPATCH(AbsMaxOfBlocks)
  (values.data(), static_cast<size_t>(block), amax_bits.size(), amax_bits.data());
}

void EncodeBlocks(BlockElement element, ElementRounding rounding, const BlockQuotient& quotient,
                  std::span<const float> values, int block, std::span<const float> factors,
                  std::span<uint8_t> codes) {
  RequireBlocks(block, values.size(), factors.size());
  RequireBlocks(block, codes.size(), factors.size());
  if (element != BlockElement::kE2M1 && (rounding != ElementRounding::kNearestEven ||
                                         quotient.kind != BlockQuotient::Kind::kMultiply)) {
    ThrowInternal("blocks: only e2m1 is rounded in other ways than nearest even of a product");
  }
  HWY_DYNAMIC_DISPATCH(EncodeAllBlocks)
  (element, rounding, quotient, values.data(), static_cast<size_t>(block), factors.data(),
   factors.size(), codes.data());
}

}  // namespace assay
#endif  // HWY_ONCE

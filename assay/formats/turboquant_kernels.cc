#include "assay/formats/turboquant_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "assay/base/neon_for_sve.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/formats/turboquant_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "assay/numeric/element-inl.h"
#include "assay/numeric/element.h"
#include "assay/numeric/hadamard-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace assay::turboquant::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace base = assay::HWY_NAMESPACE;

constexpr size_t kMaxGroup = 128;
constexpr size_t kMaxLevels = 16;

// Widens a group. False when a value is not finite.
template <Element kElement>
HWY_INLINE bool WidenGroup(const std::byte* HWY_RESTRICT values, size_t count,
                           float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const auto exponent = hn::Set(du, 0x7F800000u);
  auto all_finite = hn::MaskFromVec(hn::BitCast(df, hn::Set(du, 0xFFFFFFFFu)));
  for (size_t i = 0; i < count; i += hn::Lanes(df)) {
    const auto v = base::LoadElements<kElement>(df, values + i * base::kBytesOfElement<kElement>);
    const auto special = hn::Eq(hn::And(hn::BitCast(du, v), exponent), exponent);
    all_finite = hn::AndNot(hn::RebindMask(df, special), all_finite);
    hn::Store(v, df, out + i);
  }
  return hn::AllTrue(df, all_finite);
}

HWY_INLINE bool WidenGroup(DType dtype, const std::byte* values, size_t count, float* out) {
  if (dtype == DType::kBF16) return WidenGroup<Element::kBF16>(values, count, out);
  if (dtype == DType::kF16) return WidenGroup<Element::kF16>(values, count, out);
  return WidenGroup<Element::kF32>(values, count, out);
}

// The square root of the sum of squares, added up as numpy does up to 128 values: element i into
// accumulator i mod 8, those by pairs.
HWY_INLINE float Norm(const float* HWY_RESTRICT values, size_t count) {
  const hn::CappedTag<float, 8> d8;
  constexpr size_t kLanes = hn::MaxLanes(hn::CappedTag<float, 8>());
  constexpr size_t kVectors = 8 / kLanes;
  hn::Vec<decltype(d8)> sums[kVectors];
  for (size_t j = 0; j < kVectors; ++j) {
    const auto v = hn::Load(d8, values + j * kLanes);
    sums[j] = hn::Mul(v, v);
  }
  for (size_t i = 8; i < count; i += 8) {
    for (size_t j = 0; j < kVectors; ++j) {
      const auto v = hn::Load(d8, values + i + j * kLanes);
      sums[j] = hn::Add(sums[j], hn::Mul(v, v));
    }
  }
  HWY_ALIGN float r[8];
  for (size_t j = 0; j < kVectors; ++j) hn::Store(sums[j], d8, r + j * kLanes);
  return std::sqrt(((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7])));
}

// Walsh–Hadamard transform of a group held in vectors.
template <size_t kVectors, class DF>
HWY_INLINE void Transform(DF df, hn::Vec<DF> (&v)[kVectors]) {
  for (size_t i = 0; i < kVectors; ++i) v[i] = base::TransformLanes(df, v[i]);
  for (size_t stride = 1; stride < kVectors; stride *= 2) {
    for (size_t i = 0; i < kVectors; ++i) {
      if ((i & stride) != 0) continue;
      const auto a = v[i];
      const auto b = v[i + stride];
      v[i] = hn::Add(a, b);
      v[i + stride] = hn::Sub(a, b);
    }
  }
}

template <class DF>
HWY_INLINE hn::Vec<DF> LoadSigns(DF df, const int8_t* signs) {
  const hn::RebindToSigned<DF> di;
  return hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(hn::Rebind<int8_t, DF>(), signs)));
}

// values · signs, transformed, over √kGroup.
template <size_t kGroup>
HWY_INLINE void Rotate(const int8_t* HWY_RESTRICT signs, float* HWY_RESTRICT values) {
  const hn::ScalableTag<float> df;
  constexpr size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
  constexpr size_t kVectors = kGroup / kLanes;
  hn::Vec<decltype(df)> v[kVectors];
  for (size_t i = 0; i < kVectors; ++i) {
    v[i] = hn::Mul(hn::Load(df, values + i * kLanes), LoadSigns(df, signs + i * kLanes));
  }
  Transform(df, v);
  const auto root = hn::Set(df, std::sqrt(static_cast<float>(kGroup)));
  for (size_t i = 0; i < kVectors; ++i) hn::Store(hn::Div(v[i], root), df, values + i * kLanes);
}

HWY_INLINE void Rotate(size_t group, const int8_t* signs, float* values) {
  if (group == 32) return Rotate<32>(signs, values);
  if (group == 64) return Rotate<64>(signs, values);
  Rotate<128>(signs, values);
}

// How many of the boundaries are strictly below each y.
template <size_t kLevels, class DF>
HWY_INLINE hn::Vec<hn::RebindToSigned<DF>> CountBelow(DF df, const float* HWY_RESTRICT boundaries,
                                                      hn::Vec<DF> y) {
  const hn::RebindToSigned<DF> di;
  auto code = hn::Zero(di);
  if constexpr (kLevels == 16 && hn::MaxLanes(DF()) == 16) {
    // All 15 fit a vector: binary search, the answer's highest bit first.
    const auto table = hn::Load(df, boundaries);
    for (int32_t step = 8; step != 0; step /= 2) {
      const auto probe = hn::IndicesFromVec(df, hn::Add(code, hn::Set(di, step - 1)));
      const auto above = hn::Lt(hn::TableLookupLanes(table, probe), y);
      code = hn::IfThenElse(hn::RebindMask(di, above), hn::Add(code, hn::Set(di, step)), code);
    }
  } else {
    for (size_t b = 0; b + 1 < kLevels; ++b) {
      const auto above = hn::Lt(hn::Set(df, boundaries[b]), y);
      const auto next = hn::Set(di, static_cast<int32_t>(b + 1));
      code = hn::IfThenElse(hn::RebindMask(di, above), next, code);
    }
  }
  return code;
}

// Index of each value / norm.
template <size_t kLevels>
HWY_INLINE void Classify(const float* HWY_RESTRICT values, size_t count, float norm,
                         const float* HWY_RESTRICT boundaries, uint8_t* HWY_RESTRICT codes) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<uint8_t, decltype(df)> d8;
  const auto divisor = hn::Set(df, norm);
  for (size_t i = 0; i < count; i += hn::Lanes(df)) {
    const auto y = hn::Div(hn::Load(df, values + i), divisor);
    hn::StoreU(hn::DemoteTo(d8, CountBelow<kLevels>(df, boundaries, y)), d8, codes + i);
  }
}

HWY_INLINE void Classify(int bits, const float* values, size_t count, float norm,
                         const float* boundaries, uint8_t* codes) {
  if (bits == 2) return Classify<4>(values, count, norm, boundaries, codes);
  if (bits == 3) return Classify<8>(values, count, norm, boundaries, codes);
  Classify<16>(values, count, norm, boundaries, codes);
}

// One index a byte into 2 or 4 bits each.
HWY_INLINE void Pack(int stored_bits, const uint8_t* HWY_RESTRICT codes, size_t count,
                     uint8_t* HWY_RESTRICT packed) {
  const hn::CappedTag<uint8_t, 32> d8;
  const hn::Repartition<uint16_t, decltype(d8)> d16;
  const hn::Repartition<uint32_t, decltype(d8)> d32;
  const hn::RebindToSigned<decltype(d16)> di16;
  const hn::RebindToSigned<decltype(d32)> di32;
  for (size_t i = 0; i < count; i += hn::Lanes(d8)) {
    const auto v = hn::Load(d8, codes + i);
    if (stored_bits == 4) {
      const auto pairs = hn::BitCast(d16, v);
      const auto bytes =
          hn::And(hn::Or(pairs, hn::ShiftRight<4>(pairs)), hn::Set(d16, uint16_t{0xFF}));
      const hn::Rebind<uint8_t, decltype(d16)> d_out;
      hn::StoreU(hn::DemoteTo(d_out, hn::BitCast(di16, bytes)), d_out, packed + i / 2);
    } else {
      const auto fours = hn::BitCast(d32, v);
      const auto joined = hn::Or(hn::Or(fours, hn::ShiftRight<6>(fours)),
                                 hn::Or(hn::ShiftRight<12>(fours), hn::ShiftRight<18>(fours)));
      const auto bytes = hn::And(joined, hn::Set(d32, uint32_t{0xFF}));
      const hn::Rebind<uint8_t, decltype(d32)> d_out;
      hn::StoreU(hn::DemoteTo(d_out, hn::BitCast(di32, bytes)), d_out, packed + i / 4);
    }
  }
}

// The inverse of Pack.
HWY_INLINE void Unpack(int stored_bits, const uint8_t* HWY_RESTRICT packed, size_t count,
                       uint8_t* HWY_RESTRICT codes) {
  const hn::CappedTag<uint8_t, 32> d8;
  const hn::Repartition<uint16_t, decltype(d8)> d16;
  const hn::Repartition<uint32_t, decltype(d8)> d32;
  for (size_t i = 0; i < count; i += hn::Lanes(d8)) {
    if (stored_bits == 4) {
      const hn::Rebind<uint8_t, decltype(d16)> d_in;
      const auto bytes = hn::PromoteTo(d16, hn::LoadU(d_in, packed + i / 2));
      const auto pairs =
          hn::And(hn::Or(bytes, hn::ShiftLeft<4>(bytes)), hn::Set(d16, uint16_t{0x0F0F}));
      hn::Store(hn::BitCast(d8, pairs), d8, codes + i);
    } else {
      const hn::Rebind<uint8_t, decltype(d32)> d_in;
      const auto bytes = hn::PromoteTo(d32, hn::LoadU(d_in, packed + i / 4));
      const auto spread = hn::Or(hn::Or(bytes, hn::ShiftLeft<6>(bytes)),
                                 hn::Or(hn::ShiftLeft<12>(bytes), hn::ShiftLeft<18>(bytes)));
      const auto fours = hn::And(spread, hn::Set(d32, uint32_t{0x03030303}));
      hn::Store(hn::BitCast(d8, fours), d8, codes + i);
    }
  }
}

size_t EncodeRowOnTarget(const Geometry& geometry, DType dtype, const std::byte* values,
                         const int8_t* signs, size_t num_groups, const float* boundaries,
                         std::byte* packed, std::byte* scales) {
  HWY_ALIGN float group[kMaxGroup];
  HWY_ALIGN uint8_t codes[kMaxGroup];
  HWY_ALIGN float table[kMaxLevels] = {};
  std::copy_n(boundaries, (size_t{1} << geometry.bits) - 1, table);
  const auto size = static_cast<size_t>(geometry.group_size);
  const size_t value_bytes = static_cast<size_t>(BitsOf(dtype)) / 8;
  for (size_t g = 0; g < num_groups; ++g) {
    if (HWY_UNLIKELY(!WidenGroup(dtype, values + g * size * value_bytes, size, group))) return g;
    Rotate(size, signs + g * size, group);
    const float norm = std::max(Norm(group, size), 1e-10f);
    const uint16_t scale = FloatToF16(norm);
    if (HWY_UNLIKELY(scale >= 0x7C00u)) return g;
    Classify(geometry.bits, group, size, norm, table, codes);
    Pack(geometry.stored_bits, codes, size,
         reinterpret_cast<uint8_t*>(packed) + g * geometry.BytesPerGroup());
    std::memcpy(scales + g * sizeof(scale), &scale, sizeof(scale));
  }
  return num_groups;
}

// Centroids times the scale of a group, for looking up vectors of indices.
struct Table {
  HWY_ALIGN float values[kMaxLevels];
};

template <class DF>
HWY_INLINE hn::Vec<DF> LookUp(DF df, const Table& table, hn::Vec<hn::RebindToSigned<DF>> index) {
  constexpr size_t kLanes = hn::MaxLanes(DF());
  const hn::RebindToSigned<DF> di;
  if constexpr (kLanes >= kMaxLevels) {
    return hn::TableLookupLanes(hn::Load(df, table.values), hn::IndicesFromVec(df, index));
  } else if constexpr (kLanes == kMaxLevels / 2) {
    const auto half = hn::IndicesFromVec(df, hn::And(index, hn::Set(di, 7)));
    const auto is_upper = hn::Gt(index, hn::Set(di, 7));
    return hn::IfThenElse(hn::RebindMask(df, is_upper),
                          hn::TableLookupLanes(hn::Load(df, table.values + kLanes), half),
                          hn::TableLookupLanes(hn::Load(df, table.values), half));
  } else {
    return hn::GatherIndex(df, table.values, index);
  }
}

// Decodes a group to f32.
template <size_t kGroup>
HWY_INLINE void DecodeGroup(const uint8_t* HWY_RESTRICT codes, const Table& centroids, float scale,
                            const int8_t* HWY_RESTRICT signs, float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<uint8_t, decltype(df)> du8;
  constexpr size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
  constexpr size_t kVectors = kGroup / kLanes;
  Table scaled;
  for (size_t i = 0; i < kMaxLevels; i += kLanes) {
    hn::Store(hn::Mul(hn::Load(df, centroids.values + i), hn::Set(df, scale)), df,
              scaled.values + i);
  }
  hn::Vec<decltype(df)> v[kVectors];
  for (size_t i = 0; i < kVectors; ++i) {
    v[i] = LookUp(df, scaled, hn::PromoteTo(di, hn::LoadU(du8, codes + i * kLanes)));
  }
  Transform(df, v);
  const auto factor = hn::Set(df, 1.0f / std::sqrt(static_cast<float>(kGroup)));
  for (size_t i = 0; i < kVectors; ++i) {
    // v · factor · sign, rounded once: the sign only flips a bit.
    const auto signed_factor = hn::Mul(factor, LoadSigns(df, signs + i * kLanes));
    hn::StoreU(hn::Mul(v[i], signed_factor), df, out + i * kLanes);
  }
}

HWY_INLINE void DecodeGroup(size_t group, const uint8_t* codes, const Table& centroids, float scale,
                            const int8_t* signs, float* out) {
  if (group == 32) return DecodeGroup<32>(codes, centroids, scale, signs, out);
  if (group == 64) return DecodeGroup<64>(codes, centroids, scale, signs, out);
  DecodeGroup<128>(codes, centroids, scale, signs, out);
}

// Decodes group by group into a buffer and hands each to finish(position, values).
template <class Finish>
HWY_INLINE void DecodeGroups(const Geometry& geometry, const std::byte* packed,
                             const std::byte* scales, const int8_t* signs, size_t num_groups,
                             const float* centroids, const Finish& finish) {
  Table table{};
  std::copy_n(centroids, size_t{1} << geometry.bits, table.values);
  HWY_ALIGN uint8_t codes[kMaxGroup];
  HWY_ALIGN float values[kMaxGroup];
  const auto size = static_cast<size_t>(geometry.group_size);
  for (size_t g = 0; g < num_groups; ++g) {
    uint16_t scale;
    std::memcpy(&scale, scales + g * sizeof(scale), sizeof(scale));
    Unpack(geometry.stored_bits,
           reinterpret_cast<const uint8_t*>(packed) + g * geometry.BytesPerGroup(), size, codes);
    DecodeGroup(size, codes, table, F16ToFloat(scale), signs + g * size, values);
    finish(g * size, values);
  }
}

void DecodeRowOnTarget(const Geometry& geometry, const std::byte* packed, const std::byte* scales,
                       const int8_t* signs, size_t num_groups, const float* centroids, bool to_bf16,
                       float* out) {
  const hn::ScalableTag<float> df;
  const auto size = static_cast<size_t>(geometry.group_size);
  DecodeGroups(geometry, packed, scales, signs, num_groups, centroids,
               [&](size_t at, const float* HWY_RESTRICT values) {
                 for (size_t i = 0; i < size; i += hn::Lanes(df)) {
                   const auto v = hn::Load(df, values + i);
                   hn::StoreU(to_bf16 ? base::RoundThrough<Element::kBF16>(df, v) : v, df,
                              out + at + i);
                 }
               });
}

void DecodeRowToBF16OnTarget(const Geometry& geometry, const std::byte* packed,
                             const std::byte* scales, const int8_t* signs, size_t num_groups,
                             const float* centroids, std::byte* out) {
  const hn::ScalableTag<float> df;
  const auto size = static_cast<size_t>(geometry.group_size);
  DecodeGroups(geometry, packed, scales, signs, num_groups, centroids,
               [&](size_t at, const float* HWY_RESTRICT values) {
                 for (size_t i = 0; i < size; i += hn::Lanes(df)) {
                   base::StoreElements<Element::kBF16>(df, hn::Load(df, values + i),
                                                       out + 2 * (at + i));
                 }
               });
}

}  // namespace assay::turboquant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay::turboquant {

HWY_EXPORT(EncodeRowOnTarget);
HWY_EXPORT(DecodeRowOnTarget);
HWY_EXPORT(DecodeRowToBF16OnTarget);

size_t EncodeRow(const Geometry& geometry, DType dtype, const std::byte* values,
                 const int8_t* signs, size_t num_groups, std::span<const float> boundaries,
                 std::byte* packed, std::byte* scales) noexcept {
  return HWY_DYNAMIC_DISPATCH(EncodeRowOnTarget)(geometry, dtype, values, signs, num_groups,
                                                 boundaries.data(), packed, scales);
}

void DecodeRow(const Geometry& geometry, const std::byte* packed, const std::byte* scales,
               const int8_t* signs, size_t num_groups, std::span<const float> centroids,
               bool to_bf16, float* out) noexcept {
  HWY_DYNAMIC_DISPATCH(DecodeRowOnTarget)
  (geometry, packed, scales, signs, num_groups, centroids.data(), to_bf16, out);
}

void DecodeRowToBF16(const Geometry& geometry, const std::byte* packed, const std::byte* scales,
                     const int8_t* signs, size_t num_groups, std::span<const float> centroids,
                     std::byte* out) noexcept {
  HWY_DYNAMIC_DISPATCH(DecodeRowToBF16OnTarget)
  (geometry, packed, scales, signs, num_groups, centroids.data(), out);
}

}  // namespace assay::turboquant
#endif  // HWY_ONCE

#include "assay/numeric/bulk.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "assay/base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/numeric/bulk.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "assay/numeric/element-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {
namespace {

template <Element kElement>
void WidenAll(const std::byte* HWY_RESTRICT codes, size_t num_values, float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  constexpr size_t kBytes = kBytesOfElement<kElement>;
  size_t i = 0;
  for (; i + lanes <= num_values; i += lanes) {
    hn::StoreU(LoadElements<kElement>(df, codes + i * kBytes), df, out + i);
  }
  for (; i < num_values; ++i) {
    uint32_t code = 0;
    std::memcpy(&code, codes + i * kBytes, kBytes);
    out[i] = ToFloat(kElement, code);
  }
}

template <Element kElement, bool kSaturating>
void RoundAll(const float* HWY_RESTRICT values, size_t num_values, std::byte* HWY_RESTRICT codes) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  constexpr size_t kBytes = kBytesOfElement<kElement>;
  size_t i = 0;
  for (; i + lanes <= num_values; i += lanes) {
    StoreElements<kElement, kSaturating>(df, hn::LoadU(df, values + i), codes + i * kBytes);
  }
  for (; i < num_values; ++i) {
    const uint32_t code =
        kSaturating ? FromFloatSaturating(kElement, values[i]) : FromFloat(kElement, values[i]);
    std::memcpy(codes + i * kBytes, &code, kBytes);
  }
}

}  // namespace

// e2m1 straight from and to its packed bytes: the even codes are the low nibbles. Both return how
// many values they have done, whole vectors of pairs.
size_t WidenE2M1Pairs(const std::byte* HWY_RESTRICT codes, size_t num_values,
                      float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const size_t step = 2 * hn::Lanes(df);
  size_t i = 0;
  for (; i + step <= num_values; i += step) {
    const auto pairs = LoadCodes<1>(df, codes + i / 2);
    const auto even = WidenCodes<Element::kE2M1>(df, hn::And(pairs, hn::Set(du, 0xFu)));
    const auto odd = WidenCodes<Element::kE2M1>(df, hn::ShiftRight<4>(pairs));
    hn::StoreInterleaved2(even, odd, df, out + i);
  }
  return i;
}

size_t RoundE2M1Pairs(const float* HWY_RESTRICT values, size_t num_values,
                      std::byte* HWY_RESTRICT codes) {
  const hn::ScalableTag<float> df;
  const size_t step = 2 * hn::Lanes(df);
  size_t i = 0;
  for (; i + step <= num_values; i += step) {
    hn::Vec<decltype(df)> even;
    hn::Vec<decltype(df)> odd;
    hn::LoadInterleaved2(df, values + i, even, odd);
    const auto low = RoundCodes<Element::kE2M1>(df, even);
    const auto high = RoundCodes<Element::kE2M1>(df, odd);
    StoreCodes<1>(df, hn::Or(low, hn::ShiftLeft<4>(high)), codes + i / 2);
  }
  return i;
}

// fp4 and fp6 come and go here as one code per byte.
void WidenBytes(Element element, const std::byte* codes, size_t num_values, float* out) {
  switch (element) {
    case Element::kF32:
      return WidenAll<Element::kF32>(codes, num_values, out);
    case Element::kBF16:
      return WidenAll<Element::kBF16>(codes, num_values, out);
    case Element::kF16:
      return WidenAll<Element::kF16>(codes, num_values, out);
    case Element::kE4M3:
      return WidenAll<Element::kE4M3>(codes, num_values, out);
    case Element::kE5M2:
      return WidenAll<Element::kE5M2>(codes, num_values, out);
    case Element::kE4M3Fnuz:
      return WidenAll<Element::kE4M3Fnuz>(codes, num_values, out);
    case Element::kE5M2Fnuz:
      return WidenAll<Element::kE5M2Fnuz>(codes, num_values, out);
    case Element::kE8M0:
      return WidenAll<Element::kE8M0>(codes, num_values, out);
    case Element::kE2M1:
      return WidenAll<Element::kE2M1>(codes, num_values, out);
    case Element::kE2M3:
      return WidenAll<Element::kE2M3>(codes, num_values, out);
    case Element::kE3M2:
      return WidenAll<Element::kE3M2>(codes, num_values, out);
  }
}

template <bool kSaturating>
void RoundTo(Element element, const float* values, size_t num_values, std::byte* codes) {
  switch (element) {
    case Element::kF32:
      return RoundAll<Element::kF32, kSaturating>(values, num_values, codes);
    case Element::kBF16:
      return RoundAll<Element::kBF16, kSaturating>(values, num_values, codes);
    case Element::kF16:
      return RoundAll<Element::kF16, kSaturating>(values, num_values, codes);
    case Element::kE4M3:
      return RoundAll<Element::kE4M3, kSaturating>(values, num_values, codes);
    case Element::kE5M2:
      return RoundAll<Element::kE5M2, kSaturating>(values, num_values, codes);
    case Element::kE4M3Fnuz:
      return RoundAll<Element::kE4M3Fnuz, kSaturating>(values, num_values, codes);
    case Element::kE5M2Fnuz:
      return RoundAll<Element::kE5M2Fnuz, kSaturating>(values, num_values, codes);
    case Element::kE8M0:
      return RoundAll<Element::kE8M0, kSaturating>(values, num_values, codes);
    case Element::kE2M1:
      return RoundAll<Element::kE2M1, false>(values, num_values, codes);
    case Element::kE2M3:
      return RoundAll<Element::kE2M3, false>(values, num_values, codes);
    case Element::kE3M2:
      return RoundAll<Element::kE3M2, false>(values, num_values, codes);
  }
}

void RoundBytes(Element element, const float* values, size_t num_values, std::byte* codes) {
  RoundTo<false>(element, values, num_values, codes);
}

void RoundBytesSaturating(Element element, const float* values, size_t num_values,
                          std::byte* codes) {
  RoundTo<true>(element, values, num_values, codes);
}

}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
namespace {

HWY_EXPORT(WidenBytes);
HWY_EXPORT(RoundBytes);
HWY_EXPORT(RoundBytesSaturating);
HWY_EXPORT(WidenE2M1Pairs);
HWY_EXPORT(RoundE2M1Pairs);

// Codes unpacked at a time: whole groups of 8, so every chunk starts on a byte.
constexpr size_t kChunk = 1024;
using ChunkCodes = std::array<uint8_t, kChunk>;

void RequireBytes(Element element, size_t num_values, size_t num_bytes) {
  const size_t needed = NumBytesFor(BitsOf(element), num_values);
  if (num_bytes < needed) {
    ThrowInternal("{} values of {}: expected {} bytes, found {}", num_values, NameOf(element),
                  needed, num_bytes);
  }
}

void RoundWith(void (*round)(Element, const float*, size_t, std::byte*), Element element,
               std::span<const float> values, std::span<std::byte> codes) {
  RequireBytes(element, values.size(), codes.size());
  const int bits = BitsOf(element);
  if (bits >= 8) {
    round(element, values.data(), values.size(), codes.data());
    return;
  }
  size_t first = 0;
  if (element == Element::kE2M1) {
    first = HWY_DYNAMIC_DISPATCH(RoundE2M1Pairs)(values.data(), values.size(), codes.data());
  }
  ChunkCodes chunk;
  for (; first < values.size(); first += kChunk) {
    const size_t count = std::min(kChunk, values.size() - first);
    const auto unpacked = std::span(chunk).first(count);
    round(element, values.data() + first, count, std::as_writable_bytes(unpacked).data());
    PackBits(bits, unpacked, codes.subspan(first / 8 * static_cast<size_t>(bits)));
  }
}

}  // namespace

void Widen(Element element, std::span<const std::byte> codes, std::span<float> out) {
  RequireBytes(element, out.size(), codes.size());
  const int bits = BitsOf(element);
  const auto widen = HWY_DYNAMIC_DISPATCH(WidenBytes);
  if (bits >= 8) {
    widen(element, codes.data(), out.size(), out.data());
    return;
  }
  size_t first = 0;
  if (element == Element::kE2M1) {
    first = HWY_DYNAMIC_DISPATCH(WidenE2M1Pairs)(codes.data(), out.size(), out.data());
  }
  ChunkCodes chunk;
  for (; first < out.size(); first += kChunk) {
    const auto unpacked = std::span(chunk).first(std::min(kChunk, out.size() - first));
    UnpackBits(bits, codes, first, unpacked);
    widen(element, std::as_bytes(unpacked).data(), unpacked.size(), out.data() + first);
  }
}

void Round(Element element, std::span<const float> values, std::span<std::byte> codes) {
  RoundWith(HWY_DYNAMIC_DISPATCH(RoundBytes), element, values, codes);
}

void RoundSaturating(Element element, std::span<const float> values, std::span<std::byte> codes) {
  RoundWith(HWY_DYNAMIC_DISPATCH(RoundBytesSaturating), element, values, codes);
}

}  // namespace assay
#endif  // HWY_ONCE

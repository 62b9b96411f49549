#include "assay/measure/ulp.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "assay/base/checked.h"
#include "assay/base/error.h"

namespace assay {
namespace {

/// A sign-and-magnitude float of `kBits` bits whose magnitudes above kMaxOrdered are NaN.
template <typename Code, int kBits, uint64_t kMaxOrdered>
struct SignMagnitude {
  using Storage = Code;
  static int64_t Place(Code code) noexcept {
    constexpr uint64_t kSign = uint64_t{1} << (kBits - 1);
    const uint64_t magnitude = code & (kSign - 1);
    if (magnitude > kMaxOrdered) return kUnordered;
    const auto place = static_cast<int64_t>(magnitude);
    return (code & kSign) != 0 ? -place : place;
  }
};

/// The fnuz types: the pattern that would be −0 is the only NaN.
struct Fnuz {
  using Storage = uint8_t;
  static int64_t Place(uint8_t code) noexcept {
    if (code == 0x80) return kUnordered;
    return (code & 0x80) != 0 ? -int64_t{code & 0x7F} : int64_t{code};
  }
};

struct Exponent {
  using Storage = uint8_t;
  static int64_t Place(uint8_t code) noexcept { return code == 0xFF ? kUnordered : int64_t{code}; }
};

template <typename Integer>
struct Whole {
  using Storage = Integer;
  static int64_t Place(Integer value) noexcept { return static_cast<int64_t>(value); }
};

/// The smallest I64 would be taken for NaN; it shares its place with its neighbour's.
struct WholeI64 {
  using Storage = int64_t;
  static int64_t Place(int64_t value) noexcept { return std::max(value, kUnordered + 1); }
};

struct WholeU64 {
  using Storage = uint64_t;
  static int64_t Place(uint64_t value) noexcept {
    return WholeI64::Place(static_cast<int64_t>(value ^ (uint64_t{1} << 63)));
  }
};

template <typename Rule>
void PlaceAll(std::span<const std::byte> bytes, int64_t first, std::span<int64_t> out) noexcept {
  using Storage = typename Rule::Storage;
  const std::byte* source = bytes.data() + static_cast<size_t>(first) * sizeof(Storage);
  for (size_t i = 0; i < out.size(); ++i) {
    Storage code;
    std::memcpy(&code, source + i * sizeof(Storage), sizeof(Storage));
    out[i] = Rule::Place(code);
  }
}

template <int kBits>
void PlaceAllPacked(std::span<const std::byte> bytes, int64_t first,
                    std::span<int64_t> out) noexcept {
  using Rule = SignMagnitude<uint8_t, kBits, (1u << (kBits - 1)) - 1>;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t bit = (static_cast<size_t>(first) + i) * kBits;
    const size_t byte = bit / 8;
    unsigned window = std::to_integer<unsigned>(bytes[byte]);
    if (bit % 8 + kBits > 8) window |= std::to_integer<unsigned>(bytes[byte + 1]) << 8;
    out[i] = Rule::Place(static_cast<uint8_t>((window >> (bit % 8)) & ((1u << kBits) - 1)));
  }
}

}  // namespace

bool HasUlpOrder(DType dtype) noexcept { return dtype != DType::kC64 && dtype != DType::kUnknown; }

bool HasSign(DType dtype) noexcept { return HasUlpOrder(dtype) && dtype != DType::kU64; }

void UlpOrder(DType dtype, std::span<const std::byte> bytes, int64_t first,
              std::span<int64_t> out) {
  const auto end = CheckedAdd(first, static_cast<int64_t>(out.size()));
  const auto end_bits = end ? CheckedMul(*end, static_cast<int64_t>(BitsOf(dtype))) : std::nullopt;
  if (!HasUlpOrder(dtype) || first < 0 || !end_bits ||
      static_cast<uint64_t>(CeilDiv(*end_bits, int64_t{8})) > bytes.size()) {
    ThrowInternal("ulp order of {}: elements {} to {} lie outside {} bytes", NameOf(dtype), first,
                  end.value_or(first), bytes.size());
  }
  switch (dtype) {
    case DType::kF4:
      return PlaceAllPacked<4>(bytes, first, out);
    case DType::kF6E2M3:
    case DType::kF6E3M2:
      return PlaceAllPacked<6>(bytes, first, out);
    case DType::kF8E5M2:
      return PlaceAll<SignMagnitude<uint8_t, 8, 0x7C>>(bytes, first, out);
    case DType::kF8E4M3:
      return PlaceAll<SignMagnitude<uint8_t, 8, 0x7E>>(bytes, first, out);
    case DType::kF8E8M0:
      return PlaceAll<Exponent>(bytes, first, out);
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz:
      return PlaceAll<Fnuz>(bytes, first, out);
    case DType::kF16:
      return PlaceAll<SignMagnitude<uint16_t, 16, 0x7C00>>(bytes, first, out);
    case DType::kBF16:
      return PlaceAll<SignMagnitude<uint16_t, 16, 0x7F80>>(bytes, first, out);
    case DType::kF32:
      return PlaceAll<SignMagnitude<uint32_t, 32, 0x7F800000>>(bytes, first, out);
    case DType::kF64:
      return PlaceAll<SignMagnitude<uint64_t, 64, 0x7FF0000000000000>>(bytes, first, out);
    case DType::kBool:
    case DType::kU8:
      return PlaceAll<Whole<uint8_t>>(bytes, first, out);
    case DType::kI8:
      return PlaceAll<Whole<int8_t>>(bytes, first, out);
    case DType::kI16:
      return PlaceAll<Whole<int16_t>>(bytes, first, out);
    case DType::kU16:
      return PlaceAll<Whole<uint16_t>>(bytes, first, out);
    case DType::kI32:
      return PlaceAll<Whole<int32_t>>(bytes, first, out);
    case DType::kU32:
      return PlaceAll<Whole<uint32_t>>(bytes, first, out);
    case DType::kI64:
      return PlaceAll<WholeI64>(bytes, first, out);
    case DType::kU64:
      return PlaceAll<WholeU64>(bytes, first, out);
    case DType::kC64:
    case DType::kUnknown:
      break;
  }
}

void UlpHistogram::Add(std::span<const int64_t> a, std::span<const int64_t> b) noexcept {
  for (size_t i = 0; i < a.size(); ++i) {
    if ((a[i] == kUnordered) != (b[i] == kUnordered)) {
      ++num_unordered_;
      continue;
    }
    const uint64_t distance = UlpDistance(a[i], b[i]);
    max_ulp_ = std::max(max_ulp_, distance);
    ++counts_[distance == 0 ? 0 : static_cast<size_t>(std::bit_width(distance - 1)) + 1];
  }
}

void UlpHistogram::Merge(const UlpHistogram& other) noexcept {
  for (size_t bucket = 0; bucket < kNumBuckets; ++bucket) counts_[bucket] += other.counts_[bucket];
  num_unordered_ += other.num_unordered_;
  max_ulp_ = std::max(max_ulp_, other.max_ulp_);
}

uint64_t UlpHistogram::FirstOf(size_t bucket) noexcept {
  if (bucket < 2) return bucket;
  return (uint64_t{1} << (bucket - 2)) + 1;
}

uint64_t UlpHistogram::LastOf(size_t bucket) noexcept {
  if (bucket < 2) return bucket;
  return bucket == kNumBuckets - 1 ? std::numeric_limits<uint64_t>::max()
                                   : uint64_t{1} << (bucket - 1);
}

}  // namespace assay

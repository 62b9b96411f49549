#include "assay/numeric/bit_packing.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "assay/base/error.h"

namespace assay {
namespace {

static_assert(std::endian::native == std::endian::little);

/// Joins the fields of `width` bits at the bottom of each two neighbouring lanes of `lane` bits
/// into one field of 2 · width bits at the bottom of a lane of 2 · lane bits.
uint64_t JoinPairs(uint64_t x, int lane, int width, uint64_t every_double_lane) noexcept {
  const uint64_t lower = ((uint64_t{1} << width) - 1) * every_double_lane;
  return (x & lower) | (x >> (lane - width) & lower << width);
}

/// The inverse of JoinPairs.
uint64_t SplitPairs(uint64_t x, int lane, int width, uint64_t every_double_lane) noexcept {
  const uint64_t lower = ((uint64_t{1} << width) - 1) * every_double_lane;
  return (x & lower) | (x & lower << width) << (lane - width);
}

constexpr uint64_t kEvery16 = 0x0001000100010001u;
constexpr uint64_t kEvery32 = 0x0000000100000001u;

/// The low `bits` bits of each of 8 bytes, gathered in order into the low 8 · bits bits.
uint64_t Squeeze(uint64_t x, int bits) noexcept {
  x = JoinPairs(x, 8, bits, kEvery16);
  x = JoinPairs(x, 16, 2 * bits, kEvery32);
  return JoinPairs(x, 32, 4 * bits, 1);
}

/// The inverse: each of the low 8 fields of `bits` bits into a byte of its own.
uint64_t Spread(uint64_t x, int bits) noexcept {
  x = SplitPairs(x, 32, 4 * bits, 1);
  x = SplitPairs(x, 16, 2 * bits, kEvery32);
  return SplitPairs(x, 8, bits, kEvery16);
}

void RequireBits(int bits) {
  if (bits < 1 || bits > 8) ThrowInternal("bit packing: {} bits, expected 1 to 8", bits);
}

/// Fewer than 8 codes at the end of a stream.
void PackTail(int bits, std::span<const uint8_t> codes, std::byte* out) noexcept {
  uint64_t bytes = 0;
  std::memcpy(&bytes, codes.data(), codes.size());
  const uint64_t packed = Squeeze(bytes, bits);
  std::memcpy(out, &packed, NumBytesFor(bits, codes.size()));
}

/// Codes of one group of 8 that has only num_bytes of its bytes.
uint64_t SpreadPartial(int bits, const std::byte* bytes, size_t num_bytes) noexcept {
  uint64_t packed = 0;
  std::memcpy(&packed, bytes, num_bytes);
  return Spread(packed, bits);
}

template <int kBits>
size_t PackGroups(std::span<const uint8_t> codes, std::span<std::byte> out) noexcept {
  const size_t num_groups = codes.size() / 8;
  // A whole word is stored for each group while there is room; later groups overwrite the excess.
  const size_t whole = std::min(num_groups, out.size() < 8 ? 0 : (out.size() - 8) / kBits + 1);
  for (size_t group = 0; group < whole; ++group) {
    uint64_t bytes;
    std::memcpy(&bytes, codes.data() + group * 8, 8);
    const uint64_t packed = Squeeze(bytes, kBits);
    std::memcpy(out.data() + group * kBits, &packed, 8);
  }
  for (size_t group = whole; group < num_groups; ++group) {
    PackTail(kBits, codes.subspan(group * 8, 8), out.data() + group * kBits);
  }
  return num_groups;
}

template <int kBits>
size_t UnpackGroups(std::span<const std::byte> bytes, std::span<uint8_t> out) noexcept {
  const size_t num_groups = out.size() / 8;
  const size_t whole = std::min(num_groups, bytes.size() < 8 ? 0 : (bytes.size() - 8) / kBits + 1);
  for (size_t group = 0; group < num_groups; ++group) {
    uint64_t packed = 0;
    std::memcpy(&packed, bytes.data() + group * kBits, group < whole ? 8 : kBits);
    const uint64_t codes = Spread(packed, kBits);
    std::memcpy(out.data() + group * 8, &codes, 8);
  }
  return num_groups;
}

/// Calls the instantiation for `bits`, so that every shift and mask is a constant.
template <typename Groups>
size_t ForBits(int bits, const Groups& groups) {
  switch (bits) {
    case 1:
      return groups.template operator()<1>();
    case 2:
      return groups.template operator()<2>();
    case 3:
      return groups.template operator()<3>();
    case 4:
      return groups.template operator()<4>();
    case 5:
      return groups.template operator()<5>();
    case 6:
      return groups.template operator()<6>();
    default:
      return groups.template operator()<7>();
  }
}

}  // namespace

void PackBits(int bits, std::span<const uint8_t> codes, std::span<std::byte> out) {
  RequireBits(bits);
  const size_t num_bytes = NumBytesFor(bits, codes.size());
  if (out.size() < num_bytes) {
    ThrowInternal("packing {} codes of {} bits: expected {} bytes, found {}", codes.size(), bits,
                  num_bytes, out.size());
  }
  if (codes.empty()) return;
  if (bits == 8) {
    std::memcpy(out.data(), codes.data(), codes.size());
    return;
  }
  out = out.first(num_bytes);
  const size_t groups = ForBits(bits, [&]<int kBits>() { return PackGroups<kBits>(codes, out); });
  if (groups * 8 < codes.size()) {
    PackTail(bits, codes.subspan(groups * 8), out.data() + groups * static_cast<size_t>(bits));
  }
}

void UnpackBits(int bits, std::span<const std::byte> bytes, size_t first_code,
                std::span<uint8_t> out) {
  RequireBits(bits);
  const size_t capacity = bytes.size() / static_cast<size_t>(bits) * 8 +
                          bytes.size() % static_cast<size_t>(bits) * 8 / static_cast<size_t>(bits);
  if (first_code > capacity || out.size() > capacity - first_code) {
    ThrowInternal("unpacking {} codes of {} bits from code {}: {} bytes hold {}", out.size(), bits,
                  first_code, bytes.size(), capacity);
  }
  if (out.empty()) return;
  if (bits == 8) {
    std::memcpy(out.data(), bytes.data() + first_code, out.size());
    return;
  }
  bytes = bytes.subspan(first_code / 8 * static_cast<size_t>(bits));
  if (const size_t skipped = first_code % 8; skipped != 0) {
    const uint64_t codes =
        SpreadPartial(bits, bytes.data(), std::min(bytes.size(), static_cast<size_t>(bits)));
    const size_t head = std::min(out.size(), 8 - skipped);
    std::memcpy(out.data(), reinterpret_cast<const std::byte*>(&codes) + skipped, head);
    out = out.subspan(head);
    if (out.empty()) return;
    bytes = bytes.subspan(static_cast<size_t>(bits));
  }
  const size_t groups = ForBits(bits, [&]<int kBits>() { return UnpackGroups<kBits>(bytes, out); });
  if (const size_t left = out.size() - groups * 8; left != 0) {
    const uint64_t codes = SpreadPartial(bits, bytes.data() + groups * static_cast<size_t>(bits),
                                         NumBytesFor(bits, left));
    std::memcpy(out.data() + groups * 8, &codes, left);
  }
}

}  // namespace assay

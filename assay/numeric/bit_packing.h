#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace assay {

/// Bytes that `num_values` codes of `bits` bits take, the last one padded with zero bits.
constexpr size_t NumBytesFor(int bits, size_t num_values) noexcept {
  const auto width = static_cast<size_t>(bits);
  return num_values / 8 * width + (num_values % 8 * width + 7) / 8;
}

/// Packs codes of 1 to 8 bits into one dense stream.
/// Layout: code i takes bits [i · bits, (i + 1) · bits) of the stream, bit j of the stream is bit
///         j % 8 of byte j / 8 (least significant first). Three 3-bit codes a, b, c:
///
///             byte 0: c1 c0 b2 b1 b0 a2 a1 a0      byte 1: -- -- -- -- -- -- -- c2
///
/// Values: bits of a code above `bits` are dropped; unused bits of the last byte become zero.
/// Requires 1 ≤ bits ≤ 8, out.size() ≥ NumBytesFor(bits, codes.size()). Errors: internal.
void PackBits(int bits, std::span<const uint8_t> codes, std::span<std::byte> out);

/// Reads out.size() codes from code `first_code` of such a stream.
/// Requires NumBytesFor(bits, first_code + out.size()) ≤ bytes.size(). Errors: internal.
void UnpackBits(int bits, std::span<const std::byte> bytes, size_t first_code,
                std::span<uint8_t> out);

}  // namespace assay

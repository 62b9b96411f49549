#include "assay/numeric/bulk.h"

#include <cstring>

#include "assay/base/error.h"

namespace assay {
namespace {

void RequireBytes(Element element, size_t num_values, size_t num_bytes) {
  const size_t needed = NumBytesFor(BitsOf(element), num_values);
  if (num_bytes < needed) {
    ThrowInternal("{} values of {}: expected {} bytes, found {}", num_values, NameOf(element),
                  needed, num_bytes);
  }
}

uint32_t LoadCode(const std::byte* codes, int bits, size_t index) noexcept {
  uint32_t code = 0;
  const size_t first_bit = index * static_cast<size_t>(bits);
  const size_t first = first_bit / 8;
  const size_t last = (first_bit + static_cast<size_t>(bits) - 1) / 8;
  std::memcpy(&code, codes + first, last - first + 1);
  code >>= first_bit % 8;
  return bits == 32 ? code : code & ((1u << bits) - 1);
}

template <typename Convert>
void RoundWith(const Convert& convert, Element element, std::span<const float> values,
               std::span<std::byte> codes) {
  RequireBytes(element, values.size(), codes.size());
  const int bits = BitsOf(element);
  uint64_t pending = 0;
  int num_pending = 0;
  std::byte* out = codes.data();
  for (const float x : values) {
    pending |= static_cast<uint64_t>(convert(element, x)) << num_pending;
    for (num_pending += bits; num_pending >= 8; num_pending -= 8, pending >>= 8) {
      *out++ = static_cast<std::byte>(pending & 0xFF);
    }
  }
  if (num_pending > 0) *out = static_cast<std::byte>(pending);
}

}  // namespace

void Widen(Element element, std::span<const std::byte> codes, std::span<float> out) {
  RequireBytes(element, out.size(), codes.size());
  const int bits = BitsOf(element);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = ToFloat(element, LoadCode(codes.data(), bits, i));
  }
}

void Round(Element element, std::span<const float> values, std::span<std::byte> codes) {
  RoundWith(FromFloat, element, values, codes);
}

void RoundSaturating(Element element, std::span<const float> values, std::span<std::byte> codes) {
  RoundWith(FromFloatSaturating, element, values, codes);
}

}  // namespace assay

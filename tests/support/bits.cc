#include "tests/support/bits.h"

#include "assay/numeric/element.h"

namespace assay::test {

float ElementAsFloat(DType dtype, const std::byte* at) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t code = 0;
  std::memcpy(&code, at, sizeof(code));
  return dtype == DType::kBF16 ? BF16ToFloat(code) : F16ToFloat(code);
}

int64_t DifferentValues(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b,
                        Zeros zeros) {
  EXPECT_EQ(a.size(), b.size());
  const auto bytes = static_cast<size_t>(BitsOf(dtype) / 8);
  int64_t different = 0;
  for (size_t i = 0; i + bytes <= std::min(a.size(), b.size()); i += bytes) {
    const float x = ElementAsFloat(dtype, &a[i]);
    const float y = ElementAsFloat(dtype, &b[i]);
    if (std::isnan(x) && std::isnan(y)) continue;
    if (zeros == Zeros::kUnsigned && x == 0 && y == 0) continue;
    different += std::bit_cast<uint32_t>(x) != std::bit_cast<uint32_t>(y);
  }
  return different;
}

}  // namespace assay::test

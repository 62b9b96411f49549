#include "assay/formats/affine_kernels.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "assay/formats/planes.h"
#include "assay/numeric/element.h"

namespace assay::affine_internal {
namespace {

template <typename T>
T Load(const std::byte* from, int64_t index) noexcept {
  T value;
  std::memcpy(&value, from + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void Store(T value, std::byte* to, int64_t index) noexcept {
  std::memcpy(to + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

float LoadFloat(DType dtype, const std::byte* from, int64_t index) noexcept {
  if (dtype == DType::kBF16) return BF16ToFloat(Load<uint16_t>(from, index));
  if (dtype == DType::kF16) return F16ToFloat(Load<uint16_t>(from, index));
  return Load<float>(from, index);
}

void StoreFloat(DType dtype, float value, std::byte* to, int64_t index) noexcept {
  if (std::isnan(value)) value = std::bit_cast<float>(0x7FC00000U);
  if (dtype == DType::kBF16) {
    Store(FloatToBF16(value), to, index);
  } else if (dtype == DType::kF16) {
    Store(FloatToF16(value), to, index);
  } else {
    Store(value, to, index);
  }
}

}  // namespace

void DecodeGroupsScalar(const Geometry& geometry, const std::byte* codes, const std::byte* scales,
                        const std::byte* biases, int64_t num_groups, DecodeRounding rounding,
                        DType out_dtype, std::byte* out) noexcept {
  const DType step_dtype = rounding == DecodeRounding::kNone ? DType::kF32 : geometry.dtype;
  const uint64_t mask = (uint64_t{1} << geometry.bits) - 1;
  for (int64_t g = 0; g < num_groups; ++g) {
    const float scale = LoadFloat(geometry.dtype, scales, g);
    const float bias = LoadFloat(geometry.dtype, biases, g);
    uint64_t pending = 0;
    int num_pending = 0;
    for (int i = 0; i < geometry.group_size; ++i) {
      for (; num_pending < geometry.bits; num_pending += 8) {
        pending |= std::to_integer<uint64_t>(*codes++) << num_pending;
      }
      const float code = static_cast<float>(pending & mask);
      pending >>= geometry.bits;
      num_pending -= geometry.bits;
      const float value = RoundToDType(step_dtype, RoundToDType(step_dtype, code * scale) + bias);
      StoreFloat(out_dtype, value, out, g * geometry.group_size + i);
    }
  }
}

}  // namespace assay::affine_internal

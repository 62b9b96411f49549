#include "assay/formats/affine_kernels.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "assay/numeric/element.h"

namespace assay::affine_internal {
namespace {

constexpr int kMaxGroupSize = 128;
constexpr float kEpsilon = 1e-7F;

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

float RoundTo(DType dtype, float value) noexcept {
  if (dtype == DType::kBF16) return RoundToBF16(value);
  if (dtype == DType::kF16) return RoundToF16(value);
  return value;
}

struct Parameters {
  float scale;
  float bias;
};

/// False when the group cannot be encoded.
bool ChooseParameters(int bits, const float* values, int group_size, Parameters& chosen) noexcept {
  float low = std::numeric_limits<float>::infinity();
  float high = -low;
  for (int i = 0; i < group_size; ++i) {
    if (!std::isfinite(values[i])) return false;
    high = high < values[i] ? values[i] : high;
    low = values[i] < low ? values[i] : low;
  }
  if (std::isinf(high - low)) return false;
  const bool low_is_edge = std::fabs(low) > std::fabs(high);
  float scale = (high - low) / static_cast<float>((1 << bits) - 1);
  if (scale < kEpsilon) scale = kEpsilon;
  if (!low_is_edge) scale = -scale;
  const float edge = low_is_edge ? low : high;
  const float steps = std::nearbyint(edge / scale);
  chosen = steps != 0 ? Parameters{edge / steps, edge} : Parameters{scale, 0.0F};
  return true;
}

}  // namespace

int64_t EncodeGroups(const Geometry& geometry, const std::byte* values, int64_t num_groups,
                     std::byte* codes, std::byte* scales, std::byte* biases) noexcept {
  const int group_size = geometry.group_size;
  const float top = static_cast<float>((1 << geometry.bits) - 1);
  std::array<float, kMaxGroupSize> group;
  for (int64_t g = 0; g < num_groups; ++g) {
    for (int i = 0; i < group_size; ++i) {
      group[static_cast<size_t>(i)] = LoadFloat(geometry.dtype, values, g * group_size + i);
    }
    Parameters chosen{};
    if (!ChooseParameters(geometry.bits, group.data(), group_size, chosen)) return g;
    uint64_t pending = 0;
    int num_pending = 0;
    for (int i = 0; i < group_size; ++i) {
      float steps = std::nearbyint((group[static_cast<size_t>(i)] - chosen.bias) / chosen.scale);
      steps = steps < 0 ? 0 : steps;
      steps = steps > top ? top : steps;
      // A scale of −0 (constant group beyond 3.4e31) makes 0 / −0: code 0 decodes to the constant.
      pending |= uint64_t{std::isnan(steps) ? 0U : static_cast<uint32_t>(steps)} << num_pending;
      num_pending += geometry.bits;
      for (; num_pending >= 8; num_pending -= 8, pending >>= 8) {
        *codes++ = static_cast<std::byte>(pending & 0xFF);
      }
    }
    StoreFloat(geometry.dtype, chosen.scale, scales, g);
    StoreFloat(geometry.dtype, chosen.bias, biases, g);
  }
  return num_groups;
}

void DecodeGroups(const Geometry& geometry, const std::byte* codes, const std::byte* scales,
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
      const float value = RoundTo(step_dtype, RoundTo(step_dtype, code * scale) + bias);
      StoreFloat(out_dtype, value, out, g * geometry.group_size + i);
    }
  }
}

}  // namespace assay::affine_internal

#include "assay/kernels/activations.h"

#include <bit>
#include <cstring>

#include "assay/base/error.h"
#include "assay/numeric/bulk.h"

namespace assay {

Activations::Activations(DType dtype, int64_t num_rows, int64_t cols,
                         std::span<const std::byte> bytes)
    : dtype_(dtype), num_rows_(num_rows), cols_(cols), bytes_(bytes) {
  if (dtype != DType::kF32 && dtype != DType::kBF16) {
    ThrowUsage("activations: expected F32 or BF16, found {}", NameOf(dtype));
  }
  const auto num_bytes = static_cast<size_t>(num_rows * cols * (BitsOf(dtype) / 8));
  if (bytes.size() != num_bytes) {
    ThrowInternal("activations [{}, {}] of {}: expected {} bytes, found {}", num_rows, cols,
                  NameOf(dtype), num_bytes, bytes.size());
  }
}

const float* Activations::F32() const {
  if (f32_ != nullptr) return f32_;
  const auto count = static_cast<size_t>(num_rows_ * cols_);
  if (dtype_ == DType::kF32 && reinterpret_cast<uintptr_t>(bytes_.data()) % alignof(float) == 0) {
    f32_ = reinterpret_cast<const float*>(bytes_.data());
    return f32_;
  }
  widened_.Resize(count);
  if (dtype_ == DType::kF32) {
    std::memcpy(widened_.data(), bytes_.data(), count * sizeof(float));
  } else {
    Widen(Element::kBF16, bytes_, {widened_.data(), count});
  }
  f32_ = widened_.data();
  return f32_;
}

bool Activations::AllFinite() const {
  if (finite_ < 0) {
    const float* values = F32();
    const auto count = static_cast<size_t>(num_rows_ * cols_);
    constexpr uint32_t kExponent = 0x7F800000u;
    uint32_t bad = 0;
    for (size_t i = 0; i < count; ++i) {
      bad |= (std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent ? 1u : 0u;
    }
    finite_ = bad == 0 ? 1 : 0;
  }
  return finite_ == 1;
}

}  // namespace assay

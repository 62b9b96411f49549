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
  Classify();
  return finite_;
}

bool Activations::HasTiny() const {
  Classify();
  return tiny_;
}

void Activations::Classify() const {
  if (classified_) return;
  const float* values = F32();
  const auto count = static_cast<size_t>(num_rows_ * cols_);
  constexpr uint32_t kInfinity = 0x7F800000u;
  constexpr uint32_t kTiny = (127u - 100u) << 23;
  uint32_t largest = 0;
  uint32_t smallest = kInfinity;  // of those that are not 0: 0 − 1 wraps to the top
  for (size_t i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFFu;
    largest = largest < magnitude ? magnitude : largest;
    smallest = magnitude - 1 < smallest ? magnitude - 1 : smallest;
  }
  finite_ = largest < kInfinity;
  tiny_ = smallest < kTiny - 1;
  classified_ = true;
}

}  // namespace assay

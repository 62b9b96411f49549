#pragma once

#include <cstdint>
#include <span>

#include "assay/numeric/element.h"
#include "assay/tensor/tensor.h"

namespace assay {

/// The element type of a dtype that WidensToFloat. Errors: internal for others.
Element ElementOf(DType dtype);

/// Widens out.size() elements from element `first`, exactly. Requires a dtype that WidensToFloat
/// and elements inside the tensor's bytes. Errors: internal.
void ReadFloats(const TensorView& tensor, int64_t first, std::span<float> out);

/// x rounded once to a dtype and widened again: bf16 and f16; x itself for others.
inline float RoundTo(DType dtype, float x) noexcept {
  if (dtype == DType::kBF16) return RoundToBF16(x);
  if (dtype == DType::kF16) return RoundToF16(x);
  return x;
}

}  // namespace assay

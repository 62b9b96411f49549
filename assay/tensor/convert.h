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

}  // namespace assay

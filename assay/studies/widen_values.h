#pragma once

#include <cstddef>
#include <span>

#include "assay/tensor/dtype.h"

namespace assay {

/// Widens out.size() elements of any type that holds single numbers to f64: exactly, but for 64-bit
/// integers beyond 2^53, which round to nearest.
/// Requires bytes of that many elements, packed types starting on a byte. Errors: internal for C64
/// and unknown types.
void WidenToDouble(DType dtype, std::span<const std::byte> bytes, std::span<double> out);

}  // namespace assay

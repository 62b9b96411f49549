#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "assay/numeric/bit_packing.h"
#include "assay/numeric/element.h"

namespace assay {

/// Widens out.size() consecutive elements. Vectorised; the bits of ToFloat on every target.
/// Layout: little-endian; fp4 and fp6 dense, least significant bit first, starting at a byte.
/// Requires codes.size() ≥ NumBytesFor(BitsOf(element), out.size()); any alignment.
/// Errors: internal. Accuracy: exact. Cost: one pass.
void Widen(Element element, std::span<const std::byte> codes, std::span<float> out);

/// Rounds each value with the type's non-saturating conversion (nearest even; fp4 and fp6
/// saturate): the bits of FromFloat on every target. Layout, Requires, Errors: as Widen.
/// Unused bits of a last partial byte become zero.
void Round(Element element, std::span<const float> values, std::span<std::byte> codes);

/// The same with FromFloatSaturating.
void RoundSaturating(Element element, std::span<const float> values, std::span<std::byte> codes);

}  // namespace assay

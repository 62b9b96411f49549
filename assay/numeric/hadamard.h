#pragma once

#include <cstddef>
#include <span>

namespace assay {

/// Walsh–Hadamard transform in place, natural (Hadamard) order, not normalised: applied twice it
/// multiplies by the size.
/// Values: for stride 1, 2, 4, … size/2, each pair (j, j + stride) becomes (a + b, a − b) in f32.
///         The ascending order is part of the definition: another one rounds differently.
/// Requires a size that is a power of two. Errors: internal.
/// Accuracy: exact; these bits on every target, for values that are not NaN.
void WalshHadamard(std::span<float> values);

/// The same on each of the consecutive blocks of `block` values: one dispatch for all of them.
/// Requires a power of two that divides values.size(). Errors: internal.
void WalshHadamardBlocks(size_t block, std::span<float> values);

}  // namespace assay

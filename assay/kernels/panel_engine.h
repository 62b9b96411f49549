#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "assay/kernels/kernel_family.h"

namespace assay {

/// Rows of x multiplied at a time: their block of columns fits the second-level cache.
inline constexpr int64_t kMaxXBlock = 512;
/// Rows of W whose sums are held before y is written: x is read from memory once for each block.
inline constexpr int64_t kMaxRowBlock = 512;
/// Results from this size on would push the next call's operands out of the caches.
inline constexpr int64_t kStreamBytes = int64_t{1} << 22;

/// The product of many rows of x with any encoded weight: panels of W decoded into a core's cache,
/// each multiplied by every row of x before the next. Never more than a few MiB of decoded weights.
/// Layout:   a panel's rows are the rows of W as they lie; x is packed once a call in tiles of
///           columns; the sums stand transposed, C[n][m], and are turned on the way to y.
///
///               x packed: [k block][tile of rows of x][k][row]        (once a call)
///               block of W rows:  for each k block
///                                   for each panel: decode, multiply by every tile of x
///                                 turn C, write y
///
/// Values:   two engines, the first of which may decline an x: bf16 tiles, then f32
///           multiply-adds, which take every x and every weight: nothing is flushed, infinities
///           and NaN go through.
/// Accuracy: bounded; the order of summation depends on K and the instruction set alone.
/// Takes no x of fewer rows than a switch-over fixed by the instruction set (docs/kernels.md);
/// `beside_family` tells that the family's own kernels serve small ones.
void AddPanelEngines(const KernelRequest& request, bool beside_family,
                     std::vector<std::unique_ptr<ProductKernel>>& kernels);

}  // namespace assay

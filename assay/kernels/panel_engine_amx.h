#pragma once

#include <memory>

#include "assay/kernels/kernel_family.h"

namespace assay {

/// The panel engine on AMX: W is the tile operand A, its rows as they lie, x the operand B.
/// Values:   W enters as bf16 where the request's rounding makes its values bf16; else, and for f32
///           x that is not bf16 throughout, a factor is the sum of two bf16 terms and the product
///           of the two second terms is dropped. Second terms that are all 0 (scaled small floats)
///           cost nothing. Cost in tile products: 1 for bf16 · bf16, 2 with one factor split, 3
///           with both.
///           Weights from 0x1.FFp127 on become infinite (the bound does not hold for those rows).
///           The hardware takes factors and sums below 2^-126 as 0: part of the bound.
/// Declines: fewer rows of x than min_x_rows, and x that bf16 cannot hold: infinities, NaN,
///           magnitudes from 0x1.FFp127 on.
/// Null where the CPU or the active target has no such tiles.
std::unique_ptr<ProductKernel> MakeTilePanelEngine(const KernelRequest& request,
                                                   int64_t min_x_rows);

}  // namespace assay

#pragma once

#include <cstdint>
#include <span>

#include "assay/kernels/kernel_family.h"

namespace assay {

/// bounds[m · N + n] of Accuracy's definition for this x, in double. a8_group > 0 adds the rounding
/// of x to int8: half a step of each group's scale on every term.
void ComputeErrorBounds(const EncodedMatrix& weight, DecodeRounding rounding, const Activations& x,
                        const Accuracy& accuracy, int64_t a8_group, std::span<double> bounds);

}  // namespace assay

#pragma once

#include <memory>

#include "assay/kernels/kernel_family.h"

namespace assay {

/// Kernels of f32, f16 and bf16 weights: the baseline that every ratio refers to.
extern const KernelFamily kPlainKernels;

}  // namespace assay

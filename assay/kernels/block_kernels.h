#pragma once

#include <memory>

#include "assay/kernels/kernel_family.h"

namespace assay {

/// Kernels of the formats whose blocks of small floats share a scale byte: microscaling, nvfp4 and
/// MLX's floating-point modes.
extern const KernelFamily kBlockKernels;

}  // namespace assay

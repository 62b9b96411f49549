#pragma once

#include "assay/kernels/kernel_family.h"

namespace assay {

/// Kernels of TurboQuant: x is rotated once per call, W stays in code space.
extern const KernelFamily kTurboQuantKernels;

}  // namespace assay

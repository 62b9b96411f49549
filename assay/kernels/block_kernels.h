#pragma once

#include <memory>

#include "assay/formats/block_format.h"
#include "assay/kernels/kernel_family.h"

namespace assay {

/// Kernels of the formats whose blocks of small floats share a scale byte: microscaling, nvfp4 and
/// MLX's floating-point modes.
extern const KernelFamily kBlockKernels;

/// e2m1 elements in f32 lanes on every instruction set, up to 16 rows of x; null for other
/// elements.
std::unique_ptr<ProductKernel> MakeE2M1Lanes(const EncodedMatrix& weight, const BlockFormat& format,
                                             const BlockFormat::ScaleValues& scale_table);

}  // namespace assay

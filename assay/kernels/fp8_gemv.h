#pragma once

#include <array>
#include <memory>

#include "assay/formats/block_format.h"
#include "assay/kernels/kernel_family.h"

namespace assay {

/// Kernels of e4m3 codes under block, row or tensor scales.
extern const KernelFamily kFp8Kernels;

/// e4m3 or e5m2 elements under scale bytes of value `scale_table`, every 32 columns. Null for other
/// elements and blocks, for matrices that hold the NaN of e4m3 or huge scales (`used`: the scale
/// bytes that occur), and without AVX-512.
std::unique_ptr<ProductKernel> MakeFp8Blocks(const EncodedMatrix& weight, const BlockFormat& format,
                                             const BlockFormat::ScaleValues& scale_table,
                                             const std::array<bool, 256>& used);

}  // namespace assay

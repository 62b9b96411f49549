#pragma once

#include <memory>

#include "assay/kernels/ggml_repack.h"
#include "assay/kernels/kernel_family.h"

namespace assay {

/// Kernels of ggml's block types. Blocks are repacked into planes once, at preparation.
extern const KernelFamily kGgmlKernels;

/// Codes of RepackGgml's planes against x in signed base-256 digits, as MakeAffineDigits. Requires
/// HasAvx512Vnni().
std::unique_ptr<ProductKernel> MakeGgmlDigits(const EncodedMatrix& planes,
                                              const GgmlPacking& packing, bool a8);

/// Planes of WidenGgml in f32 lanes on every instruction set, up to 16 rows of x.
std::unique_ptr<ProductKernel> MakeGgmlLanes(const EncodedMatrix& planes,
                                             const GgmlPacking& packing);

}  // namespace assay

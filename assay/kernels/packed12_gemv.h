#pragma once

#include <memory>

#include "assay/kernels/kernel_family.h"

namespace assay {

/// Kernels of packed12: rows decoded in registers, escapes added as a sparse product.
extern const KernelFamily kPacked12Kernels;

}  // namespace assay

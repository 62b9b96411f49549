#pragma once

#include <memory>

#include "assay/kernels/kernel_family.h"

namespace assay {

/// The kernel every format has: a panel of rows decoded into a cache, then f32 multiply-adds; any
/// number of rows of x, any values.
std::unique_ptr<ProductKernel> MakeGenericProduct(const KernelRequest& request);

}  // namespace assay

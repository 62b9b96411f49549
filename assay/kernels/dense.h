#pragma once

#include <cstdint>
#include <string>

#include "assay/tensor/dtype.h"

namespace assay {

/// y[m, n] = Σ_k x[m, k] · w[n, k] with f32 accumulation, by the dense library.
/// Why: one thin wrapper, so that everything else is free of the library's types.
/// Layout: x [M, K], w [N, K], y [M, N], row-major, x and w of `dtype`: F32, or BF16 where
/// DenseSupports says so.
/// Cost: ParallelFor's number of threads. The library chooses the order of summation: bits may
/// depend on the machine and on the number of threads.
/// Errors: usage for another dtype; internal when the library fails.
void DenseProduct(DType dtype, int64_t num_x_rows, int64_t num_w_rows, int64_t k, const void* x,
                  const void* w, float* y);

/// F32 always; BF16 where the CPU multiplies bf16 (AVX-512 BF16 or AMX).
bool DenseSupports(DType dtype);

/// "oneDNN 2.6.3".
std::string DenseLibraryName();

}  // namespace assay

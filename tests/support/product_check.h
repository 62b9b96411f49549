#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "assay/kernels/matmul.h"

namespace assay {

/// Normal values of a fixed generator.
std::vector<float> RandomValues(int64_t count, uint32_t seed);

/// A random matrix whose rows differ in size by powers of two (some tiny, some large, some zero),
/// rounded to `dtype` and encoded.
EncodedMatrix EncodeRandom(std::string_view format, int64_t rows, int64_t cols, DType dtype,
                           uint32_t seed);

/// y of f32 activations, pre-filled with NaN.
std::vector<float> Product(const EncodedMatrix& weight, Strategy strategy,
                           const std::vector<float>& x, int64_t m,
                           const MatmulOptions& options = {.x_dtype = DType::kF32});

/// |y − reference| ≤ bound of the implementation that ran, for both weight roundings.
testing::AssertionResult WithinBound(const EncodedMatrix& weight, Strategy strategy,
                                     const std::vector<float>& x, int64_t m);

/// Equal bits for 1, 2, 3 and 5 threads.
testing::AssertionResult SameForAllThreadCounts(const EncodedMatrix& weight, Strategy strategy,
                                                const std::vector<float>& x, int64_t m);

/// Within the bound for N of every row class, each K given, M of every class; fused and fused-a8.
testing::AssertionResult HoldsForEveryShape(std::string_view format,
                                            const std::vector<int64_t>& cols, DType dtype);

/// Activations with zeros, subnormals, huge and tiny groups: within the bound. NaN and infinity:
/// the same class (finite, +inf, −inf, NaN) as the reference.
testing::AssertionResult HoldsForHardInputs(std::string_view format, int64_t cols);

}  // namespace assay

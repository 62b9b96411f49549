#pragma once

#include <memory>

#include "assay/kernels/kernel_family.h"

namespace assay {

/// Kernels of the affine formats.
extern const KernelFamily kAffineKernels;

/// y = Σ_g s_g · (q·x)_g + b_g · (Σ x)_g with the codes against x written as signed base-256
/// digits: x of a group ≈ integer · absmax / scale, 24 bits of it (22 for 8-bit codes), or 8 bits
/// when `a8`. Whole products of a lane add exactly in int32. AVX-512 VNNI; null elsewhere.
std::unique_ptr<ProductKernel> MakeAffineDigits(const EncodedMatrix& weight, bool a8);

/// 2 to 16 rows of x: codes are exact in bf16, a group's product is exact in a tile, scales and
/// biases follow in f32. x keeps its precision (f32 as three bf16 terms). AMX; groups of 64 and
/// 128; null elsewhere.
std::unique_ptr<ProductKernel> MakeAffineTiles(const EncodedMatrix& weight);

/// Columns by whole groups, without a detour through rows. Null when the weight is not affine.
std::unique_ptr<PanelDecoder> MakeAffinePanelDecoder(const EncodedMatrix& weight,
                                                     DecodeRounding rounding);

/// Up to 16 rows of x in f32 on every instruction set: 2, 4 and 8 bits; null for the others.
std::unique_ptr<ProductKernel> MakeAffineLanes(const EncodedMatrix& weight);

}  // namespace assay

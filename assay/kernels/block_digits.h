#pragma once

#include <cstdint>
#include <memory>

#include "assay/formats/block_format.h"
#include "assay/kernels/kernel_family.h"

namespace assay {

enum class BlockScaleKind : uint8_t {
  kE8M0,  ///< bytes in use are 0 … 254 and mean 2^(byte − 127), 0 only over zeros
  kE4M3,  ///< every byte in use is 0 … 0x7E and means e4m3 · factor, to f32 rounding
};

/// What the scale bytes that a matrix uses mean.
struct BlockScales {
  BlockScaleKind kind = BlockScaleKind::kE8M0;
  float factor = 1;
};

/// e2m1, e2m3 and int8 elements are small integers: their products with x in digits are exact.
/// Null for other elements and without AVX-512 VNNI.
std::unique_ptr<ProductKernel> MakeBlockDigits(const EncodedMatrix& weight,
                                               const BlockFormat& format, const BlockScales& scales,
                                               bool a8);

}  // namespace assay

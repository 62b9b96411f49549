#pragma once

#include <memory>

#include "assay/kernels/matmul.h"

namespace assay {

/// What MakeMatmul chooses from; each prepares completely.
std::unique_ptr<Matmul> MakeReference(const EncodedMatrix& weight, const MatmulOptions& options);
std::unique_ptr<Matmul> MakeDequantGemm(const EncodedMatrix& weight, const MatmulOptions& options);
/// kFused or kFusedA8.
std::unique_ptr<Matmul> MakeFused(const EncodedMatrix& weight, Strategy strategy,
                                  const MatmulOptions& options);

}  // namespace assay

#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "assay/formats/format.h"
#include "assay/kernels/kernel_family.h"

namespace assay {

/// How far the two sides of a parity may lie apart when both do what they state, output by output:
///   |lhs − rhs| ≤ lhs arithmetic + rhs arithmetic + Σ|x_k|·|w_k − w'_k| + 2^-8 · (|lhs| + |rhs|)
/// where w are the weights of lhs (the format's equation), w' those of rhs (rounded as upstream's
/// dequantise rounds them, then to bf16), and the last term is the rounding of both y to bf16.
/// Why: a gate on an average passes a kernel that is wrong in a few outputs; this does not.
struct ParityBound {
  /// Means over the outputs of the four terms.
  double lhs_mean = 0;
  double rhs_mean = 0;
  double weights_mean = 0;
  double output_mean = 0;
  double at_max_abs = 0;     ///< of the output with the largest difference
  double largest_share = 0;  ///< largest |lhs − rhs| / bound
  int64_t largest_share_index = -1;
  int64_t num_exceeded = 0;  ///< outputs outside their bound; NaN counts as outside
  std::string lhs_formula;   ///< of the first two terms' coefficients, in K
  std::string rhs_formula;
};

/// What one side's arithmetic may add, per output: Matmul::ErrorBounds, or ComputeErrorBounds of an
/// Accuracy for a product that is no Matmul.
struct ParitySide {
  std::span<const float> y;  ///< rounded to bf16
  std::span<const double> bounds;
  std::string formula;
};

/// Requires y and bounds of weight.rows values, x of weight.cols bf16 codes widened.
/// Cost: decodes the weight twice. The same bits for every number of threads.
ParityBound MeasureParityBound(const EncodedMatrix& weight, std::span<const float> x,
                               const ParitySide& lhs, const ParitySide& rhs, int64_t max_abs_index);

}  // namespace assay

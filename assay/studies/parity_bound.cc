#include "assay/studies/parity_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "assay/base/parallel.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

/// Σ|x_k|·|w_k − w'_k| of every row.
std::vector<double> WeightTerms(const EncodedMatrix& weight, std::span<const float> x) {
  std::vector<double> terms(static_cast<size_t>(weight.rows));
  constexpr int64_t kRows = 16;
  ParallelFor(0, weight.rows, kRows, [&](int64_t first, int64_t last) {
    std::vector<float> exact(x.size());
    std::vector<float> rounded(x.size());
    for (int64_t row = first; row < last; ++row) {
      weight.format->DecodeRows(weight, row, 1, exact, DecodeRounding::kNone);
      weight.format->DecodeRows(weight, row, 1, rounded);
      double sum = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double difference =
            static_cast<double>(exact[i]) - static_cast<double>(RoundToBF16(rounded[i]));
        sum += std::fabs(static_cast<double>(x[i]) * difference);
      }
      terms[static_cast<size_t>(row)] = sum;
    }
  });
  return terms;
}

}  // namespace

ParityBound MeasureParityBound(const EncodedMatrix& weight, std::span<const float> x,
                               const ParitySide& lhs, const ParitySide& rhs,
                               int64_t max_abs_index) {
  const std::vector<double> weights = WeightTerms(weight, x);
  // bf16 instructions take subnormal operands for zeros.
  const double flushed = static_cast<double>(weight.cols) * 0x1p-125;
  ParityBound bound;
  bound.lhs_formula = lhs.formula;
  bound.rhs_formula = rhs.formula;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto a = static_cast<double>(lhs.y[i]);
    const auto b = static_cast<double>(rhs.y[i]);
    const double output = 0x1p-8 * (std::fabs(a) + std::fabs(b));
    const double total = lhs.bounds[i] + rhs.bounds[i] + weights[i] + output + flushed;
    bound.lhs_mean += lhs.bounds[i];
    bound.rhs_mean += rhs.bounds[i];
    bound.weights_mean += weights[i];
    bound.output_mean += output;
    const double difference = std::fabs(a - b);
    if (!(difference <= total)) ++bound.num_exceeded;
    double share = difference == 0 ? 0 : difference / total;
    if (std::isnan(share)) share = std::numeric_limits<double>::infinity();
    if (share > bound.largest_share || bound.largest_share_index < 0) {
      bound.largest_share = share;
      bound.largest_share_index = static_cast<int64_t>(i);
    }
    if (static_cast<int64_t>(i) == max_abs_index) bound.at_max_abs = total;
  }
  const auto count = static_cast<double>(std::max<size_t>(weights.size(), 1));
  for (double* mean : {&bound.lhs_mean, &bound.rhs_mean, &bound.weights_mean, &bound.output_mean}) {
    *mean /= count;
  }
  return bound;
}

}  // namespace assay

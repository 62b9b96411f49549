#include "assay/kernels/error_bounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "assay/base/parallel.h"
#include "assay/kernels/round_activations.h"

namespace assay {
namespace {

void TermMagnitudes(const EncodedMatrix& weight, DecodeRounding rounding, int64_t row,
                    std::span<float> scratch, std::span<double> out) {
  for (const KernelFamily* family : KernelFamilies()) {
    if (family->term_magnitudes != nullptr && family->term_magnitudes(weight, row, out)) return;
  }
  weight.format->DecodeRows(weight, row, 1, scratch, rounding);
  std::ranges::transform(scratch, out.begin(),
                         [](float w) { return std::fabs(static_cast<double>(w)); });
}

/// What one unit of t_k may add to the error: coefficient · x̂_k, an underflow, the int8 rounding.
std::vector<double> ErrorPerTerm(const Activations& x, const Accuracy& accuracy, int64_t a8_group) {
  const int64_t cols = x.cols();
  const float* values = x.F32();
  std::vector<double> error(static_cast<size_t>(x.num_rows() * cols));
  for (int64_t m = 0; m < x.num_rows(); ++m) {
    const float* row = values + m * cols;
    double* out = error.data() + m * cols;
    for (int64_t first = 0; first < cols; first += accuracy.x_block) {
      const int64_t last = std::min(first + accuracy.x_block, cols);
      double largest = 0;
      for (int64_t c = first; c < last; ++c) {
        largest = std::max(largest, std::fabs(static_cast<double>(row[c])));
      }
      for (int64_t c = first; c < last; ++c) out[c] = accuracy.coefficient * largest;
    }
    for (int64_t first = 0; a8_group > 0 && first < cols; first += a8_group) {
      const int64_t count = std::min(a8_group, cols - first);
      const double scale = static_cast<double>(A8Scale(row + first, count));
      // Half a step, and the division and product of the rounding itself.
      for (int64_t c = first; c < first + count; ++c) out[c] += scale * (0.5 + 0x1p-15);
    }
  }
  return error;
}

}  // namespace

void ComputeErrorBounds(const EncodedMatrix& weight, DecodeRounding rounding, const Activations& x,
                        const Accuracy& accuracy, int64_t a8_group, std::span<double> bounds) {
  const int64_t cols = weight.cols;
  const std::vector<double> per_term = ErrorPerTerm(x, accuracy, a8_group);
  std::vector<double> sum_x(static_cast<size_t>(x.num_rows()));
  for (size_t i = 0; i < per_term.size(); ++i) {
    sum_x[i / static_cast<size_t>(cols)] += std::fabs(static_cast<double>(x.F32()[i]));
  }
  // A product, or a sum, that underflows is off by at most one smallest subnormal.
  const double underflow = 4 * static_cast<double>(cols) * 0x1p-149;
  constexpr int64_t kRowsPerChunk = 16;
  ParallelFor(0, weight.rows, kRowsPerChunk, [&](int64_t first_row, int64_t last_row) {
    std::vector<float> scratch(static_cast<size_t>(cols));
    std::vector<double> terms(static_cast<size_t>(cols));
    for (int64_t n = first_row; n < last_row; ++n) {
      TermMagnitudes(weight, rounding, n, scratch, terms);
      const double sum_terms = std::accumulate(terms.begin(), terms.end(), 0.0);
      for (int64_t m = 0; m < x.num_rows(); ++m) {
        double sum = underflow;
        if (accuracy.flush > 0) {
          sum += accuracy.flush *
                 (sum_x[static_cast<size_t>(m)] + sum_terms + 4 * static_cast<double>(cols));
        }
        for (int64_t c = 0; c < cols; ++c) {
          sum += per_term[static_cast<size_t>(m * cols + c)] * terms[static_cast<size_t>(c)];
        }
        bounds[static_cast<size_t>(m * weight.rows + n)] = sum;
      }
    }
  });
}

}  // namespace assay

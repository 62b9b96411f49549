#include "assay/studies/border_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "assay/base/text.h"

#include <fmt/format.h>

namespace assay {
namespace {

constexpr int64_t kSampledRows = 64;
constexpr int64_t kSampledElements = 4096;  // of a vector
constexpr int64_t kTransposedRows = 8;
constexpr int64_t kMostHeads = 4096;
constexpr double kMatrixError = 0.3;
constexpr double kVectorError = 0.001;
constexpr double kBetter = 3;

/// Sums of squares; the square root of their quotient is a relative RMSE.
struct SquareSums {
  double d2 = 0;
  double b2 = 0;

  void Add(float a, float b) {
    const double d = static_cast<double>(a) - static_cast<double>(b);
    d2 += d * d;
    b2 += static_cast<double>(b) * static_cast<double>(b);
  }
  /// Infinity where there is nothing to tell by: zeros only, values that are not finite.
  double Relative() const {
    const double relative = std::sqrt(d2 / b2);
    return std::isfinite(relative) ? relative : HUGE_VAL;
  }
};

/// Spread over the matrix, at places that are no multiple of anything: rows at the edges of heads
/// stay where they are under every permutation.
std::vector<int64_t> SampledRows(int64_t rows, int64_t count) {
  std::vector<int64_t> sampled;
  if (rows <= count) count = rows;
  const int64_t step = count > 0 ? rows / count : 0;
  for (int64_t i = 0; i < count; ++i) sampled.push_back(i * step + i * i % step);
  return sampled;
}

class Search {
 public:
  Search(const BorderMatrix& folder, const BorderMatrix& file)
      : folder_(folder),
        file_(file),
        sampled_(SampledRows(folder.rows, folder.cols == 1 ? kSampledElements : kSampledRows)) {}

  double ErrorOf(const BorderTransformation& transformation) {
    return transformation.transposed ? TransposedError() : RowsError(transformation);
  }

 private:
  double RowsError(const BorderTransformation& transformation) {
    const auto cols = static_cast<size_t>(folder_.cols);
    std::vector<float> a(cols);
    std::vector<float> b(cols);
    SquareSums sums;
    for (const int64_t row : sampled_) {
      int64_t other = row;
      if (transformation.heads > 0) {
        other = transformation.inverse ? UnpermutedRow(row, folder_.rows, transformation.heads)
                                       : PermutedRow(row, folder_.rows, transformation.heads);
      }
      folder_.read(row, 1, a);
      file_.read(other, 1, b);
      for (size_t i = 0; i < cols; ++i) sums.Add(a[i] + transformation.shift, b[i]);
    }
    return sums.Relative();
  }

  double TransposedError() {
    const auto cols = static_cast<size_t>(folder_.cols);
    const std::vector<int64_t> rows = SampledRows(folder_.rows, kTransposedRows);
    std::vector<float> a(rows.size() * cols);
    for (size_t i = 0; i < rows.size(); ++i) {
      folder_.read(rows[i], 1, std::span(a).subspan(i * cols, cols));
    }
    std::vector<float> b(static_cast<size_t>(file_.cols));
    SquareSums sums;
    for (size_t col = 0; col < cols; ++col) {
      file_.read(static_cast<int64_t>(col), 1, b);
      for (size_t i = 0; i < rows.size(); ++i) {
        sums.Add(a[i * cols + col], b[static_cast<size_t>(rows[i])]);
      }
    }
    return sums.Relative();
  }

  const BorderMatrix& folder_;
  const BorderMatrix& file_;
  const std::vector<int64_t> sampled_;
};

std::vector<BorderTransformation> Candidates(const BorderMatrix& folder, const BorderMatrix& file) {
  std::vector<BorderTransformation> candidates;
  if (folder.rows == file.rows && folder.cols == file.cols) {
    candidates.push_back({});
    candidates.push_back({.shift = 1});
    candidates.push_back({.shift = -1});
    for (int64_t heads = 1; heads <= std::min(folder.rows, kMostHeads); ++heads) {
      // Heads of two rows look the same permuted.
      if (!HeadsFit(folder.rows, heads) || folder.rows / heads == 2) continue;
      candidates.push_back({.heads = heads});
      candidates.push_back({.heads = heads, .inverse = true});
    }
  }
  if (folder.rows == file.cols && folder.cols == file.rows && folder.cols > 1) {
    candidates.push_back({.transposed = true});
  }
  return candidates;
}

}  // namespace

bool HeadsFit(int64_t rows, int64_t heads) noexcept {
  return heads > 0 && rows > 0 && rows % heads == 0 && rows / heads % 2 == 0;
}

int64_t PermutedRow(int64_t row, int64_t rows, int64_t heads) noexcept {
  const int64_t head_rows = rows / heads;
  const int64_t half = head_rows / 2;
  const int64_t in_head = row % head_rows;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

int64_t UnpermutedRow(int64_t row, int64_t rows, int64_t heads) noexcept {
  const int64_t head_rows = rows / heads;
  const int64_t in_head = row % head_rows;
  return row - in_head + in_head % 2 * (head_rows / 2) + in_head / 2;
}

std::string BorderTransformation::ToText() const {
  if (transposed) return "transposed";
  if (heads > 0) {
    return fmt::format("with its rows permuted {}in {} head{}",
                       inverse ? "the wrong way round " : "", Grouped(heads),
                       heads == 1 ? "" : "s");
  }
  if (shift != 0) return shift > 0 ? "with 1 added" : "with 1 taken off";
  return "unchanged";
}

std::optional<BorderTransformation> FindTransformation(const BorderMatrix& folder,
                                                       const BorderMatrix& file,
                                                       const BorderTransformation& expected) {
  if (folder.rows == 0 || folder.cols == 0 || file.rows == 0 || file.cols == 0) return {};
  Search search(folder, file);
  const bool same_shape = folder.rows == file.rows && folder.cols == file.cols;
  const double error = same_shape ? search.ErrorOf(expected) : HUGE_VAL;
  if (error <= (folder.cols == 1 ? kVectorError : kMatrixError)) return {};
  std::optional<BorderTransformation> best;
  // A wrong transformation has an error of about 1.4; with a wrong shape there is no other measure.
  double best_error = std::min(error, 1.5) / kBetter;
  for (const BorderTransformation& candidate : Candidates(folder, file)) {
    const double candidate_error = search.ErrorOf(candidate);
    if (candidate_error >= best_error) continue;
    best = candidate;
    best_error = candidate_error;
  }
  return best;
}

}  // namespace assay

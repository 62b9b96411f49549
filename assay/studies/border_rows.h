#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "assay/studies/row_reader.h"

namespace assay {

/// True when `heads` heads of an even number of rows make up `rows`.
bool HeadsFit(int64_t rows, int64_t heads) noexcept;

/// The row of a GGUF file that holds row `row` of the folder, where llama.cpp's converter permuted:
/// in each head, row t of the first half to 2t, of the second half to 2t + 1.
/// Requires HeadsFit(rows, heads), 0 ≤ row < rows.
int64_t PermutedRow(int64_t row, int64_t rows, int64_t heads) noexcept;
/// Its inverse.
int64_t UnpermutedRow(int64_t row, int64_t rows, int64_t heads) noexcept;

/// A matrix, or a vector as a column, on one side of the border.
struct BorderMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  RowReader read;
};

/// What makes the file's matrix out of the folder's.
struct BorderTransformation {
  int64_t heads = 0;     ///< rows permuted in so many heads; 0: not at all
  bool inverse = false;  ///< permuted the wrong way round
  float shift = 0;       ///< added to every value
  bool transposed = false;

  /// "with its rows permuted in 8 heads", "with 1 added", "transposed", "unchanged".
  std::string ToText() const;
};

/// The transformation under which the two agree, when under `expected` they do not: no more than a
/// third of its error, out of the row permutations of every number of heads and their inverses,
/// 1 added or taken off, rows and columns changed over. Nothing when `expected` fits as well as low
/// bits may (relative error 0.3 for a matrix, 0.001 for a vector), or when nothing else is better.
/// `expected` does not count where the shapes differ.
/// Cost: some dozens of rows under each candidate; for a transposed one, a pass over the file's
/// matrix.
std::optional<BorderTransformation> FindTransformation(const BorderMatrix& folder,
                                                       const BorderMatrix& file,
                                                       const BorderTransformation& expected);

}  // namespace assay

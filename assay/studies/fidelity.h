#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "assay/base/progress.h"
#include "assay/kernels/matmul.h"
#include "assay/measure/error_stats.h"
#include "assay/measure/timing.h"
#include "assay/studies/border.h"
#include "assay/tensor/shape.h"

namespace assay {

/// What to ask: what do these formats do to the weights of a model, and to products with them?
struct FidelityOptions {
  std::string model;                 ///< file or folder
  std::vector<std::string> formats;  ///< names; may be empty when `against` is not
  /// A quantised copy of the model; empty: none. Between a folder and a GGUF file names are those
  /// of Border, and what llama.cpp's converter did is undone.
  std::string against;
  std::vector<std::string> tensors;  ///< globs over weight names; empty: every weight
  int64_t rows = 0;                  ///< rows measured of each matrix, evenly spaced; 0: all
  int64_t tokens = 64;               ///< rows of the synthetic activation; 0: no products
  uint64_t seed = 42;
  std::string activations;               ///< file of real ones, [tokens, K]; empty: synthetic
  int repeats = 5;                       ///< most samples of a timing; 0: no matmul timing
  Strategy strategy = Strategy::kFused;  ///< of the timed product
  ProgressSink progress;
};

/// One matrix in one format.
struct FidelityResult {
  std::string tensor;
  std::string component;  ///< first part of the name
  int64_t matrix = -1;    ///< position in a stack; −1 for a weight that is no stack
  Shape source_shape;     ///< of the matrix: [rows, cols]
  std::string source;     ///< what it was stored as: "bf16", "affine4g64"
  std::string format;
  bool against = false;  ///< decoded from the copy instead of encoded here
  int64_t sample_rows = 0;
  int64_t num_bytes = 0;  ///< of the encoded matrix, all planes
  double bits_per_weight = 0;
  ErrorStats weight;
  std::optional<ErrorStats> matmul;  ///< none without activations of this width
  TimingSamples encode;              ///< no samples when it was not encoded here
  TimingSamples product;             ///< no samples when it was not timed
  std::string implementation;        ///< what ran in `product`
  /// Format::Figures of the encoded matrix.
  std::vector<std::pair<std::string, double>> figures;
  /// Lossless formats: decoded to the source's dtype and compared bit for bit.
  std::optional<bool> bits_identical;
  std::vector<std::string> notes;
  /// Of a copy across the border to GGUF: what was undone first, one sentence each.
  std::vector<std::string> conversions;
  /// Border::Unexpected: the figures are those without that transformation.
  std::string fits_only;

  int64_t num_values() const { return source_shape.NumElements(); }
};

/// A format, or the copy, over all the matrices it holds.
struct FidelityTotal {
  std::string format;  ///< "against" for the copy
  int64_t num_matrices = 0;
  int64_t num_values = 0;
  int64_t num_bytes = 0;
  double bits_per_weight = 0;
  /// Mean squares weighted by parameters, so that a sampled matrix counts as much as a whole one:
  /// √(Σ params·mean d² / Σ params·mean b²).
  std::optional<double> weight_relative_rmse;
  std::optional<double> matmul_relative_rmse;
  std::optional<double> sqnr_db;
  double encode_ms = 0;                 ///< Σ of medians
  double matmul_ms = 0;                 ///< Σ of medians
  std::vector<size_t> worst_by_weight;  ///< indices of results, worst first, at most 5
  std::vector<size_t> worst_by_matmul;
};

/// A tensor, or a weight in one format, that was not measured.
struct FidelitySkipped {
  std::string tensor;
  std::string format;  ///< empty: whatever the format
  std::string reason;
  int64_t num_bytes = 0;
};

struct FidelityReport {
  FidelityOptions options;
  std::vector<FidelityResult> results;  ///< by weight, matrix, format in the order asked for
  std::vector<FidelityTotal> totals;
  std::vector<FidelitySkipped> skipped;
  std::vector<std::string> notes;
  std::optional<BorderSummary> border;  ///< when names of the copy were mapped
  /// Rows measured, for each height of a matrix whose rows were sampled.
  std::vector<std::pair<int64_t, std::vector<int64_t>>> sampled_rows;
  int64_t num_tensors = 0;   ///< of the model
  int64_t num_weights = 0;   ///< measured
  int64_t num_values = 0;    ///< of those
  int64_t model_bytes = 0;   ///< of all tensors
  int64_t kept_tensors = 0;  ///< tensors that are no weights
  int64_t kept_bytes = 0;
  int64_t activation_tokens = 0;
  double seconds = 0;
};

/// Measures. Rows are read, decoded and multiplied block by block: memory is that of one encoded
/// matrix, of one matrix in the source's dtype when the source is itself encoded, and of some rows
/// for each thread. The error figures do not depend on threads or instruction set.
/// Errors: usage for unknown formats, globs that fit nothing, activations of no fitting width;
/// input for unreadable files and values that a format cannot hold.
FidelityReport RunFidelity(const FidelityOptions& options);

}  // namespace assay

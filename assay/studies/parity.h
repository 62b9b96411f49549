#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "assay/base/progress.h"
#include "assay/formats/format.h"
#include "assay/kernels/matmul.h"
#include "assay/measure/error_stats.h"
#include "assay/studies/parity_bound.h"
#include "assay/studies/parity_math.h"

namespace assay {

struct ParityOptions {
  std::string model;
  /// Name of a weight, with or without its ".weight".
  std::string tensor;
  int64_t matrix = 0;  ///< which one of a stack
  uint32_t seed = 0x5EED1234;
  /// kReference: LaneDot on the f32 weights, row by row; the others: Matmul.
  Strategy strategy = Strategy::kFused;
  std::optional<double> max_rmse_over_rhs_rms = 0.01;  ///< the gate; none: report only
  ProgressSink progress;                               ///< in bytes of the weight's planes
};

/// Does a product with the packed weight agree with the two-step path: dequantise to bf16, then a
/// dense bf16 product with f32 accumulation? Both take the same x and round y to bf16.
struct ParityReport {
  ParityOptions options;
  std::string tensor_base;  ///< the weight's name without ".weight"
  FormatPtr format;
  std::string family;
  int64_t rows = 0;
  int64_t cols = 0;
  std::optional<GroupGeometry> geometry;
  int64_t packed_cols = 0;  ///< bytes of codes in one row
  std::string lhs_name;     ///< "fused_turboquant_gemv"
  std::string lhs_implementation;
  std::string rhs_implementation;
  std::vector<float> x;    ///< the first 8 values
  std::vector<float> lhs;  ///< all outputs, bf16 widened
  std::vector<float> rhs;
  ParityFigures figures;
  ErrorStats stats;
  ParityBound bound;  ///< derived, not measured
  bool passed = true;
  double seconds = 0;
  std::vector<std::string> notes;
};

/// Errors: input for a weight that the model lacks or whose planes are bad; usage for a strategy or
/// a matrix that it does not have.
ParityReport RunParity(const ParityOptions& options);

}  // namespace assay

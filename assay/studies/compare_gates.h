#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "assay/studies/tensor_difference.h"

namespace assay {

/// Limits a pair of tensors has to keep; each that is given is one gate.
struct CompareGates {
  std::optional<double> max_relative_rmse = {};
  std::optional<double> max_abs = {};
  std::optional<uint64_t> max_ulp = {};
  std::optional<double> min_cosine = {};
  bool equal = false;  ///< every bit the same

  bool Any() const noexcept {
    return max_relative_rmse || max_abs || max_ulp || min_cosine || equal;
  }
};

/// Refuses limits that a tensor of zeros keeps whatever its reference: --max-relative-rmse ≥ 1,
/// --min-cosine ≤ 0, and what is no number. Errors: usage.
void RequireTellingGates(const CompareGates& gates);

/// Why the gates together say nothing about this tensor: one of zeros would pass them all. Nothing
/// when some gate tells, or when zeros are what the reference holds.
std::optional<std::string> WhyGatesAreVacuous(const CompareGates& gates,
                                              const TensorDifference& difference);

/// One line for each gate that fails, "relative RMSE 4.1e-02 > 1e-03"; empty when all pass.
/// A figure that has no value fails its gate, and a pair of which one side is not finite fails all.
std::vector<std::string> FailedGates(const CompareGates& gates, const TensorDifference& difference);

}  // namespace assay

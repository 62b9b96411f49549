#include "assay/studies/compare_gates.h"

#include <cmath>

#include "assay/base/error.h"

namespace assay {
namespace {

void RequireLimit(std::string_view option, std::optional<double> limit) {
  if (limit && !(*limit >= 0)) {
    ThrowUsage("{}: expected a limit of at least 0, found {}", option, *limit);
  }
}

}  // namespace

void RequireTellingGates(const CompareGates& gates) {
  RequireLimit("--max-relative-rmse", gates.max_relative_rmse);
  RequireLimit("--max-abs", gates.max_abs);
  if (gates.max_relative_rmse && *gates.max_relative_rmse >= 1) {
    ThrowUsage(
        "--max-relative-rmse {}: an all-zero tensor has a relative RMSE of 1 and would "
        "pass; expected a limit below 1",
        *gates.max_relative_rmse);
  }
  if (gates.min_cosine && !(*gates.min_cosine > 0 && *gates.min_cosine <= 1)) {
    ThrowUsage(
        "--min-cosine {}: a tensor that has nothing to do with its reference would pass "
        "at 0 and below; expected a limit above 0, at most 1",
        *gates.min_cosine);
  }
}

std::optional<std::string> WhyGatesAreVacuous(const CompareGates& gates,
                                              const TensorDifference& difference) {
  // Relative RMSE and cosine limits tell by themselves (RequireTellingGates), as equality does.
  if (gates.equal || gates.max_relative_rmse || gates.min_cosine) return std::nullopt;
  if (!gates.Any() || difference.reference_max_abs == 0) return std::nullopt;
  if (gates.max_abs && *gates.max_abs < difference.reference_max_abs) return std::nullopt;
  if (gates.max_ulp && difference.reference_max_ulp &&
      *gates.max_ulp < *difference.reference_max_ulp) {
    return std::nullopt;
  }
  if (gates.max_abs) {
    return fmt::format(
        "an all-zero tensor would pass --max-abs {:g}: no reference value exceeds "
        "{:g}; add --max-relative-rmse, or lower the limit",
        *gates.max_abs, difference.reference_max_abs);
  }
  if (!difference.reference_max_ulp) return std::nullopt;
  return fmt::format(
      "an all-zero tensor would pass --max-ulp {}: no reference value is more than "
      "{} steps from 0; add --max-relative-rmse, or lower the limit",
      *gates.max_ulp, *difference.reference_max_ulp);
}

std::vector<std::string> FailedGates(const CompareGates& gates,
                                     const TensorDifference& difference) {
  std::vector<std::string> failed;
  const ErrorStats& stats = difference.stats;
  if (gates.equal && difference.num_equal_bits != difference.num_elements) {
    failed.push_back(fmt::format("{} of {} elements differ in their bits",
                                 difference.num_elements - difference.num_equal_bits,
                                 difference.num_elements));
  }
  const bool has_limit =
      gates.max_relative_rmse || gates.max_abs || gates.max_ulp || gates.min_cosine;
  if (has_limit && difference.num_nonfinite_mismatches > 0) {
    failed.push_back(fmt::format("{} pairs have a NaN or infinity on one side only",
                                 difference.num_nonfinite_mismatches));
  }
  if (gates.max_relative_rmse &&
      !(stats.relative_rmse.value_or(HUGE_VAL) <= *gates.max_relative_rmse)) {
    failed.push_back(stats.relative_rmse
                         ? fmt::format("relative RMSE {:.2g} > {:g}", *stats.relative_rmse,
                                       *gates.max_relative_rmse)
                         : "relative RMSE has no value: the reference is zero everywhere");
  }
  if (gates.max_abs && !(stats.max_abs <= *gates.max_abs)) {
    failed.push_back(fmt::format("max abs {:.3g} > {:g}", stats.max_abs, *gates.max_abs));
  }
  if (gates.max_ulp) {
    if (!difference.ulp) {
      failed.emplace_back("ULP distance has no value: the stored types differ");
    } else if (difference.ulp->max_ulp() > *gates.max_ulp) {
      failed.push_back(fmt::format("max ULP {} > {}", difference.ulp->max_ulp(), *gates.max_ulp));
    }
  }
  if (gates.min_cosine && difference.num_equal_values != difference.num_elements &&
      !(stats.cosine.value_or(-HUGE_VAL) >= *gates.min_cosine)) {
    failed.push_back(stats.cosine
                         ? fmt::format("cosine {:.6f} < {:g}", *stats.cosine, *gates.min_cosine)
                         : "cosine has no value: one side is zero everywhere");
  }
  return failed;
}

}  // namespace assay

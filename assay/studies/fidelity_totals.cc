#include "assay/studies/fidelity_totals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace assay {
namespace {

template <typename Figure>
void KeepWorst(std::span<const FidelityResult> results, std::vector<size_t>& indices,
               const Figure& figure) {
  constexpr size_t kWorst = 5;
  // A figure without a value (an error where the reference is 0) is worse than any number.
  const auto value = [&](size_t i) {
    return figure(results[i]).value_or(std::numeric_limits<double>::infinity());
  };
  std::stable_sort(indices.begin(), indices.end(),
                   [&](size_t a, size_t b) { return value(a) > value(b); });
  if (indices.size() > kWorst) indices.resize(kWorst);
}

}  // namespace

FidelityTotal TotalOf(std::span<const FidelityResult> results, const std::string& name,
                      bool against) {
  FidelityTotal total;
  total.format = name;
  double d2 = 0, b2 = 0, product_d2 = 0, product_b2 = 0;
  bool has_products = false;
  for (size_t i = 0; i < results.size(); ++i) {
    const FidelityResult& result = results[i];
    if (result.against != against || (!against && result.format != name)) continue;
    const auto params = static_cast<double>(result.num_values());
    ++total.num_matrices;
    total.num_values += result.num_values();
    total.num_bytes += result.num_bytes;
    total.encode_ms += result.encode.Median();
    total.matmul_ms += result.product.Median();
    d2 += params * result.weight.rmse * result.weight.rmse;
    b2 += params * result.weight.rhs_rms * result.weight.rhs_rms;
    total.worst_by_weight.push_back(i);
    if (!result.matmul) continue;
    has_products = true;
    product_d2 += params * result.matmul->rmse * result.matmul->rmse;
    product_b2 += params * result.matmul->rhs_rms * result.matmul->rhs_rms;
    total.worst_by_matmul.push_back(i);
  }
  const auto relative = [](double d, double b) -> std::optional<double> {
    if (d == 0) return 0.0;
    if (b == 0) return std::nullopt;
    return std::sqrt(d / b);
  };
  if (total.num_matrices > 0) {
    total.bits_per_weight =
        8.0 * static_cast<double>(total.num_bytes) / static_cast<double>(total.num_values);
    total.weight_relative_rmse = relative(d2, b2);
    if (total.weight_relative_rmse.value_or(0) > 0) {
      total.sqnr_db = -20.0 * std::log10(*total.weight_relative_rmse);
    }
  }
  if (has_products) total.matmul_relative_rmse = relative(product_d2, product_b2);
  KeepWorst(results, total.worst_by_weight,
            [](const FidelityResult& result) { return result.weight.relative_rmse; });
  KeepWorst(results, total.worst_by_matmul,
            [](const FidelityResult& result) { return result.matmul->relative_rmse; });
  return total;
}

}  // namespace assay

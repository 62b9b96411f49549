#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace assay {

/// x[M,K], rearranged once for any number of ReproducibleMatmul calls.
/// Layout: panels of kTokens tokens; in a panel column after column, kTokens floats each; tokens
///         beyond M are 0.
class PackedActivations {
 public:
  static constexpr int64_t kTokens = 64;

  /// Requires x.size() = m · k. Errors: internal.
  PackedActivations(std::span<const float> x, int64_t m, int64_t k);

  int64_t m() const noexcept { return m_; }
  int64_t k() const noexcept { return k_; }
  int64_t num_panels() const noexcept { return (m_ + kTokens - 1) / kTokens; }
  std::span<const float> Panel(int64_t panel) const;

  /// Every value is 0 or has at most 8 significant bits and lies in [2⁻⁴⁰, 2⁴⁰].
  bool is_narrow() const noexcept { return is_narrow_; }

 private:
  int64_t m_;
  int64_t k_;
  bool is_narrow_ = true;
  std::vector<float> values_;
};

/// y[N,M] = W[N,K] · x[M,K]ᵀ (y by rows of W) with the same bits on every instruction set and for
/// every thread count.
/// Why:      the error of a product must not change with the machine that measures it.
/// Requires: weights.size() = num_rows · K, y.size() = num_rows · M. Errors: internal.
/// Accuracy: exact, in this order: K is cut in blocks of 256; a block is summed in ascending k;
///           blocks are added in double; the total is rounded once. Block sums are f32 where every
///           product is exact in f32: narrow activations, and weights in these rows of at most 16
///           significant bits in [2⁻⁹⁰, 2⁴⁰] or 0 (bf16, f16, fp8 …). Elsewhere they are double, in
///           which every product of two f32 is exact. Exact products are why a fused multiply-add
///           gives the bits of a separate one. Error of the f32 sums: ≤ 2⁻¹⁶ · Σ|x·w|.
/// Threads:  runs on the calling thread; call it from ParallelFor with blocks of rows (48 fit L2).
void ReproducibleMatmul(std::span<const float> weights, int64_t num_rows,
                        const PackedActivations& x, std::span<float> y);

}  // namespace assay

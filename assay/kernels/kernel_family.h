#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/formats/format.h"
#include "assay/kernels/activations.h"
#include "assay/kernels/panel_decoder.h"

namespace assay {

/// How far a kernel's result may stand from the exact product of the same x and weights.
/// |y − y_exact| ≤ coefficient · Σ_k x̂_k · t_k (+ an ulp of underflow per term), where t_k is the
/// magnitude of the stored terms (|w_k|; |s·q_k| + |b| for affine) and x̂_k is |x_k|, or the
/// largest |x| of its block of x_block columns for kernels that round x to a block's scale.
struct Accuracy {
  bool exact = false;  ///< bit-equal to the reference strategy; the rest is then 0
  double coefficient = 0;
  int64_t x_block = 1;
  std::string formula;  ///< the coefficient in K, "(K/16 + 12) · 2^-24"
  /// Factors and sums below this may count as 0 (tiles flush subnormals): that adds
  /// flush · Σ_k (|x_k| + t_k + 4) to the bound.
  double flush = 0;
};

/// One way to compute y = x · Wᵀ for one prepared weight.
/// Threads: one Run at a time; it uses the threads of ParallelFor itself, and gives the same bits
/// for every thread count.
class ProductKernel {
 public:
  virtual ~ProductKernel() = default;

  /// What runs, with its instruction set: "affine4 int8 digits x3, AVX-512 VNNI".
  virtual std::string Name() const = 0;

  /// Memory held beside the weight's own planes.
  virtual int64_t PreparedBytes() const { return 0; }

  virtual Accuracy Bound() const = 0;

  /// y[m · rows + n], f32, every element written. False, with nothing written, when this x is not
  /// for this kernel (too many rows, not finite); the next candidate is asked then.
  virtual bool Run(const Activations& x, float* y) = 0;
};

/// What a family is asked to make kernels for.
struct KernelRequest {
  const EncodedMatrix& weight;
  DecodeRounding rounding = DecodeRounding::kNone;
  bool a8 = false;  ///< x rounded to int8 per group of A8Group(weight); exact x otherwise
  /// The weight has int8 kernels: these would see only the x that those decline.
  bool beside_a8 = false;
};

/// The kernels of one format family. A family without an entry is served by the generic kernel:
/// decode a panel of rows with Format::DecodeRows, multiply in f32.
struct KernelFamily {
  std::string_view name;
  /// Appends kernels in order of preference; nothing when the weight is not of this family or no
  /// kernel fits it on the active target.
  void (*add_kernels)(const KernelRequest& request,
                      std::vector<std::unique_ptr<ProductKernel>>& kernels) = nullptr;
  /// Null when the weight is not of this family, or may be itself null.
  std::unique_ptr<PanelDecoder> (*make_decoder)(const EncodedMatrix& weight,
                                                DecodeRounding rounding) = nullptr;
  /// Fills t_k of one row (see Accuracy); false when not of this family. Null: |w_k|.
  bool (*term_magnitudes)(const EncodedMatrix& weight, int64_t row,
                          std::span<double> out) = nullptr;
  /// A8Group of a weight of this family; 0 when it is not. Null: no group of its own.
  int64_t (*a8_group)(const EncodedMatrix& weight) = nullptr;
};

/// All of them, in the order they are asked.
std::span<const KernelFamily* const> KernelFamilies();

/// Columns that share one activation scale under fused-a8: the group of the weight's own scales for
/// families that have kernels for it, 32 otherwise.
int64_t A8Group(const EncodedMatrix& weight);

/// Rows per chunk so that each thread streams long contiguous ranges and a late thread can be
/// helped out. A multiple of `row_block`.
int64_t RowGrain(int64_t rows, int64_t row_block);

}  // namespace assay

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "assay/formats/format.h"
#include "assay/kernels/kernel_family.h"

namespace assay {

/// How y[M, N] = x[M, K] · W[N, K]ᵀ is computed on an encoded weight.
enum class Strategy {
  kReference,    ///< rows decoded one by one, products summed in double in column order
  kDequantGemm,  ///< the whole weight decoded to scratch on every call, then a dense product
  kFused,        ///< packed planes read once; never a whole decoded weight; x keeps its precision
  kFusedA8,      ///< as fused, with x rounded to int8 per group first
};

/// "reference", "dequant_gemm", "fused", "fused-a8".
std::string_view NameOf(Strategy strategy) noexcept;

/// Inverse of NameOf. Errors: usage.
Strategy ParseStrategy(std::string_view name);

struct MatmulOptions {
  DType x_dtype = DType::kBF16;  ///< BF16 or F32
  DType y_dtype = DType::kF32;   ///< F32, or BF16: the f32 result rounded once
  /// Whether weights enter as upstream's dequantise rounds them, or as the format's equation gives
  /// them. Default: kCheckpoint for dequant_gemm, kNone for the others.
  std::optional<DecodeRounding> weight_rounding = std::nullopt;
};

/// The product with one prepared weight. Holds a share of its planes.
/// Why: preparation (repacking) happens once and is timed apart from running.
/// Threads: one Run at a time; the bits of y do not depend on the number of threads.
/// Accuracy: Bound(); f32 accumulation except for the reference, which sums in double.
class Matmul {
 public:
  virtual ~Matmul() = default;

  int64_t rows() const noexcept { return weight_.rows; }  ///< N
  int64_t cols() const noexcept { return weight_.cols; }  ///< K
  Strategy strategy() const noexcept { return strategy_; }
  DecodeRounding weight_rounding() const noexcept { return rounding_; }
  const MatmulOptions& options() const noexcept { return options_; }

  /// Seconds that preparation took (`pack_s`).
  double pack_seconds() const noexcept { return pack_seconds_; }

  /// Bytes held beside the weight's planes: repacked copies, tables.
  virtual int64_t prepared_bytes() const = 0;

  /// What ran in the last Run, or will in one of a single row of x: kernel and instruction set.
  virtual std::string Implementation() const = 0;

  /// Of the implementation that Implementation() names.
  virtual Accuracy Bound() const = 0;

  /// y = x · Wᵀ. Requires x of num_x_rows · K values of x_dtype and y of num_x_rows · N of y_dtype,
  /// aligned to their type; num_x_rows ≥ 0. Every element of y is written. Errors: internal for
  /// wrong sizes; input for a code that has no value.
  void Run(int64_t num_x_rows, std::span<const std::byte> x, std::span<std::byte> y);

  /// The bound of Bound() in numbers for this x: bounds[m · N + n] ≥ |y − exact product|, where for
  /// fused-a8 the exact product is that of the original x. y_dtype's rounding is not included.
  /// Cost: decodes the weight once, in double; for tests and reports.
  void ErrorBounds(int64_t num_x_rows, std::span<const std::byte> x,
                   std::span<double> bounds) const;

 protected:
  Matmul(EncodedMatrix weight, Strategy strategy, const MatmulOptions& options);

  virtual void Multiply(const Activations& x, float* y) = 0;

  const EncodedMatrix weight_;
  const Strategy strategy_;
  const MatmulOptions options_;
  const DecodeRounding rounding_;

 private:
  friend std::unique_ptr<Matmul> MakeMatmul(const EncodedMatrix&, Strategy, const MatmulOptions&);
  double pack_seconds_ = 0;
};

/// Prepares a weight for products. Works for every format of the catalogue and every strategy.
/// The instruction set is the active one (base/target.h) at this moment.
/// Requires planes that passed Format::Validate. Errors: usage for dtypes that x or y cannot have.
std::unique_ptr<Matmul> MakeMatmul(const EncodedMatrix& weight, Strategy strategy,
                                   const MatmulOptions& options = {});

}  // namespace assay

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "assay/kernels/reproducible_matmul.h"
#include "assay/measure/error_stats.h"
#include "assay/studies/row_reader.h"

namespace assay {

/// One activation matrix in the two layouts that fidelity needs.
struct FidelityActivations {
  PackedActivations packed;
  std::vector<uint16_t> words;  ///< the same as bf16 codes, [tokens, K], for timed products
};

/// Activations for any width K.
class ActivationSource {
 public:
  virtual ~ActivationSource() = default;
  /// Null when there are none of this width. The last answer stays valid until the next call.
  virtual const FidelityActivations* ForWidth(int64_t k) = 0;
  virtual int64_t num_tokens() const = 0;
};

/// N(0, 1) from NormalGenerator(seed), token after token, each value rounded to bf16.
std::unique_ptr<ActivationSource> SyntheticActivations(int64_t tokens, uint64_t seed);

/// The only floating tensor with two or more axes in a safetensors or npy file, leading axes taken
/// as tokens; values rounded to bf16. Errors: input.
std::unique_ptr<ActivationSource> LoadedActivations(const std::string& path);

/// Errors of a matrix and of the products with it.
struct MatrixErrors {
  ErrorStats weight;
  std::optional<ErrorStats> matmul;
};

/// Compares decoded rows with those of one source matrix, for one format after another; the
/// products with the source are kept between formats while they take less than 64 MiB.
class MatrixComparison {
 public:
  /// `rows` are the row indices to measure, ascending. `activations` may be null. All must outlive
  /// this.
  MatrixComparison(std::span<const int64_t> rows, int64_t cols, RowReader source,
                   const FidelityActivations* activations);

  /// Readers are called from several threads. Uses all threads; same bits for any number of them.
  MatrixErrors Compare(const RowReader& decoded);

 private:
  std::span<const int64_t> rows_;
  int64_t cols_;
  RowReader source_;
  const FidelityActivations* activations_;
  bool keeps_products_ = false;
  bool has_products_ = false;
  std::vector<float> products_;  // [row, token], of the source
};

/// `count` of `rows` row indices, evenly spaced from 0; all when count is 0 or not smaller.
std::vector<int64_t> EvenRows(int64_t rows, int64_t count);

}  // namespace assay

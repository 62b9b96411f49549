#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "assay/formats/checkpoint_form.h"
#include "assay/formats/format.h"

namespace assay {

class ModelSource;

/// A logical weight of a model: a matrix, or a stack of equal ones, plain or encoded, that yields
/// rows of float. Copies are cheap and keep the model's files mapped.
/// Threads: every method may be called from several threads at once.
class Weight {
 public:
  /// Made by Model. Checks that the matrix count and sizes multiply without overflow.
  Weight(std::shared_ptr<const ModelSource> source, FoundWeight found, bool plain);

  /// What it is called in the plain model: "layers.0.q_proj.weight".
  const std::string& name() const noexcept;
  int64_t rows() const noexcept;
  int64_t cols() const noexcept;
  /// Matrices in it: 1, or the number of stacked experts.
  int64_t stack() const noexcept;
  /// True when it has a stack axis, even one of length 1.
  bool stacked() const noexcept;
  /// Shape of the plain tensor: [rows, cols], [stack, rows, cols], or what the format keeps.
  Shape PlainShape() const;
  /// What decoded values are rounded to; the stored dtype of a plain weight.
  DType dtype() const noexcept;
  /// The plain formats (f32, f16, bf16) included.
  const FormatPtr& format() const noexcept;
  /// True for a tensor that is stored as it is.
  bool plain() const noexcept;
  /// As stored.
  const std::vector<std::string>& tensor_names() const noexcept;
  const std::vector<std::string>& notes() const noexcept;
  /// stack · rows · cols.
  int64_t num_values() const noexcept;
  /// Of all its tensors.
  int64_t num_bytes() const noexcept;

  /// Matrix `index` of the stack, its planes mapped and checked by Format::Validate.
  /// The caller calls Model::Verify (or VerifyAll) before results out of the planes count.
  /// Requires 0 ≤ index < stack. Errors: input for bad planes; internal.
  EncodedMatrix Encoded(int64_t index = 0) const;

  /// Rows of matrix `index`, widened or decoded to f32.
  /// Requires out.size() = count · cols, rows in range. Errors: input, also when the file was cut
  /// while it was read; internal.
  void ReadRows(int64_t index, int64_t first, int64_t count, std::span<float> out,
                DecodeRounding rounding = DecodeRounding::kCheckpoint) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace assay

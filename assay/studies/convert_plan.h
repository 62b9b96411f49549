#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "assay/checkpoint/model.h"
#include "assay/checkpoint/safetensors_layout.h"
#include "assay/formats/checkpoint_form.h"
#include "assay/studies/convert.h"

namespace assay {

/// What is done with one weight or tensor of the source.
struct ConvertStep {
  enum class Action {
    kCopy,    ///< a stored tensor, byte for byte
    kPlanes,  ///< an encoded weight as it is, planes byte for byte
    kDecode,  ///< an encoded weight becomes a plain tensor of `dtype`
    kEncode,  ///< encoded in `format`, decoded first when it was encoded
  };

  Action action = Action::kCopy;
  ConvertedTensor tensor;          ///< for the report
  const Weight* weight = nullptr;  ///< kPlanes, kDecode, kEncode of an encoded source; else null
  DType dtype = DType::kBF16;      ///< of the plain tensor
  FormatPtr format;                ///< kEncode, kPlanes
  size_t file = 0;                 ///< of the source
  std::vector<TensorSpec> outputs;
  /// kEncode: the planes, in order, each the start of one of `outputs`.
  std::vector<PlaneSpec> planes;
};

/// Everything that is known before the first byte is written.
struct ConvertPlan {
  std::vector<ConvertStep> steps;        ///< in the order of the source's files and names
  bool gguf = false;                     ///< the output is a GGUF file
  const CheckpointForm* form = nullptr;  ///< null: plain output, or GGUF, which needs none
  FormatPtr format;                      ///< the model's; null: plain output
  std::vector<std::string> notes;
};

/// Errors: usage for formats that no file holds, that the output's container does not hold, that
/// are only decoded, or that do not stand in one checkpoint together.
ConvertPlan PlanQuantize(const Model& model, const QuantizeOptions& options);

/// Errors: input when nothing is encoded.
ConvertPlan PlanDequantize(const Model& model, const DequantizeOptions& options);

/// The whole plain tensor of a step's source; a stored one is not copied.
Tensor LoadPlain(const Model& model, const ConvertStep& step);

/// Matrix `index` of the same, for formats that take a stack matrix by matrix.
Tensor LoadPlainMatrix(const Model& model, const ConvertStep& step, int64_t index);

/// How a format sees a tensor: `stack` matrices of rows × cols.
struct MatrixStack {
  int64_t stack = 1;
  int64_t rows = 1;
  int64_t cols = 1;
};
MatrixStack StackOf(const Shape& shape, const Format& format);

}  // namespace assay

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "assay/tensor/dtype.h"
#include "assay/tensor/shape.h"

namespace assay {

/// One logical tensor of a model: a weight, its planes folded together, or a tensor that is none.
struct InspectedTensor {
  std::string name;
  std::string kind;   ///< format of a weight, "affine4g64"; else the dtype in lower case, "bf16"
  std::string dtype;  ///< of the values: what decoding rounds to, or the stored dtype
  bool is_weight = false;
  bool is_encoded = false;
  std::vector<std::string> stored;  ///< names of the tensors it is made of
  Shape shape;                      ///< of the plain tensor
  int64_t num_values = 0;
  int64_t num_bytes = 0;
  std::vector<std::string> notes;
};

/// All tensors of one kind.
struct InspectedKind {
  std::string kind;
  int64_t num_tensors = 0;  ///< logical ones
  int64_t num_values = 0;
  int64_t num_bytes = 0;

  double BitsPerWeight() const;
};

struct InspectReport {
  std::string path;
  std::string container;  ///< Container::kind of the files
  /// What a GGUF file says of itself: key → text, in the order to be read. Empty for others.
  std::vector<std::pair<std::string, std::string>> headline;
  int64_t num_files = 0;
  int64_t num_file_bytes = 0;
  int64_t num_stored_tensors = 0;
  std::vector<InspectedTensor> tensors;  ///< by name
  std::vector<InspectedKind> kinds;      ///< encoded ones first, then by bytes, largest first
  InspectedKind total;
  std::vector<std::string> notes;  ///< about the files and the checkpoint
};

/// What a model holds. Reads headers only, so the size of the model does not matter.
/// Errors: input.
InspectReport InspectModel(const std::string& path);

}  // namespace assay

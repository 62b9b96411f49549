#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "assay/formats/checkpoint_form.h"

namespace assay {

/// A tensor to be written: known before its bytes are.
using TensorSpec = StoredTensor;

/// In which order tensors stand in a file.
enum class TensorOrder {
  kReference,  ///< of the reference writer: widest dtype first, then by name; naturally aligned
  kAsGiven,
};

/// How a safetensors file is put together.
struct SafetensorsStyle {
  TensorOrder order = TensorOrder::kReference;
  /// The data buffer starts at a multiple of this; 8 gives the reference writer's bytes.
  int64_t data_alignment = 64;
};

/// Where everything of a file will stand.
struct SafetensorsLayout {
  std::string head;              ///< length and header, up to the data buffer
  std::vector<int64_t> offsets;  ///< in the file, parallel to the tensors given
  int64_t num_file_bytes = 0;
};

/// Requires unique UTF-8 names other than "__metadata__", shapes of whole bytes, alignment a power
/// of two from 8. `path` starts every message.
/// Errors: input when the format cannot hold it: header or file too long, names, sizes.
SafetensorsLayout LayOutSafetensors(const std::vector<TensorSpec>& tensors,
                                    const std::map<std::string, std::string>& metadata,
                                    const SafetensorsStyle& style, std::string_view path);

}  // namespace assay

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "assay/checkpoint/gguf_header.h"
#include "assay/checkpoint/safetensors_layout.h"

namespace assay {

/// Where everything of a GGUF file will stand.
struct GgufLayout {
  std::string head;              ///< up to the data section, padding included
  std::vector<int64_t> offsets;  ///< in the file, parallel to the tensors given
  int64_t num_file_bytes = 0;    ///< the padding after the last tensor included
};

/// Version 3, metadata and tensors in the order given. Data is aligned as general.alignment says.
/// The same input gives the same bytes. `path` starts every message.
/// Errors: input when the format cannot hold it: names, number of axes, dtypes, the alignment,
/// sizes.
GgufLayout LayOutGguf(const std::vector<TensorSpec>& tensors, const GgufMetadata& metadata,
                      std::string_view path);

/// Which type a tensor has in a GGUF file; null for a dtype that no such file holds.
const GgmlType* GgmlTypeOf(const TensorSpec& tensor) noexcept;

}  // namespace assay

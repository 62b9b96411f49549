#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "assay/checkpoint/container.h"

namespace assay {

/// The containers behind a path, and which copy of each tensor counts.
struct ModelFiles {
  struct Place {
    size_t file = 0;   ///< in `files`
    size_t index = 0;  ///< in its Tensors()
  };

  std::string path;  ///< as the user gave it
  /// The model's folder; empty when it is one file, or GGUF, which needs nothing beside it.
  std::string directory;
  std::vector<ContainerPtr> files;
  std::vector<StoredTensor> tensors;  ///< of all files, sorted by name
  std::vector<Place> places;          ///< parallel to `tensors`
  std::vector<std::string> notes;
};

/// Opens a container file, an index file, or a folder.
/// A folder is read through its *.safetensors.index.json; without one, model.safetensors, and
/// without that, all *.safetensors files together. One without safetensors holds one GGUF model.
/// Any part of a split GGUF model opens all of them.
/// Errors: input.
ModelFiles OpenModelFiles(const std::string& path);

}  // namespace assay

#pragma once

#include <string>
#include <vector>

#include "assay/formats/checkpoint_form.h"

namespace assay {

/// Which stored tensor is which plane.
struct StoredPlane {
  std::string plane;
  const StoredTensor* stored = nullptr;
};

/// What a recogniser knows of one encoded weight.
struct FoldedPlanes {
  std::string name;  ///< "model.layers.0.mlp.up_proj.weight"
  FormatPtr format;
  int64_t stack = 1;
  bool stacked = false;
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::kBF16;
  std::vector<StoredPlane> planes;
};

/// The weight those planes make. Matrix i of a stack takes entry i of each tensor's first axis.
/// Planes are passed on in the shape and dtype of the format's layout where the stored tensor has
/// as many bytes of elements as wide, otherwise as stored: Format::Validate then says what is
/// wrong. `source` must outlive FoundWeight::load.
FoundWeight FoldPlanes(const CheckpointSource& source, FoldedPlanes folded);

/// Rank 2, or 3 when a stack axis stands before; and dimension `axis` counted from the last (0).
bool IsMatrix(const StoredTensor& tensor) noexcept;
int64_t DimFromLast(const StoredTensor& tensor, size_t axis);

}  // namespace assay

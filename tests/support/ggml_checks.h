#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "assay/base/text.h"
#include "assay/formats/ggml.h"
#include "tests/support/fixture.h"

namespace assay::test {

/// The vectors of one type.
inline Fixture BlocksOf(const GgmlType& type) {
  return Fixture("ggml/blocks/" + Lower(type.name) + ".safetensors");
}

inline std::vector<const GgmlType*> BlockTypes() {
  std::vector<const GgmlType*> types;
  for (const GgmlType& type : GgmlTypes()) {
    if (!type.dtype) types.push_back(&type);
  }
  return types;
}

/// `blocks` of shape [rows, bytes of a row].
inline EncodedMatrix MatrixOf(const GgmlType& type, const Tensor& blocks) {
  const int64_t cols = blocks.shape()[1] / type.block_bytes * type.block_values;
  return {GgmlFormat::Make(type), blocks.shape()[0], cols, DType::kF32, {{"blocks", blocks}}};
}

}  // namespace assay::test

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "assay/formats/format.h"

namespace assay {

struct VectorsOptions {
  FormatPtr format;
  std::string output;                ///< a folder that does not exist
  DType dtype = DType::kBF16;        ///< of the input: bf16, f16 or f32
  std::optional<int64_t> cols = {};  ///< default: the fewest the format takes, from 256 up
  uint64_t seed = 1;
};

/// A row of the vectors and the reason why it is there.
struct VectorRow {
  std::string reason;
  std::vector<float> values;  ///< exact in the input's dtype
};

struct VectorsReport {
  VectorsOptions options;
  int64_t cols = 0;
  std::vector<std::string> reasons;   ///< of each row
  std::vector<std::string> left_out;  ///< rows the format refuses, and why
  std::vector<PlaneSpec> planes;
  std::vector<std::string> files;
};

/// The rows: random, tie, zero, constant, outlier, subnormal and their like, rounded to `dtype`.
/// Depends on the arguments only.
std::vector<VectorRow> MakeVectorRows(DType dtype, int64_t cols, uint64_t seed);

/// Writes golden vectors of a format for people who write kernels: input, planes, decoded values as
/// safetensors and as npy, and a README with the layout in words.
/// Errors: usage for a format that is only decoded, for columns it cannot hold, and when something
/// stands at the output; input when it cannot be written.
VectorsReport WriteVectors(const VectorsOptions& options);

}  // namespace assay

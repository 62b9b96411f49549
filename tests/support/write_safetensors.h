#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay {

/// A small f32 tensor for WriteSafetensors.
struct SmallTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

/// A safetensors file of F32 tensors, written by plain code of the test's own.
void WriteSafetensors(const std::string& path, const std::vector<SmallTensor>& tensors);

}  // namespace assay

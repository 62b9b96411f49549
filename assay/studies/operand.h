#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "assay/studies/tensor_difference.h"

namespace assay {

class Model;

/// A name of one side of a comparison: what it looks like, and how to get at its elements.
struct Operand {
  DType dtype = DType::kF32;
  Shape shape;
  std::string stored_as;
  int64_t num_bytes = 0;
  std::function<ElementSource()> open;
};

/// Every tensor by its name; encoded weights decoded, under their own names, unless `stored`.
/// The model must outlive what is opened.
std::map<std::string, Operand> OperandsOf(const Model& model, bool stored);

}  // namespace assay

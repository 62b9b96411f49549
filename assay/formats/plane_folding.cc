#include "assay/formats/plane_folding.h"

namespace assay {

FoundWeight FoldPlanes(const CheckpointSource& source, FoldedPlanes folded) {
  FoundWeight weight;
  weight.name = folded.name;
  weight.format = folded.format;
  weight.stack = folded.stack;
  weight.stacked = folded.stacked;
  weight.rows = folded.rows;
  weight.cols = folded.cols;
  weight.dtype = folded.dtype;
  std::vector<std::pair<std::string, std::string>> names;
  for (const StoredPlane& plane : folded.planes) {
    weight.tensor_names.push_back(plane.stored->name);
    names.emplace_back(plane.plane, plane.stored->name);
  }
  weight.load = [source = &source, format = folded.format, rows = folded.rows, cols = folded.cols,
                 dtype = folded.dtype, stacked = folded.stacked,
                 names = std::move(names)](int64_t index) {
    EncodedMatrix encoded{format, rows, cols, dtype, {}};
    const bool fits = !format->WhyNot(rows, cols, dtype);
    const std::vector<PlaneSpec> layout =
        fits ? format->Layout(rows, cols, dtype) : std::vector<PlaneSpec>{};
    for (const auto& [plane, name] : names) {
      Tensor tensor = source->Load(name);
      if (stacked) tensor = tensor.Slice(index);
      for (const PlaneSpec& spec : layout) {
        if (spec.name != plane || BitsOf(spec.dtype) != BitsOf(tensor.dtype())) continue;
        if (spec.shape.CheckedNumBytes(spec.dtype) == tensor.num_bytes()) {
          tensor = tensor.As(spec.dtype, spec.shape);
        }
      }
      encoded.planes.push_back({plane, std::move(tensor)});
    }
    return encoded;
  };
  return weight;
}

bool IsMatrix(const StoredTensor& tensor) noexcept {
  return tensor.shape.rank() == 2 || tensor.shape.rank() == 3;
}

int64_t DimFromLast(const StoredTensor& tensor, size_t axis) {
  return tensor.shape[tensor.shape.rank() - 1 - axis];
}

}  // namespace assay

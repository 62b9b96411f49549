#include <optional>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/formats/checkpoint_form.h"
#include "assay/formats/ggml.h"

namespace assay {
namespace {

/// Shape of the values whose blocks have this shape: the last axis counts values instead of bytes.
Shape ValuesShape(const CheckpointSource& source, const StoredTensor& stored) {
  const GgmlType& type = *stored.block_type;
  const size_t rank = stored.shape.rank();
  const int64_t row_bytes = rank == 0 ? 0 : stored.shape[rank - 1];
  if (rank == 0 || stored.dtype != DType::kU8 || row_bytes % type.block_bytes != 0) {
    ThrowInput("{}: tensor \"{}\": {} {} are no whole blocks of {} bytes ({})", source.Path(),
               stored.name, NameOf(stored.dtype), stored.shape.ToString(), type.block_bytes,
               type.name);
  }
  std::vector<int64_t> dims;
  for (size_t axis = 0; axis + 1 < rank; ++axis) dims.push_back(stored.shape[axis]);
  const auto cols = CheckedMul(row_bytes / type.block_bytes, type.block_values);
  if (cols) dims.push_back(*cols);
  if (!cols || !Shape(dims).CheckedNumBytes(DType::kF32)) {
    ThrowInput("{}: tensor \"{}\": {} bytes of {} are too many values", source.Path(), stored.name,
               stored.shape.ToString(), type.name);
  }
  return Shape(dims);
}

FoundWeight Describe(const CheckpointSource& source, const StoredTensor& stored) {
  const Shape values = ValuesShape(source, stored);
  const size_t rank = values.rank();
  FoundWeight found;
  found.name = stored.name;
  found.format = GgmlFormat::Make(*stored.block_type);
  found.dtype = DType::kF32;
  found.tensor_names = {stored.name};
  found.cols = values[rank - 1];
  found.rows = 1;
  found.stacked = rank == 3;
  if (found.stacked) {
    found.stack = values[0];
    found.rows = values[1];
  } else {
    for (size_t axis = 0; axis + 1 < rank; ++axis) found.rows *= values[axis];
    if (rank != 2) found.plain_shape = values;
  }
  found.load = [&source, name = stored.name, format = found.format, rows = found.rows,
                cols = found.cols, stacked = found.stacked](int64_t index) {
    const Tensor tensor = source.Load(name);
    const PlaneSpec plane = format->Layout(rows, cols, DType::kF32)[0];
    return EncodedMatrix{
        format,
        rows,
        cols,
        DType::kF32,
        {{plane.name, (stacked ? tensor.Slice(index) : tensor).As(plane.dtype, plane.shape)}}};
  };
  return found;
}

}  // namespace

void RecogniseGgml(const CheckpointSource& source, Recognition& found) {
  for (const StoredTensor& stored : source.Tensors()) {
    if (stored.block_type != nullptr) found.weights.push_back(Describe(source, stored));
  }
}

}  // namespace assay

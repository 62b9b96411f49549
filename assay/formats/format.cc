#include "assay/formats/format.h"

#include <algorithm>

#include "assay/base/error.h"

namespace assay {

const Tensor* EncodedMatrix::Find(std::string_view plane) const noexcept {
  for (const Plane& candidate : planes) {
    if (candidate.name == plane) return &candidate.tensor;
  }
  return nullptr;
}

const Tensor& EncodedMatrix::Get(std::string_view plane) const {
  const Tensor* tensor = Find(plane);
  if (tensor == nullptr) ThrowInternal("{}: no plane \"{}\"", format->Name(), plane);
  return *tensor;
}

int64_t EncodedMatrix::NumBytes() const noexcept {
  int64_t total = 0;
  for (const Plane& plane : planes) total += plane.tensor.num_bytes();
  return total;
}

std::vector<PlaneSpec> Format::LayoutFor(const MatrixView& matrix) const {
  return Layout(matrix.rows(), matrix.cols(), matrix.dtype());
}

double Format::BitsPerWeight(int64_t rows, int64_t cols) const {
  double bits = 0;
  for (const PlaneSpec& plane : Layout(rows, cols, DType::kBF16)) {
    bits += 8.0 * static_cast<double>(plane.shape.CheckedNumBytes(plane.dtype).value_or(0));
  }
  return bits / (static_cast<double>(rows) * static_cast<double>(cols));
}

void Format::Validate(const EncodedMatrix& encoded, std::string_view name) const {
  if (const auto reason = WhyNot(encoded.rows, encoded.cols, encoded.dtype)) {
    ThrowInput("{}: not a {} matrix: {}", name, Name(), *reason);
  }
  for (const PlaneSpec& spec : Layout(encoded.rows, encoded.cols, encoded.dtype)) {
    const Tensor* tensor = encoded.Find(spec.name);
    if (tensor == nullptr) ThrowInput("{}: plane \"{}\" of {} is missing", name, spec.name, Name());
    if (tensor->dtype() != spec.dtype || tensor->shape() != spec.shape) {
      ThrowInput("{}: plane \"{}\" of {}: expected {} {}, found {} {}", name, spec.name, Name(),
                 NameOf(spec.dtype), spec.shape.ToString(), NameOf(tensor->dtype()),
                 tensor->shape().ToString());
    }
  }
}

void RequireEncodable(const Format& format, const MatrixView& matrix,
                      const EncodeOptions& options) {
  if (!format.CanEncode()) {
    ThrowUsage("{}: {} is decoded only; no encoder of it is reproducible", options.tensor_name,
               format.Name());
  }
  if (const auto reason = format.WhyNot(matrix.rows(), matrix.cols(), matrix.dtype())) {
    ThrowUsage("{}: {} cannot hold it: {}", options.tensor_name, format.Name(), *reason);
  }
}

}  // namespace assay

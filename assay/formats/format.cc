#include "assay/formats/format.h"

#include <algorithm>
#include <cmath>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/numeric/bulk.h"
#include "assay/tensor/convert.h"

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

void Format::DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count, DType dtype,
                          std::span<std::byte> out) const {
  const int64_t row_bytes = encoded.cols * BitsOf(dtype) / 8;
  if (!IsWeightFloat(dtype) || count < 0 || static_cast<int64_t>(out.size()) != count * row_bytes) {
    ThrowInternal("{}: {} rows of {} {} into {} bytes", Name(), count, encoded.cols, NameOf(dtype),
                  out.size());
  }
  constexpr int64_t kValuesPerChunk = int64_t{1} << 16;  // 256 KiB of f32
  const int64_t rows_per_chunk = RowsPerChunk(encoded.cols, kValuesPerChunk);
  ParallelFor(0, count, rows_per_chunk, [&](int64_t begin, int64_t end) {
    std::vector<float> rows(static_cast<size_t>((end - begin) * encoded.cols));
    DecodeRows(encoded, first + begin, end - begin, rows);
    Round(ElementOf(dtype), rows,
          out.subspan(static_cast<size_t>(begin * row_bytes),
                      static_cast<size_t>((end - begin) * row_bytes)));
  });
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
    ThrowUsage("{}: {} is decoded only (more: assay formats {})", options.tensor_name,
               format.Name(), format.Name());
  }
  if (const auto reason = format.WhyNot(matrix.rows(), matrix.cols(), matrix.dtype())) {
    ThrowUsage("{}: {} cannot hold it: {}", options.tensor_name, format.Name(), *reason);
  }
}

void ThrowNotFinite(const Format& format, const EncodeOptions& options, int64_t first_row,
                    int64_t cols, std::span<const float> values) {
  const auto at = std::find_if_not(values.begin(), values.end(),
                                   [](float value) { return std::isfinite(value); });
  if (at == values.end()) ThrowInput("{}: it changed while it was read", options.tensor_name);
  const int64_t index = at - values.begin();
  ThrowInput("{}: row {}, column {}: {} cannot hold {}; every value must be finite",
             options.tensor_name, first_row + index / cols, index % cols, format.Name(),
             std::isnan(*at) ? "NaN" : (*at < 0 ? "-infinity" : "infinity"));
}

}  // namespace assay

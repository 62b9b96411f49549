#include "assay/formats/planes.h"

#include "assay/base/error.h"

namespace assay {

EncodedMatrix AllocatePlanes(FormatPtr format, int64_t rows, int64_t cols, DType dtype) {
  EncodedMatrix encoded{std::move(format), rows, cols, dtype, {}};
  for (PlaneSpec& spec : encoded.format->Layout(rows, cols, dtype)) {
    Tensor tensor = Tensor::Allocate(spec.dtype, std::move(spec.shape));
    encoded.planes.push_back({std::move(spec.name), std::move(tensor)});
  }
  return encoded;
}

void RequireRowRange(const EncodedMatrix& encoded, int64_t first, int64_t count, size_t out_size,
                     int64_t element_bytes) {
  if (first < 0 || count < 0 || first > encoded.rows - count ||
      static_cast<int64_t>(out_size) != count * encoded.cols * element_bytes) {
    ThrowInternal("{}: rows {} + {} of {}, {} out", encoded.format->Name(), first, count,
                  encoded.rows, out_size);
  }
}

void RoundAllTo(DType dtype, std::span<float> values) noexcept {
  if (dtype == DType::kBF16) {
    for (float& value : values) value = RoundToBF16(value);
  } else if (dtype == DType::kF16) {
    for (float& value : values) value = RoundToF16(value);
  }
}

}  // namespace assay

#include "assay/studies/bench_weights.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "assay/base/aligned_buffer.h"
#include "assay/base/parallel.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/random.h"

namespace assay {
namespace {

/// A share of the work, and of the scratch, of one thread.
constexpr int64_t kValuesPerShare = int64_t{1} << 18;

std::span<std::byte> RowsOf(std::span<std::byte> bytes, int64_t cols, int64_t first, int64_t last) {
  const auto row_bytes = static_cast<size_t>(cols) * sizeof(uint16_t);
  return bytes.subspan(static_cast<size_t>(first) * row_bytes,
                       static_cast<size_t>(last - first) * row_bytes);
}

template <typename FillRow>
Tensor MakeRows(int64_t rows, int64_t cols, const FillRow& fill_row) {
  Tensor tensor = Tensor::AllocateUninitialized(DType::kBF16, Shape{rows, cols});
  const std::span<std::byte> bytes = tensor.mutable_bytes();
  ParallelFor(0, rows, RowsPerChunk(cols, kValuesPerShare), [&](int64_t first, int64_t last) {
    std::vector<float> values(static_cast<size_t>(cols));
    for (int64_t row = first; row < last; ++row) {
      fill_row(row, std::span(values));
      Round(Element::kBF16, values, RowsOf(bytes, cols, row, row + 1));
    }
  });
  return tensor;
}

}  // namespace

Tensor SyntheticBenchWeight(int64_t rows, int64_t cols, uint64_t seed) {
  return MakeRows(rows, cols, [&](int64_t row, std::span<float> values) {
    NormalGenerator scales(seed);
    scales.Skip(static_cast<uint64_t>(row));
    const float scale = std::ldexp(0.02f, static_cast<int>(std::nearbyint(scales.Next())));
    NormalGenerator normal(seed);
    normal.Skip(static_cast<uint64_t>(rows + row * cols));
    for (float& value : values) value = scale * normal.Next();
  });
}

Tensor SyntheticBenchInput(int64_t rows, int64_t cols, uint64_t seed) {
  return MakeRows(rows, cols, [&](int64_t row, std::span<float> values) {
    NormalGenerator normal(seed);
    normal.Skip(static_cast<uint64_t>(row * cols));
    for (float& value : values) value = normal.Next();
  });
}

Tensor LoadBenchWeight(const Weight& weight) {
  const int64_t cols = weight.cols();
  Tensor tensor = Tensor::AllocateUninitialized(DType::kBF16, Shape{weight.rows(), cols});
  const std::span<std::byte> bytes = tensor.mutable_bytes();
  ParallelFor(0, weight.rows(), RowsPerChunk(cols, kValuesPerShare),
              [&](int64_t first, int64_t last) {
                std::vector<float> values(static_cast<size_t>((last - first) * cols));
                weight.ReadRows(0, first, last - first, values);
                Round(Element::kBF16, values, RowsOf(bytes, cols, first, last));
              });
  return tensor;
}

EncodedMatrix CopyOfPlanes(const EncodedMatrix& weight) {
  EncodedMatrix copy = weight;
  for (Plane& plane : copy.planes) {
    const std::span<const std::byte> bytes = plane.tensor.bytes();
    const std::shared_ptr<std::byte> memory = AllocateAligned(std::max<size_t>(bytes.size(), 1));
    std::ranges::copy(bytes, memory.get());
    plane.tensor = Tensor::Share(memory, plane.tensor.dtype(), plane.tensor.shape(),
                                 {memory.get(), bytes.size()});
  }
  return copy;
}

bool DecodesTo(const EncodedMatrix& encoded, const Tensor& source) {
  const int64_t step = RowsPerChunk(encoded.cols, kValuesPerShare);
  std::vector<std::byte> decoded;
  for (int64_t first = 0; first < encoded.rows; first += step) {
    const int64_t count = std::min(step, encoded.rows - first);
    const auto row_bytes = static_cast<size_t>(encoded.cols) * sizeof(uint16_t);
    decoded.resize(static_cast<size_t>(count) * row_bytes);
    encoded.format->DecodeRowsTo(encoded, first, count, DType::kBF16, decoded);
    const auto expected =
        source.bytes().subspan(static_cast<size_t>(first) * row_bytes, decoded.size());
    if (!std::ranges::equal(decoded, expected)) return false;
  }
  return true;
}

double LeastBenchBytes(const BenchShape& shape, std::span<const BenchVariant> variants) {
  const double weight = static_cast<double>(shape.n) * static_cast<double>(shape.k);
  const double x = static_cast<double>(shape.m) * static_cast<double>(shape.k);
  const double y = static_cast<double>(shape.m) * static_cast<double>(shape.n);
  // bf16 source and reference; x as bf16 and f32; y twice.
  double bytes = 4 * weight + 6 * x + 8 * y;
  for (const BenchVariant& variant : variants) {
    const bool fits =
        variant.format && !variant.format->WhyNot(shape.n, shape.k, DType::kBF16).has_value();
    const double bits = fits ? variant.format->BitsPerWeight(shape.n, shape.k) : 16;
    bytes += bits / 8 * weight;
    // Decoded scratch, f32 when bf16 does not do.
    if (variant.strategy == Strategy::kDequantGemm) bytes += 4 * weight;
  }
  return bytes;
}

}  // namespace assay

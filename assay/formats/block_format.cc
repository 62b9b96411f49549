#include "assay/formats/block_format.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <memory>

#include "assay/base/error.h"
#include "assay/base/parallel.h"

namespace assay {
namespace {

/// Values a chunk of a parallel loop takes: its f32 copy and its codes stay in the second cache.
constexpr int64_t kValuesPerBlockChunk = int64_t{1} << 14;

constexpr uint32_t kInfinityBits = 0x7F800000u;

/// Uninitialised memory for the length of a chunk.
template <typename T>
class Scratch {
 public:
  explicit Scratch(size_t count)
      : data_(std::make_unique_for_overwrite<T[]>(count)), size_(count) {}
  std::span<T> span() const noexcept { return {data_.get(), size_}; }

 private:
  std::unique_ptr<T[]> data_;
  size_t size_;
};

uint32_t LargestOf(std::span<const uint32_t> amax_bits) noexcept {
  return *std::max_element(amax_bits.begin(), amax_bits.end());
}

std::span<const std::byte> PartOf(const Tensor& plane, int64_t first_row, int64_t num_rows,
                                  int64_t rows) {
  const size_t row_bytes = plane.bytes().size() / static_cast<size_t>(std::max<int64_t>(1, rows));
  return plane.bytes().subspan(static_cast<size_t>(first_row) * row_bytes,
                               static_cast<size_t>(num_rows) * row_bytes);
}

}  // namespace

std::optional<std::string> BlockFormat::WhyNot(int64_t rows, int64_t cols, DType dtype) const {
  if (!IsWeightFloat(dtype)) {
    return fmt::format("dtype {}; expected F32, F16 or BF16", NameOf(dtype));
  }
  if (rows < 0 || cols < 0) return fmt::format("shape [{}, {}]", rows, cols);
  if (cols % block_ != 0) {
    return fmt::format("{} columns are not a multiple of the block of {}", cols, block_);
  }
  if (!Shape({rows, cols}).CheckedNumBytes(DType::kF32)) {
    return fmt::format("shape [{}, {}] is too large", rows, cols);
  }
  return std::nullopt;
}

std::vector<PlaneSpec> BlockFormat::Layout(int64_t rows, int64_t cols, DType /*dtype*/) const {
  const int64_t code_bytes = cols / block_ * (block_ * FactsOf(element_).bits / 8);
  const int64_t width = code_dtype_ == DType::kU32 ? 4 : 1;
  return {{"codes", code_dtype_, Shape{rows, code_bytes / width}},
          {"scales", scale_dtype_, Shape{rows, cols / block_}}};
}

EncodedMatrix BlockFormat::Allocate(FormatPtr self, const MatrixView& matrix, DType dtype) const {
  EncodedMatrix encoded{std::move(self), matrix.rows(), matrix.cols(), dtype, {}};
  for (PlaneSpec& spec : Layout(matrix.rows(), matrix.cols(), dtype)) {
    Tensor tensor = Tensor::Allocate(spec.dtype, std::move(spec.shape));
    encoded.planes.push_back({std::move(spec.name), std::move(tensor)});
  }
  return encoded;
}

void BlockFormat::EncodePlanes(const MatrixView& matrix, const EncodeOptions& options,
                               ElementRounding rounding, const BlockQuotient& quotient,
                               const ChooseScales& choose, EncodedMatrix& encoded) const {
  const int64_t cols = matrix.cols();
  if (matrix.rows() == 0 || cols == 0) return;
  const std::span<std::byte> codes = encoded.planes[0].tensor.mutable_bytes();
  const std::span<std::byte> scales = encoded.planes[1].tensor.mutable_bytes();
  const int bits = FactsOf(element_).bits;
  ParallelFor(0, matrix.rows(), RowsPerChunk(cols, kValuesPerBlockChunk),
              [&](int64_t first, int64_t last) {
                const auto num_values = static_cast<size_t>((last - first) * cols);
                const size_t num_blocks = num_values / static_cast<size_t>(block_);
                const Scratch<float> values(num_values);
                const Scratch<uint8_t> unpacked(num_values);
                const Scratch<uint32_t> amax(num_blocks);
                const Scratch<float> factors(num_blocks);
                matrix.ReadRows(first, last - first, values.span());
                BlockAbsMax(values.span(), block_, amax.span());
                if (LargestOf(amax.span()) >= kInfinityBits) {
                  ThrowNotFinite(*this, options, first, cols, values.span());
                }
                const size_t first_block = static_cast<size_t>(first * (cols / block_));
                choose(amax.span(),
                       {reinterpret_cast<uint8_t*>(scales.subspan(first_block, num_blocks).data()),
                        num_blocks},
                       factors.span());
                EncodeBlocks(element_, rounding, quotient, values.span(), block_, factors.span(),
                             unpacked.span());
                const size_t block_bytes = static_cast<size_t>(block_ * bits / 8);
                PackCodes(bits, unpacked.span(),
                          codes.subspan(first_block * block_bytes, num_blocks * block_bytes));
              });
}

float BlockFormat::AbsMaxOf(const MatrixView& matrix, const EncodeOptions& options) const {
  const int64_t cols = matrix.cols();
  std::atomic<uint32_t> largest{0};
  if (matrix.rows() == 0 || cols == 0) return 0.0f;
  ParallelFor(0, matrix.rows(), RowsPerChunk(cols, kValuesPerBlockChunk),
              [&](int64_t first, int64_t last) {
                const Scratch<float> values(static_cast<size_t>((last - first) * cols));
                matrix.ReadRows(first, last - first, values.span());
                const uint32_t here = AbsMaxBits(values.span());
                if (here >= kInfinityBits)
                  ThrowNotFinite(*this, options, first, cols, values.span());
                uint32_t seen = largest.load();
                while (here > seen && !largest.compare_exchange_weak(seen, here)) {
                }
              });
  return std::bit_cast<float>(largest.load());
}

void BlockFormat::Decode(const EncodedMatrix& encoded, int64_t first, int64_t count,
                         DecodeRounding rounding, DType out_dtype, std::span<std::byte> out) const {
  const int64_t cols = encoded.cols;
  const auto out_bytes = static_cast<size_t>(BitsOf(out_dtype) / 8);
  if (first < 0 || count < 0 || first > encoded.rows - count ||
      out.size() != static_cast<size_t>(count * cols) * out_bytes) {
    ThrowInternal("{}: rows {} + {} of {}, {} bytes out", Name(), first, count, encoded.rows,
                  out.size());
  }
  if (out.empty()) return;
  const ScaleValues scale_values = ValuesOfScales(encoded, rounding);
  const bool as_checkpoint = rounding == DecodeRounding::kCheckpoint;
  // Rounding an f32 result to the output type is one rounding of the product.
  const DType round_to = !as_checkpoint || encoded.dtype == DType::kF32 ? out_dtype : encoded.dtype;
  const Tensor& codes = encoded.Get("codes");
  const Tensor& scales = encoded.Get("scales");
  ParallelFor(first, first + count, RowsPerChunk(cols, kValuesPerBlockChunk),
              [&](int64_t begin, int64_t end) {
                const auto num_values = static_cast<size_t>((end - begin) * cols);
                const Scratch<uint8_t> unpacked(num_values);
                UnpackCodes(FactsOf(element_).bits, PartOf(codes, begin, end - begin, encoded.rows),
                            unpacked.span());
                DecodeBlocks(element_, unpacked.span(), block_,
                             PartOf(scales, begin, end - begin, encoded.rows), scale_values,
                             round_to, out_dtype,
                             out.subspan(static_cast<size_t>((begin - first) * cols) * out_bytes,
                                         num_values * out_bytes));
              });
}

void BlockFormat::DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                             std::span<float> out, DecodeRounding rounding) const {
  Decode(encoded, first, count, rounding, DType::kF32, std::as_writable_bytes(out));
}

void BlockFormat::DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count,
                               DType dtype, std::span<std::byte> out) const {
  // A second rounding, to another 16-bit type, takes the long way.
  if (dtype != DType::kF32 && encoded.dtype != DType::kF32 && encoded.dtype != dtype) {
    return Format::DecodeRowsTo(encoded, first, count, dtype, out);
  }
  Decode(encoded, first, count, DecodeRounding::kCheckpoint, dtype, out);
}

}  // namespace assay

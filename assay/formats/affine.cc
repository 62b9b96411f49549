#include "assay/formats/affine.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/formats/affine_checkpoint.h"
#include "assay/formats/affine_kernels.h"

namespace assay {
namespace {

/// Values that one chunk of a parallel loop takes: a few times the first cache.
constexpr int64_t kValuesPerAffineChunk = int64_t{1} << 16;

template <typename Array>
bool Contains(const Array& values, int64_t wanted) noexcept {
  return std::find(std::begin(values), std::end(values), wanted) != std::end(values);
}

int64_t ElementBytes(DType dtype) noexcept { return BitsOf(dtype) / 8; }

/// Finds the value at fault in the group that starts at (row, col) and says what is wrong.
[[noreturn]] void ThrowNotEncodable(const Format& format, const MatrixView& matrix,
                                    const EncodeOptions& options, int64_t row, int64_t col,
                                    int64_t group_size) {
  std::vector<float> values(static_cast<size_t>(matrix.cols()));
  matrix.ReadRows(row, 1, values);
  const auto group = std::span<const float>(values).subspan(static_cast<size_t>(col),
                                                            static_cast<size_t>(group_size));
  if (!std::ranges::all_of(group, [](float value) { return std::isfinite(value); })) {
    ThrowNotFinite(format, options, row, matrix.cols(), values);
  }
  ThrowInput(
      "{}: row {}, columns {} to {}: {} cannot hold this group; maximum - minimum exceeds "
      "the largest f32",
      options.tensor_name, row, col, col + group_size - 1, format.Name());
}

}  // namespace

AffineFormat::AffineFormat(int bits, int group_size) : bits_(bits), group_size_(group_size) {
  if (!Supports(bits, group_size)) ThrowInternal("affine: {} bits, groups of {}", bits, group_size);
}

std::shared_ptr<const AffineFormat> AffineFormat::Make(int bits, int group_size) {
  return std::make_shared<const AffineFormat>(bits, group_size);
}

bool AffineFormat::Supports(int64_t bits, int64_t group_size) noexcept {
  return Contains(kBits, bits) && Contains(kGroupSizes, group_size);
}

std::string AffineFormat::Name() const { return fmt::format("affine{}g{}", bits_, group_size_); }

std::string AffineFormat::Summary() const {
  return fmt::format("MLX affine: {}-bit codes, a scale and a bias for every {} values", bits_,
                     group_size_);
}

std::optional<std::string> AffineFormat::WhyNot(int64_t rows, int64_t cols, DType dtype) const {
  if (!IsWeightFloat(dtype)) {
    return fmt::format("dtype {}; expected F32, F16 or BF16", NameOf(dtype));
  }
  if (rows < 0 || cols < 0) return fmt::format("shape [{}, {}]", rows, cols);
  if (cols % group_size_ != 0) {
    std::vector<int> fitting;
    std::copy_if(std::begin(kGroupSizes), std::end(kGroupSizes), std::back_inserter(fitting),
                 [cols](int size) { return cols % size == 0; });
    if (fitting.empty()) {
      return fmt::format("{} columns are not a multiple of {}, nor of any smaller group size", cols,
                         group_size_);
    }
    return fmt::format("{} columns are not a multiple of {}; group sizes that fit: {}", cols,
                       group_size_, fmt::join(fitting, ", "));
  }
  if (!Shape({rows, cols}).CheckedNumBytes(DType::kF32)) {
    return fmt::format("shape [{}, {}] is too large", rows, cols);
  }
  return std::nullopt;
}

std::vector<PlaneSpec> AffineFormat::Layout(int64_t rows, int64_t cols, DType dtype) const {
  const Shape groups{rows, cols / group_size_};
  return {{"codes", DType::kU32, Shape{rows, cols / 32 * bits_}},
          {"scales", dtype, groups},
          {"biases", dtype, groups}};
}

EncodedMatrix AffineFormat::Encode(const MatrixView& matrix, const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  EncodedMatrix encoded{shared_from_this(), matrix.rows(), matrix.cols(), matrix.dtype(), {}};
  for (PlaneSpec& spec : Layout(matrix.rows(), matrix.cols(), matrix.dtype())) {
    Tensor tensor = Tensor::AllocateUninitialized(spec.dtype, std::move(spec.shape));
    encoded.planes.push_back({std::move(spec.name), std::move(tensor)});
  }
  const std::byte* values = matrix.RowBytes(0, matrix.rows()).data();
  std::byte* codes = encoded.planes[0].tensor.mutable_bytes().data();
  std::byte* scales = encoded.planes[1].tensor.mutable_bytes().data();
  std::byte* biases = encoded.planes[2].tensor.mutable_bytes().data();
  const affine_internal::Geometry geometry{bits_, group_size_, matrix.dtype()};
  const int64_t element_bytes = ElementBytes(matrix.dtype());
  const int64_t groups_per_row = matrix.cols() / group_size_;
  ParallelFor(0, matrix.rows() * groups_per_row, kValuesPerAffineChunk / group_size_,
              [&](int64_t first, int64_t last) {
                const int64_t done = affine_internal::EncodeGroups(
                    geometry, values + first * group_size_ * element_bytes, last - first,
                    codes + first * geometry.CodeBytesPerGroup(), scales + first * element_bytes,
                    biases + first * element_bytes);
                if (done == last - first) return;
                const int64_t group = first + done;
                ThrowNotEncodable(*this, matrix, options, group / groups_per_row,
                                  group % groups_per_row * group_size_, group_size_);
              });
  return encoded;
}

namespace {

void Decode(const AffineFormat& format, const EncodedMatrix& encoded, int64_t first, int64_t count,
            DecodeRounding rounding, DType out_dtype, std::span<std::byte> out) {
  const int64_t out_bytes = ElementBytes(out_dtype);
  if (first < 0 || count < 0 || first > encoded.rows - count ||
      static_cast<int64_t>(out.size()) != count * encoded.cols * out_bytes) {
    ThrowInternal("{}: rows {} + {} of {}, {} bytes out", format.Name(), first, count, encoded.rows,
                  out.size());
  }
  const int64_t group_size = format.group_size();
  const affine_internal::Geometry geometry{format.bits(), format.group_size(), encoded.dtype};
  const int64_t element_bytes = ElementBytes(encoded.dtype);
  const int64_t groups_per_row = encoded.cols / group_size;
  const std::byte* codes = encoded.Get("codes").bytes().data();
  const std::byte* scales = encoded.Get("scales").bytes().data();
  const std::byte* biases = encoded.Get("biases").bytes().data();
  const int64_t origin = first * groups_per_row;
  ParallelFor(origin, origin + count * groups_per_row, kValuesPerAffineChunk / group_size,
              [&](int64_t begin, int64_t end) {
                affine_internal::DecodeGroups(
                    geometry, codes + begin * geometry.CodeBytesPerGroup(),
                    scales + begin * element_bytes, biases + begin * element_bytes, end - begin,
                    rounding, out_dtype, out.data() + (begin - origin) * group_size * out_bytes);
              });
}

}  // namespace

void AffineFormat::DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                              std::span<float> out, DecodeRounding rounding) const {
  Decode(*this, encoded, first, count, rounding, DType::kF32, std::as_writable_bytes(out));
}

void AffineFormat::DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count,
                                DType dtype, std::span<std::byte> out) const {
  if (!IsWeightFloat(dtype)) ThrowInternal("{}: decoding to {}", Name(), NameOf(dtype));
  Decode(*this, encoded, first, count, DecodeRounding::kCheckpoint, dtype, out);
}

namespace {

FormatPtr ParseAffine(std::string_view name) {
  for (const int bits : AffineFormat::kBits) {
    for (const int group_size : AffineFormat::kGroupSizes) {
      if (name == fmt::format("affine{}g{}", bits, group_size)) {
        return AffineFormat::Make(bits, group_size);
      }
    }
  }
  return nullptr;
}

std::vector<std::string> AffineNames() {
  std::vector<std::string> names;
  for (const int bits : AffineFormat::kBits) {
    for (const int group_size : AffineFormat::kGroupSizes) {
      names.push_back(fmt::format("affine{}g{}", bits, group_size));
    }
  }
  return names;
}

}  // namespace

const FormatFamily kAffineFamily = {
    .name = "affine",
    .grammar = "affine{2,3,4,5,6,8}g{32,64,128}",
    .summary = "MLX affine quantisation: value = code · scale + bias, per group of a row",
    .details =
        "value = code · scale + bias, rounded to the checkpoint's dtype after the product and "
        "after the sum.\n"
        "Per group of 32, 64 or 128 values of a row: one scale, one bias (both in the dtype of the "
        "weight).\n"
        "The most extreme value of a group is its bias and has code 0; the scale is negative when "
        "that value is the maximum; zero falls on a code as nearly as possible.\n"
        "codes   U32 [rows, cols · bits / 32], a little-endian bit stream per row, least "
        "significant bit first\n"
        "scales  F32, F16 or BF16 [rows, cols / group]\n"
        "biases  as scales\n"
        "Written and read by MLX and mlx-lm (config.json \"quantization\"). Refuses NaN, infinity, "
        "and groups whose range exceeds the largest f32.",
    .parse = ParseAffine,
    .names = AffineNames,
    .recognise = RecogniseAffine,
};

}  // namespace assay

#include "assay/formats/turboquant.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/formats/turboquant_kernels.h"
#include "assay/numeric/element.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

// Values a parallel chunk takes at least: enough to hide the cost of handing it out.
constexpr int64_t kValuesPerTurboQuantChunk = 1 << 15;

turboquant::Geometry GeometryOf(const TurboQuantFormat& format) {
  return {format.bits(), format.stored_bits(), format.group_size()};
}

// As tensors of a checkpoint are called: messages name what the user sees.
std::string PlaneKey(std::string_view plane) { return fmt::format("tq_{}", plane); }

const int8_t* Signs(const Tensor& signs) {
  return reinterpret_cast<const int8_t*>(signs.bytes().data());
}

void RequireSigns(const Tensor& signs, std::string_view name) {
  const int8_t* values = Signs(signs);
  for (int64_t col = 0; col < signs.num_bytes(); ++col) {
    if (values[col] != 1 && values[col] != -1) {
      ThrowInput("{}: tq_signs: column {}: expected a sign of +1 or -1, found {}", name, col,
                 values[col]);
    }
  }
}

Tensor SignsFor(const EncodeOptions& options, int64_t cols) {
  for (const Plane& plane : options.given_planes) {
    if (plane.name != "signs") continue;
    const Tensor& given = plane.tensor;
    if (given.dtype() != DType::kI8 || given.shape() != Shape{cols}) {
      ThrowInput("{}: tq_signs given: expected I8 [{}], found {} {}", options.tensor_name, cols,
                 NameOf(given.dtype()), given.shape().ToString());
    }
    RequireSigns(given, options.tensor_name);
    return given;
  }
  Tensor signs = Tensor::AllocateUninitialized(DType::kI8, {cols});
  const std::vector<int8_t> drawn = TurboQuantSigns(options.tensor_name, cols);
  std::ranges::copy(drawn, signs.mutable_as<int8_t>().begin());
  return signs;
}

// Says why EncodeRow stopped at a group.
[[noreturn]] void ThrowRefused(const MatrixView& matrix, std::string_view name, int64_t row,
                               int64_t group, int64_t group_size) {
  std::vector<float> values(static_cast<size_t>(matrix.cols()));
  matrix.ReadRows(row, 1, values);
  for (int64_t col = group * group_size; col < (group + 1) * group_size; ++col) {
    const float value = values[static_cast<size_t>(col)];
    if (!std::isfinite(value)) {
      ThrowInput("{}: row {}, column {}: {} cannot be encoded", name, row, col,
                 std::isnan(value) ? "NaN" : "Inf");
    }
  }
  ThrowInput(
      "{}: row {}, group {} (columns {} to {}): overflow: the norm exceeds 65504, the largest f16, "
      "in which it is stored",
      name, row, group, group * group_size, (group + 1) * group_size - 1);
}

// The first row of `rows` × `row_bytes` bytes that has an index of 8 or more, for 3-bit planes.
void RequireIndicesBelow8(const Tensor& packed, int64_t row_bytes, std::string_view name) {
  const std::span<const std::byte> bytes = packed.bytes();
  constexpr size_t kBlock = 4096;
  for (size_t begin = 0; begin < bytes.size(); begin += kBlock) {
    const auto block = bytes.subspan(begin, std::min(kBlock, bytes.size() - begin));
    std::byte all{0};
    for (const std::byte byte : block) all |= byte;
    if ((all & std::byte{0x88}) == std::byte{0}) continue;
    for (size_t i = 0; i < block.size(); ++i) {
      if ((block[i] & std::byte{0x88}) == std::byte{0}) continue;
      const auto at = static_cast<int64_t>(begin + i);
      const int low = std::to_integer<int>(block[i] & std::byte{0xF});
      const int high = std::to_integer<int>(block[i] >> 4);
      ThrowInput("{}: tq_packed: row {}, column {}: index {} is beyond the 8 levels of 3 bits",
                 name, at / row_bytes, at % row_bytes * 2 + (low < 8 ? 1 : 0),
                 low < 8 ? high : low);
    }
  }
}

void RequireFiniteScales(const Tensor& scales, int64_t groups_per_row, std::string_view name) {
  for (int64_t i = 0; i < scales.num_bytes() / 2; ++i) {
    uint16_t scale;
    std::memcpy(&scale, scales.bytes().data() + 2 * i, sizeof(scale));
    if ((scale & 0x7C00u) == 0x7C00u) {
      ThrowInput("{}: tq_scales: row {}, group {}: the scale is {}", name, i / groups_per_row,
                 i % groups_per_row, (scale & 0x3FFu) != 0 ? "NaN" : "Inf");
    }
  }
}

}  // namespace

TurboQuantFormat::TurboQuantFormat(int bits, int group_size)
    : bits_(bits), group_size_(group_size) {
  if (!Supports(bits, group_size)) {
    ThrowInternal("turboquant: {} bits in groups of {}", bits, group_size);
  }
}

bool TurboQuantFormat::Supports(int64_t bits, int64_t group_size) noexcept {
  return std::ranges::find(kBits, bits) != std::end(kBits) &&
         std::ranges::find(kGroupSizes, group_size) != std::end(kGroupSizes);
}

std::shared_ptr<const TurboQuantFormat> TurboQuantFormat::Make(int bits, int group_size) {
  if (!Supports(bits, group_size)) {
    ThrowInternal("turboquant: {} bits in groups of {}", bits, group_size);
  }
  static const std::vector<std::shared_ptr<const TurboQuantFormat>> all = [] {
    std::vector<std::shared_ptr<const TurboQuantFormat>> made;
    for (const int b : kBits) {
      for (const int g : kGroupSizes) made.push_back(std::make_shared<TurboQuantFormat>(b, g));
    }
    return made;
  }();
  return *std::ranges::find_if(all, [&](const auto& format) {
    return format->bits() == bits && format->group_size() == group_size;
  });
}

const Codebook& TurboQuantFormat::DecoderCodebook() const {
  return LloydMaxCodebook(group_size_, bits_, LloydMaxVariant::kDecoder);
}

const Codebook& TurboQuantFormat::EncoderCodebook() const {
  return LloydMaxCodebook(group_size_, bits_, LloydMaxVariant::kEncoder);
}

std::string TurboQuantFormat::Name() const { return fmt::format("tq{}g{}", bits_, group_size_); }

std::string TurboQuantFormat::Summary() const {
  return fmt::format("TurboQuant weights: rotated groups of {}, {} codebook levels, f16 norms",
                     group_size_, num_levels());
}

std::optional<std::string> TurboQuantFormat::WhyNot(int64_t rows, int64_t cols, DType dtype) const {
  if (!IsWeightFloat(dtype)) {
    return fmt::format("it encodes F32, F16 or BF16, found {}", NameOf(dtype));
  }
  if (rows < 0 || cols < 0) return fmt::format("{} × {} is no matrix", rows, cols);
  if (cols % group_size_ == 0) return std::nullopt;
  std::vector<int> fitting;
  for (const int size : kGroupSizes) {
    if (cols % size == 0) fitting.push_back(size);
  }
  if (fitting.empty()) {
    return fmt::format("groups of {} do not divide {} columns, nor does any group size it has",
                       group_size_, cols);
  }
  return fmt::format("groups of {} do not divide {} columns; group sizes that do: {}", group_size_,
                     cols, fmt::join(fitting, ", "));
}

std::vector<PlaneSpec> TurboQuantFormat::Layout(int64_t rows, int64_t cols, DType /*dtype*/) const {
  return {{"packed", DType::kU8, Shape{rows, cols / 8 * stored_bits()}},
          {"scales", DType::kF16, Shape{rows, cols / group_size_}},
          {"signs", DType::kI8, Shape{cols}}};
}

EncodedMatrix TurboQuantFormat::Encode(const MatrixView& matrix,
                                       const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  const int64_t rows = matrix.rows();
  const int64_t cols = matrix.cols();
  const auto specs = Layout(rows, cols, matrix.dtype());
  EncodedMatrix encoded{shared_from_this(), rows, cols, DType::kBF16, {}};
  encoded.planes = {
      {"packed", Tensor::AllocateUninitialized(specs[0].dtype, specs[0].shape)},
      {"scales", Tensor::AllocateUninitialized(specs[1].dtype, specs[1].shape)},
      {"signs", SignsFor(options, cols)},
  };
  std::byte* packed = encoded.planes[0].tensor.mutable_bytes().data();
  std::byte* scales = encoded.planes[1].tensor.mutable_bytes().data();
  const int8_t* signs = Signs(encoded.planes[2].tensor);
  const Codebook& codebook = EncoderCodebook();
  const std::span<const float> inner =
      std::span(codebook.boundaries).subspan(1, static_cast<size_t>(num_levels() - 1));
  const int64_t groups = cols / group_size_;
  const int64_t row_bytes = cols / 8 * stored_bits();
  if (cols == 0) return encoded;
  ParallelFor(
      0, rows, RowsPerChunk(cols, kValuesPerTurboQuantChunk), [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row) {
          const size_t done = turboquant::EncodeRow(
              GeometryOf(*this), matrix.dtype(), matrix.RowBytes(row, 1).data(), signs,
              static_cast<size_t>(groups), inner, packed + row * row_bytes,
              scales + 2 * row * groups);
          if (done < static_cast<size_t>(groups)) {
            ThrowRefused(matrix, options.tensor_name, row, static_cast<int64_t>(done), group_size_);
          }
        }
      });
  return encoded;
}

namespace {

// decode(row's packed, its scales, signs, its position in the output) for every row, in parallel.
template <class DecodeRow>
void ForEachRow(const TurboQuantFormat& format, const EncodedMatrix& encoded, int64_t first,
                int64_t count, size_t num_out, const DecodeRow& decode) {
  const int64_t cols = encoded.cols;
  if (first < 0 || count < 0 || first > encoded.rows - count ||
      num_out != static_cast<size_t>(count * cols)) {
    ThrowInternal("{}: rows {}+{} of {} into {} values", format.Name(), first, count, encoded.rows,
                  num_out);
  }
  const std::byte* packed = encoded.Get("packed").bytes().data();
  const std::byte* scales = encoded.Get("scales").bytes().data();
  const int8_t* signs = Signs(encoded.Get("signs"));
  const int64_t groups = cols / format.group_size();
  const int64_t row_bytes = cols / 8 * format.stored_bits();
  if (cols == 0) return;
  ParallelFor(0, count, RowsPerChunk(cols, kValuesPerTurboQuantChunk),
              [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                  decode(packed + (first + row) * row_bytes, scales + 2 * (first + row) * groups,
                         signs, static_cast<size_t>(row * cols));
                }
              });
}

}  // namespace

void TurboQuantFormat::DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                                  std::span<float> out, DecodeRounding rounding) const {
  const std::span<const float> centroids = DecoderCodebook().centroids;
  const auto groups = static_cast<size_t>(encoded.cols / group_size_);
  ForEachRow(*this, encoded, first, count, out.size(),
             [&](const std::byte* packed, const std::byte* scales, const int8_t* signs, size_t at) {
               turboquant::DecodeRow(GeometryOf(*this), packed, scales, signs, groups, centroids,
                                     rounding == DecodeRounding::kCheckpoint, out.data() + at);
             });
}

void TurboQuantFormat::DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count,
                                    DType dtype, std::span<std::byte> out) const {
  if (dtype != DType::kBF16) return Format::DecodeRowsTo(encoded, first, count, dtype, out);
  const std::span<const float> centroids = DecoderCodebook().centroids;
  const auto groups = static_cast<size_t>(encoded.cols / group_size_);
  ForEachRow(*this, encoded, first, count, out.size() / 2,
             [&](const std::byte* packed, const std::byte* scales, const int8_t* signs, size_t at) {
               turboquant::DecodeRowToBF16(GeometryOf(*this), packed, scales, signs, groups,
                                           centroids, out.data() + 2 * at);
             });
}

void TurboQuantFormat::Validate(const EncodedMatrix& encoded, std::string_view name) const {
  if (const auto reason = WhyNot(encoded.rows, encoded.cols, encoded.dtype)) {
    ThrowInput("{}: not a {} matrix: {}", name, Name(), *reason);
  }
  for (const PlaneSpec& spec : Layout(encoded.rows, encoded.cols, encoded.dtype)) {
    const Tensor* tensor = encoded.Find(spec.name);
    if (tensor == nullptr) {
      ThrowInput("{}: {} of {} is missing", name, PlaneKey(spec.name), Name());
    }
    if (tensor->dtype() != spec.dtype || tensor->shape() != spec.shape) {
      ThrowInput("{}: {} of {}: expected {} {}, found {} {}", name, PlaneKey(spec.name), Name(),
                 NameOf(spec.dtype), spec.shape.ToString(), NameOf(tensor->dtype()),
                 tensor->shape().ToString());
    }
  }
  if (bits_ == 3) {
    RequireIndicesBelow8(encoded.Get("packed"), encoded.cols / 8 * stored_bits(), name);
  }
  RequireFiniteScales(encoded.Get("scales"), encoded.cols / group_size_, name);
  RequireSigns(encoded.Get("signs"), name);
}

EncodedMatrix TurboQuantFromPlanes(const std::shared_ptr<const TurboQuantFormat>& format,
                                   Tensor packed, Tensor scales, Tensor signs,
                                   std::string_view name) {
  const auto require = [&](const Tensor& tensor, std::string_view plane, DType dtype, size_t rank) {
    if (tensor.dtype() != dtype || tensor.shape().rank() != rank) {
      ThrowInput("{}: {} of {}: expected {} with {} axes, found {} {}", name, PlaneKey(plane),
                 format->Name(), NameOf(dtype), rank, NameOf(tensor.dtype()),
                 tensor.shape().ToString());
    }
  };
  require(packed, "packed", DType::kU8, 2);
  require(scales, "scales", DType::kF16, 2);
  require(signs, "signs", DType::kI8, 1);
  // Each tells the number of columns; where two agree, the third is at fault.
  const auto of_packed =
      CheckedMul<int64_t>(packed.shape()[1], 8 / format->stored_bits()).value_or(-1);
  const auto of_scales = CheckedMul<int64_t>(scales.shape()[1], format->group_size()).value_or(-1);
  const int64_t of_signs = signs.shape()[0];
  if (of_packed != of_scales || of_packed != of_signs) {
    const std::string_view wrong = of_scales == of_signs    ? "packed"
                                   : of_packed == of_signs  ? "scales"
                                   : of_packed == of_scales ? "signs"
                                                            : "packed";
    ThrowInput(
        "{}: {} does not fit: tq_packed has {} columns, tq_scales {} (groups of {}), tq_signs {}",
        name, PlaneKey(wrong), of_packed, of_scales, format->group_size(), of_signs);
  }
  if (packed.shape()[0] != scales.shape()[0]) {
    ThrowInput("{}: tq_scales does not fit: it has {} rows, tq_packed {}", name, scales.shape()[0],
               packed.shape()[0]);
  }
  const int64_t rows = packed.shape()[0];
  EncodedMatrix encoded{format, rows, of_packed, DType::kBF16, {}};
  encoded.planes = {
      {"packed", std::move(packed)}, {"scales", std::move(scales)}, {"signs", std::move(signs)}};
  return encoded;
}

}  // namespace assay

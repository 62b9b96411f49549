#include "assay/formats/fp8_block.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/formats/planes.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/element.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

constexpr float kLargest = 448.0F;
constexpr std::string_view kFp8Prefix = "fp8-";

/// Values that one chunk of a parallel loop takes.
constexpr int64_t kValuesPerFp8Chunk = int64_t{1} << 16;

std::string_view SuffixOf(DType scale_dtype) {
  switch (scale_dtype) {
    case DType::kF8E8M0:
      return ":ue8m0";
    case DType::kBF16:
      return ":bf16";
    case DType::kF16:
      return ":f16";
    default:
      return "";
  }
}

/// The scale of a block whose largest magnitude is `amax`; finite.
float ScaleOf(float amax, DType dtype) {
  if (dtype == DType::kF8E8M0) {
    if (amax == 0.0F) return 1.0F;
    // transformers computes the reciprocal, a product and the reciprocal again, each rounded.
    const float inverse = 1.0F / ((1.0F / amax) * kLargest);
    const float floored = std::max(inverse, 0x1p-126F);
    const auto log = static_cast<float>(std::log2(static_cast<double>(floored)));
    return std::ldexp(1.0F, static_cast<int>(std::ceil(log)));
  }
  const float scale = RoundToDType(dtype, amax / kLargest);
  return scale == 0.0F ? 1.0F : scale;
}

int64_t BlockLength(int64_t block, int64_t axis) {
  return block == Fp8BlockFormat::kWholeAxis ? std::max<int64_t>(axis, 1) : block;
}

/// Of any length, where AbsMaxBits wants blocks. NaN and infinity are the largest of all.
uint32_t LargestMagnitudeBits(std::span<const float> values) {
  uint32_t largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7FFFFFFFU);
  }
  return largest;
}

bool ParseDimension(std::string_view text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value > 0 &&
         text.front() != '0';
}

}  // namespace

Fp8BlockFormat::Fp8BlockFormat(int64_t block_rows, int64_t block_cols, DType scale_dtype)
    : block_rows_(block_rows), block_cols_(block_cols), scale_dtype_(scale_dtype) {
  const bool is_scale = IsWeightFloat(scale_dtype) || scale_dtype == DType::kF8E8M0;
  if (block_rows < 0 || block_cols < 0 || !is_scale) {
    ThrowInternal("fp8: blocks of {} x {}, scales of {}", block_rows, block_cols,
                  NameOf(scale_dtype));
  }
}

std::shared_ptr<const Fp8BlockFormat> Fp8BlockFormat::Make(int64_t block_rows, int64_t block_cols,
                                                           DType scale_dtype) {
  return std::make_shared<const Fp8BlockFormat>(block_rows, block_cols, scale_dtype);
}

FormatPtr Fp8BlockFormat::FromName(std::string_view name) {
  if (!name.starts_with(kFp8Prefix)) return nullptr;
  std::string_view shape = name.substr(kFp8Prefix.size());
  DType scale_dtype = DType::kF32;
  for (const DType candidate : {DType::kF8E8M0, DType::kBF16, DType::kF16}) {
    if (!shape.ends_with(SuffixOf(candidate))) continue;
    scale_dtype = candidate;
    shape.remove_suffix(SuffixOf(candidate).size());
    break;
  }
  if (shape == "tensor") return Make(kWholeAxis, kWholeAxis, scale_dtype);
  if (shape == "channel") return Make(1, kWholeAxis, scale_dtype);
  constexpr std::string_view kBlock = "block";
  if (!shape.starts_with(kBlock)) return nullptr;
  shape.remove_prefix(kBlock.size());
  const size_t cross = shape.find('x');
  int64_t rows = 0;
  int64_t cols = 0;
  if (shape.empty() || !ParseDimension(shape.substr(0, cross), rows)) return nullptr;
  cols = rows;
  if (cross != std::string_view::npos) {
    if (cross + 1 == shape.size() || !ParseDimension(shape.substr(cross + 1), cols)) return nullptr;
    if (rows == cols) return nullptr;  // one name a format: fp8-block128, not fp8-block128x128
  }
  return Make(rows, cols, scale_dtype);
}

std::string Fp8BlockFormat::Name() const {
  const std::string_view suffix = SuffixOf(scale_dtype_);
  if (block_cols_ == kWholeAxis) {
    if (block_rows_ == kWholeAxis) return fmt::format("fp8-tensor{}", suffix);
    if (block_rows_ == 1) return fmt::format("fp8-channel{}", suffix);
  }
  if (block_rows_ == block_cols_) return fmt::format("fp8-block{}{}", block_rows_, suffix);
  return fmt::format("fp8-block{}x{}{}", block_rows_, block_cols_, suffix);
}

std::string Fp8BlockFormat::Summary() const {
  const std::string per = block_rows_ == kWholeAxis && block_cols_ == kWholeAxis ? "tensor"
                          : block_cols_ == kWholeAxis
                              ? "row"
                              : fmt::format("{} x {} block", block_rows_, block_cols_);
  return fmt::format("e4m3 codes, one {} scale for each {}", NameOf(scale_dtype_), per);
}

Shape Fp8BlockFormat::ScaleShape(int64_t rows, int64_t cols) const {
  return Shape{CeilDiv(rows, BlockLength(block_rows_, rows)),
               CeilDiv(cols, BlockLength(block_cols_, cols))};
}

std::optional<std::string> Fp8BlockFormat::WhyNot(int64_t rows, int64_t cols, DType dtype) const {
  if (!IsWeightFloat(dtype)) {
    return fmt::format("dtype {}; expected F32, F16 or BF16", NameOf(dtype));
  }
  if (rows < 0 || cols < 0 || !Shape({rows, cols}).CheckedNumBytes(DType::kF32)) {
    return fmt::format("shape [{}, {}]", rows, cols);
  }
  return std::nullopt;
}

std::vector<PlaneSpec> Fp8BlockFormat::Layout(int64_t rows, int64_t cols, DType /*dtype*/) const {
  return {{"codes", DType::kF8E4M3, Shape{rows, cols}},
          {"scales", scale_dtype_, ScaleShape(rows, cols)}};
}

EncodedMatrix Fp8BlockFormat::Encode(const MatrixView& matrix, const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  const int64_t rows = matrix.rows();
  const int64_t cols = matrix.cols();
  EncodedMatrix encoded = AllocatePlanes(shared_from_this(), rows, cols, matrix.dtype());
  if (rows == 0 || cols == 0) return encoded;
  const std::span<std::byte> codes = encoded.planes[0].tensor.mutable_bytes();
  const std::span<std::byte> scale_bytes = encoded.planes[1].tensor.mutable_bytes();
  const int64_t block_rows = BlockLength(block_rows_, rows);
  const int64_t block_cols = BlockLength(block_cols_, cols);
  const auto width = static_cast<size_t>(cols);
  const auto num_scales = static_cast<size_t>(CeilDiv(cols, block_cols));
  const size_t scale_size = static_cast<size_t>(BitsOf(scale_dtype_)) / 8;
  const auto segment = [&](size_t index) {
    const size_t first = index * static_cast<size_t>(block_cols);
    return std::pair{first, std::min(static_cast<size_t>(block_cols), width - first)};
  };

  // Largest magnitudes first, in parallel over rows, so that one block as tall as the tensor
  // (fp8-tensor) still uses every core.
  std::vector<uint32_t> row_amax(static_cast<size_t>(rows) * num_scales);
  const int64_t grain = RowsPerChunk(cols, kValuesPerFp8Chunk);
  ParallelFor(0, rows, grain, [&](int64_t first, int64_t last) {
    std::vector<float> values(width);
    for (int64_t row = first; row < last; ++row) {
      matrix.ReadRows(row, 1, values);
      for (size_t index = 0; index < num_scales; ++index) {
        const auto [begin, length] = segment(index);
        const uint32_t bits = LargestMagnitudeBits(std::span(values).subspan(begin, length));
        if (bits >= 0x7F800000U) {
          ThrowNotFinite(*this, options, row, cols, values);
        }
        row_amax[static_cast<size_t>(row) * num_scales + index] = bits;
      }
    }
  });
  const auto num_scale_rows = static_cast<size_t>(CeilDiv(rows, block_rows));
  std::vector<float> scales(num_scale_rows * num_scales);
  for (size_t block = 0; block < num_scale_rows; ++block) {
    const size_t first = block * static_cast<size_t>(block_rows);
    const size_t last =
        std::min(first + static_cast<size_t>(block_rows), static_cast<size_t>(rows));
    for (size_t index = 0; index < num_scales; ++index) {
      uint32_t bits = 0;
      for (size_t row = first; row < last; ++row) {
        bits = std::max(bits, row_amax[row * num_scales + index]);
      }
      scales[block * num_scales + index] = ScaleOf(std::bit_cast<float>(bits), scale_dtype_);
    }
  }
  Round(ElementOf(scale_dtype_), scales, scale_bytes.first(scales.size() * scale_size));

  const bool rounds_quotient = scale_dtype_ == DType::kBF16 || scale_dtype_ == DType::kF16;
  ParallelFor(0, rows, grain, [&](int64_t first, int64_t last) {
    std::vector<float> values(width);
    for (int64_t row = first; row < last; ++row) {
      matrix.ReadRows(row, 1, values);
      const float* row_scales = &scales[static_cast<size_t>(row / block_rows) * num_scales];
      for (size_t index = 0; index < num_scales; ++index) {
        const auto [begin, length] = segment(index);
        const float scale = row_scales[index];
        for (float& value : std::span(values).subspan(begin, length)) value /= scale;
      }
      if (rounds_quotient) {
        for (float& value : values) value = RoundToDType(scale_dtype_, value);
      }
      for (float& value : values) value = std::clamp(value, -kLargest, kLargest);
      Round(Element::kE4M3, values, codes.subspan(static_cast<size_t>(row) * width, width));
    }
  });
  return encoded;
}

void Fp8BlockFormat::DecodeRow(const EncodedMatrix& encoded, int64_t row,
                               std::span<const float> scales, std::span<float> out) const {
  const size_t width = out.size();
  Widen(Element::kE4M3, encoded.Get("codes").bytes().subspan(static_cast<size_t>(row) * width),
        out);
  const auto block_cols = static_cast<size_t>(BlockLength(block_cols_, encoded.cols));
  const size_t num_scales = CeilDiv(width, block_cols);
  const auto block_row = static_cast<size_t>(row / BlockLength(block_rows_, encoded.rows));
  for (size_t index = 0; index < num_scales; ++index) {
    const float scale = scales[block_row * num_scales + index];
    const size_t begin = index * block_cols;
    for (float& value : out.subspan(begin, std::min(block_cols, width - begin))) value *= scale;
  }
}

namespace {

std::vector<float> ScalesOf(const EncodedMatrix& encoded) {
  const Tensor& plane = encoded.Get("scales");
  std::vector<float> scales(static_cast<size_t>(plane.shape().NumElements()));
  ReadFloats(plane.view(), 0, scales);
  return scales;
}

}  // namespace

void Fp8BlockFormat::DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                                std::span<float> out, DecodeRounding rounding) const {
  RequireRowRange(encoded, first, count, out.size());
  if (out.empty()) return;
  const std::vector<float> scales = ScalesOf(encoded);
  const auto width = static_cast<size_t>(encoded.cols);
  const bool rounds = rounding == DecodeRounding::kCheckpoint && encoded.dtype != DType::kF32;
  ParallelFor(
      0, count, RowsPerChunk(encoded.cols, kValuesPerFp8Chunk), [&](int64_t begin, int64_t end) {
        std::vector<std::byte> rounded(rounds ? 2 * width : 0);
        for (int64_t row = begin; row < end; ++row) {
          const std::span<float> values = out.subspan(static_cast<size_t>(row) * width, width);
          DecodeRow(encoded, first + row, scales, values);
          if (!rounds) continue;
          Round(ElementOf(encoded.dtype), values, rounded);
          Widen(ElementOf(encoded.dtype), rounded, values);
        }
      });
}

void Fp8BlockFormat::DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count,
                                  DType dtype, std::span<std::byte> out) const {
  if (dtype != encoded.dtype) {  // a second rounding: the general path has it
    Format::DecodeRowsTo(encoded, first, count, dtype, out);
    return;
  }
  const int64_t element_bytes = BitsOf(dtype) / 8;
  RequireRowRange(encoded, first, count, out.size(), element_bytes);
  if (out.empty()) return;
  const std::vector<float> scales = ScalesOf(encoded);
  const auto width = static_cast<size_t>(encoded.cols);
  const size_t row_bytes = width * static_cast<size_t>(element_bytes);
  ParallelFor(0, count, RowsPerChunk(encoded.cols, kValuesPerFp8Chunk),
              [&](int64_t begin, int64_t end) {
                std::vector<float> values(width);
                for (int64_t row = begin; row < end; ++row) {
                  DecodeRow(encoded, first + row, scales, values);
                  Round(ElementOf(dtype), values,
                        out.subspan(static_cast<size_t>(row) * row_bytes, row_bytes));
                }
              });
}

const CheckpointForm* Fp8BlockFormat::Form() const {
  return block_rows_ != kWholeAxis && block_cols_ != kWholeAxis &&
                 (scale_dtype_ == DType::kF32 || scale_dtype_ == DType::kF8E8M0)
             ? Fp8BlockCheckpointForm()
             : nullptr;
}

namespace {

std::vector<std::string> Fp8BlockNames() {
  return {"fp8-block128",      "fp8-block128:ue8m0", "fp8-block32",
          "fp8-block32:ue8m0", "fp8-channel",        "fp8-tensor"};
}

}  // namespace

const FormatFamily kFp8BlockFamily = {
    .name = "fp8_block",
    .grammar = "fp8-{block<R>[x<C>],channel,tensor}[:ue8m0|:bf16|:f16]",
    .summary = "e4m3 codes with one scale per block, row or tensor (DeepSeek V3 and later)",
    .details =
        "value = code · scale, one f32 product, rounded once to the checkpoint's dtype.\n"
        "codes   F8_E4M3 [rows, cols]\n"
        "scales  F32 (`:ue8m0`: F8_E8M0, powers of two) [⌈rows / R⌉, ⌈cols / C⌉]; edge blocks are "
        "partial\n"
        "Encoding: scale = amax / 448, 1 for a zero block; codes round to nearest even.\n"
        "Written by DeepSeek as X.weight with X.weight_scale_inv (V3) or X.scale (V4); any block "
        "shape is read. Refuses NaN and infinity.",
    .parse = &Fp8BlockFormat::FromName,
    .names = Fp8BlockNames,
    .recognise = RecogniseFp8Block,
};

}  // namespace assay

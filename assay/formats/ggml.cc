#include "assay/formats/ggml.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/base/text.h"
#include "assay/formats/fp_blocks.h"
#include "assay/formats/ggml_blocks.h"
#include "assay/formats/planes.h"
#include "assay/numeric/bulk.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

constexpr int64_t kValuesPerGgmlChunk = int64_t{1} << 13;  // 32 KiB of f32: the first cache
constexpr std::string_view kGgmlPrefix = "ggml-";

bool IsBlockType(const GgmlType& type) noexcept { return !type.dtype; }

std::string FormatName(const GgmlType& type) {
  return fmt::format("{}{}", kGgmlPrefix, Lower(type.name));
}

/// "ggml-q4_0, ggml-q4_1, …": the types that may hold rows of this length.
std::string TypesFor(int64_t cols) {
  std::vector<std::string> names;
  for (const GgmlType& type : GgmlTypes()) {
    if (IsBlockType(type) && cols % type.block_values == 0) names.push_back(FormatName(type));
  }
  return names.empty() ? std::string("no type of blocks")
                       : fmt::format("{}", fmt::join(names, ", "));
}

/// Rows as f32: where they lie when they are that and aligned, else widened into `scratch`.
std::span<const float> RowsOf(const MatrixView& matrix, int64_t first, int64_t count,
                              std::unique_ptr<float[]>& scratch) {
  const auto num_values = static_cast<size_t>(count * matrix.cols());
  if (matrix.dtype() == DType::kF32) {
    const std::byte* bytes = matrix.RowBytes(first, count).data();
    if (reinterpret_cast<uintptr_t>(bytes) % alignof(float) == 0) {
      return {reinterpret_cast<const float*>(bytes), num_values};
    }
  }
  scratch = std::make_unique_for_overwrite<float[]>(num_values);
  matrix.ReadRows(first, count, {scratch.get(), num_values});
  return {scratch.get(), num_values};
}

std::string_view ReasonOf(ggml_internal::Refusal refusal) {
  switch (refusal) {
    case ggml_internal::Refusal::kScale:
      return "a scale is beyond 65504, the largest f16";
    case ggml_internal::Refusal::kUnderflow:
      return "they are so small that the reciprocal of their scale is infinite";
    default:
      return "the sums of ggml's quantiser are not finite for them";
  }
}

}  // namespace

FormatPtr GgmlFormat::Make(const GgmlType& type) {
  if (!IsBlockType(type)) ThrowInternal("ggml: {} is no type of blocks", type.name);
  return std::make_shared<const GgmlFormat>(type);
}

std::string GgmlFormat::Name() const { return FormatName(type_); }

std::string GgmlFormat::Summary() const {
  return fmt::format(
      "ggml {}: {} values in {} bytes, {} bits per weight", type_.name, type_.block_values,
      type_.block_bytes,
      8.0 * static_cast<double>(type_.block_bytes) / static_cast<double>(type_.block_values));
}

bool GgmlFormat::CanEncode() const { return ggml_internal::EncoderOf(type_) != nullptr; }

std::optional<std::string> GgmlFormat::WhyNot(int64_t rows, int64_t cols, DType dtype) const {
  if (!IsWeightFloat(dtype)) {
    return fmt::format("dtype {}; expected F32, F16 or BF16", NameOf(dtype));
  }
  if (rows < 0 || cols < 0 || !Shape({rows, cols}).CheckedNumBytes(DType::kF32)) {
    return fmt::format("shape [{}, {}]", rows, cols);
  }
  if (cols % type_.block_values != 0) {
    return fmt::format("{} columns are not a multiple of the block of {}; {} would fit", cols,
                       type_.block_values, TypesFor(cols));
  }
  return std::nullopt;
}

std::vector<PlaneSpec> GgmlFormat::Layout(int64_t rows, int64_t cols, DType /*dtype*/) const {
  return {{"blocks", DType::kU8, Shape{rows, cols / type_.block_values * type_.block_bytes}}};
}

EncodedMatrix GgmlFormat::Encode(const MatrixView& matrix, const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  const int64_t cols = matrix.cols();
  const PlaneSpec plane = Layout(matrix.rows(), cols, DType::kF32)[0];
  EncodedMatrix encoded{shared_from_this(),
                        matrix.rows(),
                        cols,
                        DType::kF32,
                        {{plane.name, Tensor::AllocateUninitialized(plane.dtype, plane.shape)}}};
  if (matrix.rows() == 0 || cols == 0) return encoded;
  const int64_t row_bytes = cols / type_.block_values * type_.block_bytes;
  auto* out = reinterpret_cast<uint8_t*>(encoded.planes[0].tensor.mutable_bytes().data());
  const auto encode = ggml_internal::EncoderOf(type_);
  ParallelFor(0, matrix.rows(), RowsPerChunk(cols, kValuesPerGgmlChunk),
              [&](int64_t first, int64_t last) {
                std::unique_ptr<float[]> scratch;
                const std::span<const float> values = RowsOf(matrix, first, last - first, scratch);
                constexpr uint32_t kInfinity = 0x7F800000;
                if (AbsMaxBits(values) >= kInfinity)
                  ThrowNotFinite(*this, options, first, cols, values);
                const auto num_blocks = values.size() / static_cast<size_t>(type_.block_values);
                const ggml_internal::Encoded result =
                    encode(values.data(), num_blocks, out + first * row_bytes);
                if (result.done < num_blocks) {
                  const int64_t at = static_cast<int64_t>(result.done) * type_.block_values;
                  ThrowInput("{}: row {}, column {}: {} cannot hold these {} values: {}",
                             options.tensor_name, first + at / cols, at % cols, Name(),
                             type_.block_values, ReasonOf(result.why));
                }
              });
  return encoded;
}

void GgmlFormat::DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                            std::span<float> out, DecodeRounding /*rounding*/) const {
  RequireRowRange(encoded, first, count, out.size());
  const int64_t cols = encoded.cols;
  const int64_t row_bytes = cols / type_.block_values * type_.block_bytes;
  const auto* blocks =
      reinterpret_cast<const uint8_t*>(encoded.Get("blocks").bytes().data()) + first * row_bytes;
  ParallelFor(0, count, RowsPerChunk(cols, kValuesPerGgmlChunk), [&](int64_t begin, int64_t end) {
    ggml_internal::DecodeBlocks(
        type_, blocks + begin * row_bytes,
        out.subspan(static_cast<size_t>(begin * cols), static_cast<size_t>((end - begin) * cols)));
  });
}

void GgmlFormat::DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count,
                              DType dtype, std::span<std::byte> out) const {
  if (!IsWeightFloat(dtype)) ThrowInternal("{}: rows as {}", Name(), NameOf(dtype));
  const auto element_bytes = static_cast<size_t>(BitsOf(dtype) / 8);
  RequireRowRange(encoded, first, count, out.size(), static_cast<int64_t>(element_bytes));
  if (dtype == DType::kF32 && reinterpret_cast<uintptr_t>(out.data()) % alignof(float) == 0) {
    return DecodeRows(encoded, first, count,
                      {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
  }
  const int64_t row_blocks = encoded.cols / type_.block_values;
  const auto* blocks = reinterpret_cast<const uint8_t*>(encoded.Get("blocks").bytes().data()) +
                       first * row_blocks * type_.block_bytes;
  constexpr int64_t kRun = 2048;  // a multiple of every block that stays in the first cache
  const int64_t run_blocks = kRun / type_.block_values;
  const int64_t chunk_blocks = 16 * run_blocks;
  ParallelFor(0, count * row_blocks, chunk_blocks, [&](int64_t begin, int64_t end) {
    alignas(64) std::array<float, kRun> values;
    for (int64_t at = begin; at < end; at += run_blocks) {
      const int64_t here = std::min(run_blocks, end - at);
      const auto run = std::span(values).first(static_cast<size_t>(here * type_.block_values));
      ggml_internal::DecodeBlocks(type_, blocks + at * type_.block_bytes, run);
      Round(ElementOf(dtype), run,
            out.subspan(static_cast<size_t>(at * type_.block_values) * element_bytes,
                        run.size() * element_bytes));
    }
  });
}

void GgmlFormat::Validate(const EncodedMatrix& encoded, std::string_view name) const {
  Format::Validate(encoded, name);
  if (encoded.dtype != DType::kF32) {
    ThrowInput("{}: {} decodes to F32, not {}", name, Name(), NameOf(encoded.dtype));
  }
}

namespace {

FormatPtr ParseGgml(std::string_view name) {
  for (const GgmlType& type : GgmlTypes()) {
    if (IsBlockType(type) && name == FormatName(type)) return GgmlFormat::Make(type);
  }
  return nullptr;
}

std::vector<std::string> GgmlNames() {
  std::vector<std::string> names;
  for (const GgmlType& type : GgmlTypes()) {
    if (IsBlockType(type)) names.push_back(FormatName(type));
  }
  return names;
}

}  // namespace

const FormatFamily kGgmlFamily = {
    .name = "ggml",
    .grammar =
        "ggml-{q4_0,q4_1,q5_0,q5_1,q8_0,q8_1,q1_0,q2_0,mxfp4,nvfp4}, ggml-q{2,3,4,5,6,8}_k, "
        "ggml-iq{1_s,1_m,2_xxs,2_xs,2_s,3_xxs,3_s,4_nl,4_xs}, ggml-tq{1,2}_0",
    .summary = "ggml's block types, the tensors of GGUF files (llama.cpp)",
    .details =
        "value = scale · code − minimum in f32, product and difference each rounded; most types "
        "have no minimum.\n"
        "32 to 256 values of a row share the scales that stand with their codes in one block of "
        "bytes; the K and IQ types hold small integer scales for their sub-blocks.\n"
        "blocks  U8 [rows, cols / values · bytes of a block], the bytes of a GGUF tensor\n"
        "Encoding writes the bytes of ggml's quantiser without an importance matrix. iq1_*, iq2_* "
        "and iq3_* are decoded only: most of them cannot do without one. Refuses NaN and infinity, "
        "and blocks for which "
        "upstream's arithmetic has no finite result.",
    .parse = ParseGgml,
    .names = GgmlNames,
    .recognise = RecogniseGgml,
};

}  // namespace assay

#include "assay/formats/modelopt_int4.h"

#include <charconv>
#include <cstring>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

constexpr std::string_view kNamePrefix = "modelopt-int4g";
constexpr int64_t kMaxGroup = int64_t{1} << 31;
constexpr int64_t kValuesPerInt4Chunk = int64_t{1} << 15;

/// −8 … 7 from the low four bits.
float ValueOf(unsigned nibble) noexcept {
  return static_cast<float>(static_cast<int>(nibble ^ 8u) - 8);
}

}  // namespace

ModelOptInt4Format::ModelOptInt4Format(int64_t group_size) : group_size_(group_size) {
  if (group_size < 1) ThrowInternal("modelopt-int4: groups of {}", group_size);
}

std::string ModelOptInt4Format::Name() const {
  return fmt::format("{}{}", kNamePrefix, group_size_);
}

std::string ModelOptInt4Format::Summary() const {
  return fmt::format(
      "ModelOpt W4A16_AWQ: 4-bit integers packed down the rows, an f32 scale for every {}",
      group_size_);
}

std::optional<std::string> ModelOptInt4Format::WhyNot(int64_t rows, int64_t cols,
                                                      DType dtype) const {
  if (!IsWeightFloat(dtype)) {
    return fmt::format("dtype {}; expected F32, F16 or BF16", NameOf(dtype));
  }
  if (rows < 0 || cols < 0 || rows % 2 != 0) {
    return fmt::format("shape [{}, {}]; rows come in pairs", rows, cols);
  }
  if (cols % group_size_ != 0) {
    return fmt::format("{} columns are not a multiple of the group of {}", cols, group_size_);
  }
  if (!Shape({rows, cols}).CheckedNumBytes(DType::kF32)) {
    return fmt::format("shape [{}, {}] is too large", rows, cols);
  }
  return std::nullopt;
}

std::vector<PlaneSpec> ModelOptInt4Format::Layout(int64_t rows, int64_t cols,
                                                  DType /*dtype*/) const {
  return {{"codes", DType::kU8, Shape{rows / 2, cols}},
          {"scales", DType::kF32, Shape{rows, cols / group_size_}}};
}

EncodedMatrix ModelOptInt4Format::Encode(const MatrixView& matrix,
                                         const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  ThrowInternal("{}: has no encoder", Name());
}

void ModelOptInt4Format::DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                                    std::span<float> out, DecodeRounding rounding) const {
  const int64_t cols = encoded.cols;
  if (first < 0 || count < 0 || first > encoded.rows - count ||
      static_cast<int64_t>(out.size()) != count * cols) {
    ThrowInternal("{}: rows {} + {} of {}, {} values out", Name(), first, count, encoded.rows,
                  out.size());
  }
  if (out.empty()) return;
  const auto width = static_cast<size_t>(cols);
  const auto group = static_cast<size_t>(group_size_);
  const std::span<const std::byte> codes = encoded.Get("codes").bytes();
  const std::span<const std::byte> scales = encoded.Get("scales").bytes();
  const DType dtype = rounding == DecodeRounding::kCheckpoint ? encoded.dtype : DType::kF32;
  const int64_t grain = RowsPerChunk(cols, kValuesPerInt4Chunk);
  ParallelFor(first, first + count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const std::span<float> values = out.subspan(static_cast<size_t>(row - first) * width, width);
      const std::byte* bytes = codes.data() + static_cast<size_t>(row / 2) * width;
      const size_t first_scale = static_cast<size_t>(row) * (width / group);
      const int shift = row % 2 == 0 ? 0 : 4;
      for (size_t g = 0; g < width / group; ++g) {
        float scale = 0;
        std::memcpy(&scale, &scales[(first_scale + g) * sizeof(scale)], sizeof(scale));
        for (size_t c = g * group; c < (g + 1) * group; ++c) {
          values[c] = ValueOf(std::to_integer<unsigned>(bytes[c]) >> shift & 15u) * scale;
        }
      }
      RoundAllTo(dtype, values);
    }
  });
}

namespace {

FormatPtr ParseModelOptInt4(std::string_view name) {
  if (!name.starts_with(kNamePrefix)) return nullptr;
  const std::string_view digits = name.substr(kNamePrefix.size());
  int64_t group_size = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), group_size);
  if (error != std::errc() || end != digits.data() + digits.size() || digits[0] == '0' ||
      group_size < 1 || group_size > kMaxGroup) {
    return nullptr;
  }
  return std::make_shared<const ModelOptInt4Format>(group_size);
}

std::vector<std::string> ModelOptInt4Names() { return {"modelopt-int4g64", "modelopt-int4g128"}; }

}  // namespace

const FormatFamily kModelOptInt4Family = {
    .name = "modelopt-int4",
    .grammar = "modelopt-int4g<group>",
    .summary = "ModelOpt W4A16_AWQ: 4-bit integers packed down the rows, decoded only",
    .details =
        "value = code · scale, rounded to the checkpoint's dtype; codes -8 ... 7.\n"
        "codes   U8 [rows / 2, cols], row 2r in the low nibble, row 2r + 1 in the high one\n"
        "scales  F32 [rows, cols / group]\n"
        "Written by NVIDIA ModelOpt as quant_algo W4A16_AWQ. pre_quant_scale belongs to the "
        "layer's input and is not applied. Decoded only.",
    .parse = ParseModelOptInt4,
    .names = ModelOptInt4Names,
    .recognise = nullptr,  // by RecogniseModelOpt, of the microscaling family
};

}  // namespace assay

#include "assay/formats/hqq.h"

#include <algorithm>
#include <charconv>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/formats/planes.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

constexpr int64_t kRowsPerWord = 10;  ///< 3-bit codes in an I32
constexpr int64_t kValuesPerHqqChunk = int64_t{1} << 15;

bool IsPackedWidth(int64_t bits) {
  return bits == 1 || bits == 2 || bits == 3 || bits == 4 || bits == 8;
}

}  // namespace

HqqFormat::HqqFormat(int bits, int64_t group_size, int axis)
    : bits_(bits), group_size_(group_size), axis_(axis) {
  if (!IsPackedWidth(bits) || group_size < 0 || (axis != 0 && axis != 1)) {
    ThrowInternal("hqq: {} bits, groups of {}, axis {}", bits, group_size, axis);
  }
}

HqqFormat::View HqqFormat::ViewOf(int64_t rows, int64_t cols) const noexcept {
  if (group_size_ == kNoGroups) return {rows, cols};
  const int64_t groups = rows * cols / group_size_;
  return axis_ == 1 ? View{groups, group_size_} : View{group_size_, groups};
}

std::string HqqFormat::Name() const {
  return fmt::format("hqq{}{}:axis{}", bits_,
                     group_size_ == kNoGroups ? "-channel" : fmt::format("g{}", group_size_),
                     axis_);
}

std::string HqqFormat::Summary() const {
  return fmt::format("HQQ: {}-bit codes, float scale and zero {} along axis {}", bits_,
                     group_size_ == kNoGroups ? std::string("per channel")
                                              : fmt::format("for every {} values", group_size_),
                     axis_);
}

std::optional<std::string> HqqFormat::WhyNot(int64_t rows, int64_t cols, DType dtype) const {
  if (!IsWeightFloat(dtype)) {
    return fmt::format("dtype {}; expected F32, F16 or BF16", NameOf(dtype));
  }
  if (rows < 1 || cols < 1 || !Shape({rows, cols}).CheckedNumBytes(DType::kF32)) {
    return fmt::format("shape [{}, {}]", rows, cols);
  }
  if (group_size_ != kNoGroups && rows * cols % group_size_ != 0) {
    return fmt::format("{} values are not a multiple of the group of {}", rows * cols, group_size_);
  }
  const int64_t in_byte = 8 / bits_;
  if (bits_ != 3 && ViewOf(rows, cols).rows % in_byte != 0) {
    return fmt::format("{} rows of groups are not a multiple of {}", ViewOf(rows, cols).rows,
                       in_byte);
  }
  return std::nullopt;
}

std::vector<PlaneSpec> HqqFormat::Layout(int64_t rows, int64_t cols, DType dtype) const {
  const View view = ViewOf(rows, cols);
  const Shape groups = axis_ == 1 ? Shape{view.rows, 1} : Shape{1, view.cols};
  return {bits_ == 3
              ? PlaneSpec{"codes", DType::kI32, Shape{CeilDiv(view.rows, kRowsPerWord), view.cols}}
              : PlaneSpec{"codes", DType::kU8, Shape{view.rows * bits_ / 8, view.cols}},
          {"scale", dtype, groups},
          {"zero", dtype, groups}};
}

EncodedMatrix HqqFormat::Encode(const MatrixView& matrix, const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  ThrowInternal("{}: decoded only", Name());
}

void HqqFormat::DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                           std::span<float> out, DecodeRounding rounding) const {
  RequireRowRange(encoded, first, count, out.size());
  const View view = ViewOf(encoded.rows, encoded.cols);
  const auto width = static_cast<size_t>(view.cols);
  const std::byte* const codes = encoded.Get("codes").bytes().data();
  const auto num_groups = static_cast<size_t>(axis_ == 1 ? view.rows : view.cols);
  std::vector<float> scales(num_groups);
  std::vector<float> zeros(num_groups);
  ReadFloats(encoded.Get("scale").view(), 0, scales);
  ReadFloats(encoded.Get("zero").view(), 0, zeros);
  // Rows that share a byte or word lie this far apart.
  const auto stride =
      static_cast<size_t>(bits_ == 3 ? CeilDiv(view.rows, kRowsPerWord) : view.rows * bits_ / 8);
  const auto code_at = [&](size_t row, size_t col) {
    const size_t slot = row / stride;
    const size_t at = row % stride * width + col;
    if (bits_ == 3) return (WordAt(codes, at) >> (27 - 3 * slot)) & 7U;
    const auto shift = 8 - bits_ - bits_ * static_cast<int>(slot);
    return (static_cast<uint32_t>(codes[at]) >> shift) & ((1U << bits_) - 1U);
  };
  const DType dtype = rounding == DecodeRounding::kCheckpoint ? encoded.dtype : DType::kF32;
  const auto begin = static_cast<size_t>(first * encoded.cols);
  ParallelFor(0, static_cast<int64_t>(out.size()), kValuesPerHqqChunk,
              [&](int64_t from, int64_t to) {
                for (auto i = static_cast<size_t>(from); i < static_cast<size_t>(to); ++i) {
                  const size_t row = (begin + i) / width;
                  const size_t col = (begin + i) % width;
                  const size_t group = axis_ == 1 ? row : col;
                  const float difference =
                      RoundToDType(dtype, static_cast<float>(code_at(row, col)) - zeros[group]);
                  out[i] = RoundToDType(dtype, difference * scales[group]);
                }
              });
}

namespace {

FormatPtr ParseHqq(std::string_view name) {
  if (!name.starts_with("hqq") || name.size() < 5) return nullptr;
  const int bits = name[3] - '0';
  name.remove_prefix(4);
  int axis = 0;
  if (name.ends_with(":axis1")) {
    axis = 1;
  } else if (!name.ends_with(":axis0")) {
    return nullptr;
  }
  name.remove_suffix(6);
  int64_t group_size = HqqFormat::kNoGroups;
  if (name != "-channel") {
    if (name.size() < 2 || name[0] != 'g' || name[1] == '0') return nullptr;
    const auto [end, error] =
        std::from_chars(name.data() + 1, name.data() + name.size(), group_size);
    if (error != std::errc{} || end != name.data() + name.size() || group_size < 1) return nullptr;
  }
  if (!IsPackedWidth(bits)) return nullptr;
  return std::make_shared<const HqqFormat>(bits, group_size, axis);
}

std::vector<std::string> HqqNames() {
  std::vector<std::string> names;
  for (const int bits : {8, 4, 3, 2, 1}) {
    for (const int axis : {0, 1}) names.push_back(HqqFormat(bits, 64, axis).Name());
  }
  return names;
}

}  // namespace

const FormatFamily kHqqFamily = {
    .name = "hqq",
    .grammar = "hqq{1,2,3,4,8}{g<N>,-channel}:axis{0,1}",
    .summary = "HQQ checkpoints: codes with a float scale and a float zero per group",
    .details =
        "w = (code − zero) · scale, difference and product each rounded to the compute dtype.\n"
        "codes are packed over the rows of the group view, the first rows in the high bits; 3 bits "
        "take ten rows an I32.\n"
        "scale, zero  [groups, 1] (axis 1) or [1, groups] (axis 0)\n"
        "Decoded only: hqq's solver gives other codes on other devices.",
    .parse = ParseHqq,
    .names = HqqNames,
    .recognise = RecogniseHqq,
};

}  // namespace assay

#include "assay/formats/gptq.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/formats/gptq_checkpoint.h"
#include "assay/formats/planes.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

constexpr int64_t kPlanarBlock = 32;  ///< codes whose bit planes stand together
constexpr int64_t kGptqRowsPerChunk = 64;

/// Widths of the bit planes of a planar code, low bits first.
std::span<const int> PlaneWidths(int bits) {
  static constexpr std::array<std::array<int, 3>, 9> kWidths = {
      {{}, {}, {2}, {2, 1}, {4}, {4, 1}, {4, 2}, {4, 2, 1}, {8}}};
  const auto& widths = kWidths[static_cast<size_t>(bits)];
  return std::span(widths).first(
      static_cast<size_t>(std::find(widths.begin(), widths.end(), 0) - widths.begin()));
}

template <typename Word>
uint32_t PlanarField(const Word& word, size_t index, int bits) {
  size_t first_word = index / kPlanarBlock * static_cast<size_t>(bits);
  const size_t in_block = index % kPlanarBlock;
  uint32_t field = 0;
  int offset = 0;
  for (const int width : PlaneWidths(bits)) {
    const auto per_word = static_cast<size_t>(32 / width);
    const uint32_t plane = word(first_word + in_block / per_word) >>
                           (static_cast<size_t>(width) * (in_block % per_word));
    field |= (plane & ((1U << width) - 1U)) << offset;
    first_word += static_cast<size_t>(width);
    offset += width;
  }
  return field;
}

template <typename Word>
uint32_t Field(GptqLayout layout, const Word& word, size_t index, int bits) {
  return layout == GptqLayout::kPlanar ? PlanarField(word, index, bits)
                                       : StreamField(word, index, bits);
}

/// The zero a stored field stands for. v1 writers stored zero − 1; readers of 3 bits do not wrap.
int ZeroOf(GptqLayout layout, uint32_t stored, int bits) {
  if (layout != GptqLayout::kV1) return static_cast<int>(stored);
  const uint32_t zero = stored + 1;
  return static_cast<int>(bits == 3 ? zero : zero & ((1U << bits) - 1U));
}

}  // namespace

bool GptqFormat::Supports(int64_t bits, GptqLayout layout) noexcept {
  if (layout == GptqLayout::kPlanar) return bits >= 2 && bits <= 8;
  return bits == 2 || bits == 3 || bits == 4 || bits == 8;
}

int64_t GptqFormat::NumGroups(int64_t cols) const noexcept {
  return group_size_ == kWholeAxis ? 1 : CeilDiv(cols, group_size_);
}

std::string GptqFormat::Name() const {
  const std::string_view suffix = layout_ == GptqLayout::kV1   ? ""
                                  : layout_ == GptqLayout::kV2 ? ":v2"
                                                               : ":planar";
  return group_size_ == kWholeAxis ? fmt::format("gptq{}-channel{}", bits_, suffix)
                                   : fmt::format("gptq{}g{}{}", bits_, group_size_, suffix);
}

std::string GptqFormat::Summary() const {
  return fmt::format("GPTQ: {}-bit codes packed down the inputs, scale and integer zero {}", bits_,
                     group_size_ == kWholeAxis ? std::string("per output")
                                               : fmt::format("for every {} inputs", group_size_));
}

std::optional<std::string> GptqFormat::WhyNot(int64_t rows, int64_t cols, DType dtype) const {
  if (!IsWeightFloat(dtype)) {
    return fmt::format("dtype {}; expected F32, F16 or BF16", NameOf(dtype));
  }
  if (rows < 0 || cols < 1 || !Shape({rows, cols}).CheckedNumBytes(DType::kF32)) {
    return fmt::format("shape [{}, {}]", rows, cols);
  }
  const bool in_blocks = bits_ == 3 || layout_ == GptqLayout::kPlanar;
  if (in_blocks && (rows % kPlanarBlock != 0 || cols % kPlanarBlock != 0)) {
    return fmt::format("shape [{}, {}]; rows and columns must be multiples of {}", rows, cols,
                       kPlanarBlock);
  }
  return std::nullopt;
}

std::vector<PlaneSpec> GptqFormat::Layout(int64_t rows, int64_t cols, DType dtype) const {
  const int64_t groups = NumGroups(cols);
  return {{"qweight", DType::kI32, Shape{CeilDiv<int64_t>(cols * bits_, 32), rows}},
          {"qzeros", DType::kI32, Shape{groups, CeilDiv<int64_t>(rows * bits_, 32)}},
          {"scales", dtype, Shape{groups, rows}},
          {"g_idx", DType::kI32, Shape{cols}}};
}

EncodedMatrix GptqFormat::Encode(const MatrixView& matrix, const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  ThrowInternal("{}: decoded only", Name());
}

void GptqFormat::Validate(const EncodedMatrix& encoded, std::string_view name) const {
  Format::Validate(encoded, name);
  const std::byte* groups = encoded.Get("g_idx").bytes().data();
  const auto num_groups = static_cast<uint32_t>(NumGroups(encoded.cols));
  for (int64_t k = 0; k < encoded.cols; ++k) {
    const uint32_t group = WordAt(groups, static_cast<size_t>(k));
    if (group >= num_groups) {
      ThrowInput("{}: g_idx of input {}: expected a group below {}, found {}", name, k, num_groups,
                 static_cast<int32_t>(group));
    }
  }
}

void GptqFormat::DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                            std::span<float> out, DecodeRounding rounding) const {
  RequireRowRange(encoded, first, count, out.size());
  const auto rows = static_cast<size_t>(encoded.rows);
  const auto cols = static_cast<size_t>(encoded.cols);
  const std::byte* codes = encoded.Get("qweight").bytes().data();
  const std::byte* zeros = encoded.Get("qzeros").bytes().data();
  const std::byte* groups = encoded.Get("g_idx").bytes().data();
  const auto zero_words = static_cast<size_t>(CeilDiv<int64_t>(encoded.rows * bits_, 32));
  const auto num_groups = static_cast<size_t>(NumGroups(encoded.cols));
  const TensorView& scales = encoded.Get("scales").view();
  ParallelFor(first, first + count, kGptqRowsPerChunk, [&](int64_t begin, int64_t end) {
    const auto num_rows = static_cast<size_t>(end - begin);
    const auto origin = static_cast<size_t>(begin);
    std::vector<float> scale(num_groups * num_rows);
    std::vector<int> zero(num_groups * num_rows);
    for (size_t g = 0; g < num_groups; ++g) {
      const std::span<float> group_scales = std::span(scale).subspan(g * num_rows, num_rows);
      ReadFloats(scales, static_cast<int64_t>(g * rows + origin), group_scales);
      const auto zero_word = [&](size_t w) { return WordAt(zeros, g * zero_words + w); };
      for (size_t i = 0; i < num_rows; ++i) {
        zero[g * num_rows + i] =
            ZeroOf(layout_, Field(layout_, zero_word, origin + i, bits_), bits_);
      }
    }
    float* const values = out.data() + static_cast<size_t>(begin - first) * cols;
    for (size_t k = 0; k < cols; ++k) {
      const size_t g = WordAt(groups, k);
      for (size_t i = 0; i < num_rows; ++i) {
        const auto code_word = [&](size_t w) { return WordAt(codes, w * rows + origin + i); };
        const auto code = static_cast<int>(Field(layout_, code_word, k, bits_));
        const float product =
            scale[g * num_rows + i] * static_cast<float>(code - zero[g * num_rows + i]);
        values[i * cols + k] =
            rounding == DecodeRounding::kNone ? product : RoundToDType(encoded.dtype, product);
      }
    }
  });
}

namespace {

FormatPtr ParseGptq(std::string_view name) {
  if (!name.starts_with("gptq") || name.size() < 6) return nullptr;
  const int bits = name[4] - '0';
  std::string_view rest = name.substr(5);
  GptqLayout layout = GptqLayout::kV1;
  if (rest.ends_with(":v2")) {
    layout = GptqLayout::kV2;
    rest.remove_suffix(3);
  } else if (rest.ends_with(":planar")) {
    layout = GptqLayout::kPlanar;
    rest.remove_suffix(7);
  }
  int64_t group_size = GptqFormat::kWholeAxis;
  if (rest != "-channel") {
    if (rest.size() < 2 || rest[0] != 'g' || rest[1] == '0') return nullptr;
    const auto [end, error] =
        std::from_chars(rest.data() + 1, rest.data() + rest.size(), group_size);
    if (error != std::errc{} || end != rest.data() + rest.size() || group_size < 1) return nullptr;
  }
  if (!GptqFormat::Supports(bits, layout)) return nullptr;
  return std::make_shared<const GptqFormat>(bits, group_size, layout);
}

std::vector<std::string> GptqNames() {
  std::vector<std::string> names;
  for (const GptqLayout layout : {GptqLayout::kV1, GptqLayout::kV2, GptqLayout::kPlanar}) {
    for (int bits = 2; bits <= 8; ++bits) {
      // Planar words of 2, 4 and 8 bits are those of v2.
      const bool same_as_v2 =
          layout == GptqLayout::kPlanar && GptqFormat::Supports(bits, GptqLayout::kV2) && bits != 3;
      if (!GptqFormat::Supports(bits, layout) || same_as_v2) continue;
      names.push_back(GptqFormat(bits, 128, layout).Name());
    }
  }
  return names;
}

}  // namespace

const FormatFamily kGptqFamily = {
    .name = "gptq",
    .grammar = "gptq{2,3,4,8}{g<N>,-channel}[:v2], gptq{2..8}{g<N>,-channel}:planar",
    .summary = "GPTQ checkpoints: integer codes with a scale and an integer zero per group",
    .details =
        "w[n][k] = scale[G][n] · (code − zero[G][n]), G = g_idx[k]; one product rounded to the "
        "scale's dtype.\n"
        "qweight  I32 [⌈K·b/32⌉, N], codes packed down the inputs\n"
        "qzeros   I32 [G, ⌈N·b/32⌉], packed along the outputs; v1 files store zero − 1\n"
        "scales   F16 or BF16 [G, N];  g_idx I32 [K]: the group of each input (act-order)\n"
        "Decoded only: the codes come from a solver that no second program reproduces.",
    .parse = ParseGptq,
    .names = GptqNames,
    .recognise = RecogniseGptq,
};

}  // namespace assay

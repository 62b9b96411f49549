#include "assay/formats/awq.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/base/text.h"
#include "assay/formats/int_config.h"
#include "assay/formats/planes.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

constexpr int64_t kPerWord = 8;
constexpr int64_t kAwqRowsPerChunk = 64;

/// Nibble of a gemm word that holds output column 8c + j.
constexpr std::array<int, 8> kNibbleOf = {0, 4, 1, 5, 2, 6, 3, 7};

/// Words of zeros a row of the gemv layout takes: whole packs, padded by group size.
int64_t GemvZeroWords(int64_t cols, int64_t group_length) {
  const int64_t multiple = group_length >= 128 ? 1 : group_length == 64 ? 2 : 4;
  const int64_t packs = CeilDiv(CeilDiv(cols, group_length), kPerWord);
  return CeilDiv(packs, multiple) * multiple;
}

int Nibble(uint32_t word, int index) { return static_cast<int>((word >> (4 * index)) & 15U); }

}  // namespace

std::string AwqFormat::Name() const {
  return fmt::format("awq4{}{}",
                     group_size_ == kWholeAxis ? "-channel" : fmt::format("g{}", group_size_),
                     gemv_ ? ":gemv" : "");
}

std::string AwqFormat::Summary() const {
  return fmt::format("AWQ ({}): 4-bit codes, scale and integer zero {}", gemv_ ? "gemv" : "gemm",
                     group_size_ == kWholeAxis ? std::string("per output")
                                               : fmt::format("for every {} inputs", group_size_));
}

std::optional<std::string> AwqFormat::WhyNot(int64_t rows, int64_t cols, DType dtype) const {
  if (!IsWeightFloat(dtype)) {
    return fmt::format("dtype {}; expected F32, F16 or BF16", NameOf(dtype));
  }
  if (rows < 0 || cols < 1 || !Shape({rows, cols}).CheckedNumBytes(DType::kF32)) {
    return fmt::format("shape [{}, {}]", rows, cols);
  }
  if (cols % GroupLength(cols) != 0) {
    return fmt::format("{} columns are not a multiple of the group of {}", cols, group_size_);
  }
  const int64_t packed = gemv_ ? cols : rows;
  if (packed % kPerWord != 0) {
    return fmt::format("{} {} are not a multiple of {}", packed, gemv_ ? "columns" : "rows",
                       kPerWord);
  }
  return std::nullopt;
}

std::vector<PlaneSpec> AwqFormat::Layout(int64_t rows, int64_t cols, DType dtype) const {
  if (gemv_) {
    const int64_t words = GemvZeroWords(cols, GroupLength(cols));
    return {{"qweight", DType::kI32, Shape{rows, cols / kPerWord}},
            {"qzeros", DType::kI32, Shape{rows, words}},
            {"scales", dtype, Shape{rows, words * kPerWord}}};
  }
  const int64_t groups = cols / GroupLength(cols);
  return {{"qweight", DType::kI32, Shape{cols, rows / kPerWord}},
          {"qzeros", DType::kI32, Shape{groups, rows / kPerWord}},
          {"scales", dtype, Shape{groups, rows}}};
}

EncodedMatrix AwqFormat::Encode(const MatrixView& matrix, const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  ThrowInternal("{}: decoded only", Name());
}

void AwqFormat::DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                           std::span<float> out, DecodeRounding rounding) const {
  RequireRowRange(encoded, first, count, out.size());
  const auto rows = static_cast<size_t>(encoded.rows);
  const auto cols = static_cast<size_t>(encoded.cols);
  const auto group_length = static_cast<size_t>(GroupLength(encoded.cols));
  const size_t groups = cols / group_length;
  const std::byte* codes = encoded.Get("qweight").bytes().data();
  const std::byte* zeros = encoded.Get("qzeros").bytes().data();
  const TensorView& scales = encoded.Get("scales").view();
  const size_t row_words = rows / kPerWord;
  const auto zero_words =
      static_cast<size_t>(GemvZeroWords(encoded.cols, GroupLength(encoded.cols)));
  ParallelFor(first, first + count, kAwqRowsPerChunk, [&](int64_t begin, int64_t end) {
    std::vector<float> scale(groups);
    std::vector<int> zero(groups);
    for (int64_t row = begin; row < end; ++row) {
      const auto n = static_cast<size_t>(row);
      const size_t word = n / kPerWord;
      const int nibble = kNibbleOf[n % kPerWord];
      for (size_t g = 0; g < groups; ++g) {
        const size_t at = gemv_ ? n * zero_words * kPerWord + g : g * rows + n;
        ReadFloats(scales, static_cast<int64_t>(at), {&scale[g], 1});
        zero[g] = gemv_ ? Nibble(WordAt(zeros, n * zero_words + g / kPerWord),
                                 static_cast<int>(g % kPerWord))
                        : Nibble(WordAt(zeros, g * row_words + word), nibble);
      }
      float* const values = out.data() + static_cast<size_t>(row - first) * cols;
      for (size_t k = 0; k < cols; ++k) {
        const int code = gemv_ ? Nibble(WordAt(codes, n * (cols / kPerWord) + k / kPerWord),
                                        static_cast<int>(k % kPerWord))
                               : Nibble(WordAt(codes, k * row_words + word), nibble);
        const size_t g = k / group_length;
        const float product = static_cast<float>(code - zero[g]) * scale[g];
        values[k] =
            rounding == DecodeRounding::kNone ? product : RoundToDType(encoded.dtype, product);
      }
    }
  });
}

void RecogniseAwq(const CheckpointSource& source, Recognition& found) {
  const nlohmann::json* config = IntConfig(source, "awq", "quant_config.json");
  if (config == nullptr) return;
  const std::string version = Lower(StringMember(source, *config, "version", "gemm"));
  const int64_t bits = IntMember(source, *config, "bits", IntMember(source, *config, "w_bit", 4));
  const int64_t said_group =
      IntMember(source, *config, "group_size", IntMember(source, *config, "q_group_size", 128));
  if (version != "gemm" && version != "gemv") {
    found.notes.push_back(fmt::format(
        "AWQ weights are not read: version \"{}\" is another layout; expected gemm or gemv",
        version));
    return;
  }
  if (bits != 4 || said_group == 0 || said_group < -1) {
    ThrowInput(
        "{}: config: AWQ has 4 bits and positive groups (or -1), found {} bits, groups of {}",
        source.Path(), bits, said_group);
  }
  const bool gemv = version == "gemv";
  const auto format = std::make_shared<const AwqFormat>(
      said_group == -1 ? AwqFormat::kWholeAxis : said_group, gemv);
  for (const StoredTensor& qweight : source.Tensors()) {
    const std::string base(BaseOf(qweight.name, ".qweight"));
    if (base.empty()) continue;
    const StoredTensor* qzeros = source.Find(base + ".qzeros");
    const StoredTensor* scales = source.Find(base + ".scales");
    if (qzeros == nullptr || scales == nullptr) {
      found.notes.push_back(fmt::format("{}: not read: {} is missing", qweight.name,
                                        qzeros == nullptr ? base + ".qzeros" : base + ".scales"));
      continue;
    }
    if (qweight.shape.rank() != 2) {
      ThrowInput("{}: tensor \"{}\": expected a matrix, found {}", source.Path(), qweight.name,
                 qweight.shape.ToString());
    }
    const auto unpacked = CheckedMul(qweight.shape[1], kPerWord);
    const int64_t rows = gemv ? qweight.shape[0] : unpacked.value_or(-1);
    const int64_t cols = gemv ? unpacked.value_or(-1) : qweight.shape[0];
    if (const auto reason = format->WhyNot(rows, cols, scales->dtype)) {
      ThrowInput("{}: tensor \"{}\": no {} weight: {}", source.Path(), qweight.name, format->Name(),
                 *reason);
    }
    const std::vector<PlaneSpec> layout = format->Layout(rows, cols, scales->dtype);
    RequireStored(source, qweight, layout[0]);
    RequireStored(source, *qzeros, layout[1]);
    RequireStored(source, *scales, layout[2]);
    found.weights.push_back(StoredWeight(
        source, base + ".weight", format, rows, cols, scales->dtype,
        {{"qweight", qweight.name}, {"qzeros", qzeros->name}, {"scales", scales->name}}));
  }
}

namespace {

FormatPtr ParseAwq(std::string_view name) {
  if (!name.starts_with("awq4")) return nullptr;
  name.remove_prefix(4);
  const bool gemv = name.ends_with(":gemv");
  if (gemv) name.remove_suffix(5);
  int64_t group_size = AwqFormat::kWholeAxis;
  if (name != "-channel") {
    if (name.size() < 2 || name[0] != 'g' || name[1] == '0') return nullptr;
    const auto [end, error] =
        std::from_chars(name.data() + 1, name.data() + name.size(), group_size);
    if (error != std::errc{} || end != name.data() + name.size() || group_size < 1) return nullptr;
  }
  return std::make_shared<const AwqFormat>(group_size, gemv);
}

std::vector<std::string> AwqNames() {
  return {"awq4g64", "awq4g128", "awq4-channel", "awq4g64:gemv", "awq4g128:gemv"};
}

}  // namespace

const FormatFamily kAwqFamily = {
    .name = "awq",
    .grammar = "awq4{g<N>,-channel}[:gemv]",
    .summary = "AWQ checkpoints: 4-bit codes with a scale and an integer zero per group",
    .details =
        "w[n][k] = (code − zero) · scale, one product rounded to the scale's dtype.\n"
        "gemm  qweight I32 [K, N/8], qzeros I32 [G, N/8], nibble order 0 2 4 6 1 3 5 7; scales "
        "[G, N]\n"
        "gemv  qweight I32 [N, K/8], nibbles in sequence; qzeros and scales padded to whole words\n"
        "Decoded only: the scales come from a search over activations.",
    .parse = ParseAwq,
    .names = AwqNames,
    .recognise = RecogniseAwq,
};

}  // namespace assay

#include "assay/formats/int_packed.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/formats/planes.h"
#include "assay/numeric/bit_packing.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

constexpr int64_t kValuesPerIntChunk = int64_t{1} << 15;

/// What a scale of zero becomes: the distance from 1 to the next number of the type.
float EpsilonOf(DType dtype) {
  if (dtype == DType::kBF16) return 0x1p-7F;
  if (dtype == DType::kF16) return 0x1p-10F;
  return 0x1p-23F;
}

struct GroupCode {
  float scale;
  float zero_point;
};

/// Scale and zero point of a group, every step rounded to `dtype`.
GroupCode ChooseGroup(std::span<const float> values, int bits, bool symmetric, DType dtype) {
  const auto round = [dtype](float x) { return RoundToDType(dtype, x); };
  float low = 0.0F;
  float high = 0.0F;
  for (const float value : values) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const float q_min = -std::ldexp(1.0F, bits - 1);
  const float q_max = std::ldexp(1.0F, bits - 1) - 1.0F;
  const float span = std::ldexp(1.0F, bits) - 1.0F;
  if (symmetric) {
    const float scale = round(std::max(-low, high) / (span / 2.0F));
    return {scale == 0.0F ? EpsilonOf(dtype) : scale, 0.0F};
  }
  const float scale = round(round(high - low) / span);
  if (scale == 0.0F) return {EpsilonOf(dtype), 0.0F};
  const float zero = round(q_min - round(low / scale));
  return {scale, std::nearbyint(std::clamp(zero, q_min, q_max))};
}

void SetField(std::byte* words, size_t index, int bits, uint32_t field) {
  const size_t bit = index * static_cast<size_t>(bits);
  const auto put = [words](size_t word, uint32_t set) {
    const uint32_t value = WordAt(words, word) | set;
    std::memcpy(words + 4 * word, &value, sizeof value);
  };
  const auto shift = static_cast<int>(bit % 32);
  put(bit / 32, field << shift);
  if (shift + bits > 32) put(bit / 32 + 1, field >> (32 - shift));
}

uint32_t LegacyField(const std::byte* words, size_t index, int bits) {
  const auto per_word = static_cast<size_t>(32 / bits);
  const uint32_t word = WordAt(words, index / per_word);
  return (word >> (static_cast<size_t>(bits) * (index % per_word))) & ((1U << bits) - 1U);
}

}  // namespace

IntPackedFormat::IntPackedFormat(int bits, int64_t group_size, bool symmetric, IntStorage storage)
    : bits_(bits), group_size_(group_size), symmetric_(symmetric), storage_(storage) {
  if (bits < 1 || bits > 8 || group_size < 0 || (storage == IntStorage::kBytes && bits != 8)) {
    ThrowInternal("int: {} bits, groups of {}", bits, group_size);
  }
}

int64_t IntPackedFormat::WordsFor(int64_t num_codes, int bits, IntStorage storage) noexcept {
  return storage == IntStorage::kLegacy ? CeilDiv<int64_t>(num_codes, 32 / bits)
                                        : CeilDiv<int64_t>(num_codes * bits, 32);
}

std::string IntPackedFormat::Name() const {
  const std::string group =
      group_size_ == kWholeRow ? std::string("-channel") : fmt::format("g{}", group_size_);
  const std::string_view storage = storage_ == IntStorage::kStream   ? ""
                                   : storage_ == IntStorage::kLegacy ? ":legacy"
                                                                     : ":bytes";
  return fmt::format("int{}{}{}{}", bits_, group, symmetric_ ? "" : ":asym", storage);
}

std::string IntPackedFormat::Summary() const {
  return fmt::format("compressed-tensors: {}-bit {} integers, a scale {}", bits_,
                     symmetric_ ? "symmetric" : "asymmetric",
                     group_size_ == kWholeRow ? std::string("per row")
                                              : fmt::format("for every {} values", group_size_));
}

std::optional<GroupGeometry> IntPackedFormat::Geometry() const {
  if (group_size_ == kWholeRow) return std::nullopt;
  return GroupGeometry{bits_, group_size_};
}

std::optional<std::string> IntPackedFormat::WhyNot(int64_t rows, int64_t cols, DType dtype) const {
  if (!IsWeightFloat(dtype)) {
    return fmt::format("dtype {}; expected F32, F16 or BF16", NameOf(dtype));
  }
  if (rows < 0 || cols < 1 || !Shape({rows, cols}).CheckedNumBytes(DType::kF32)) {
    return fmt::format("shape [{}, {}]", rows, cols);
  }
  if (cols % GroupLength(cols) != 0) {
    return fmt::format("{} columns are not a multiple of the group of {}", cols, group_size_);
  }
  return std::nullopt;
}

std::vector<PlaneSpec> IntPackedFormat::Layout(int64_t rows, int64_t cols, DType dtype) const {
  const int64_t groups = cols / GroupLength(cols);
  const bool bytes = storage_ == IntStorage::kBytes;
  std::vector<PlaneSpec> planes = {
      bytes ? PlaneSpec{"codes", DType::kI8, Shape{rows, cols}}
            : PlaneSpec{"codes", DType::kI32, Shape{rows, WordsFor(cols, bits_, storage_)}},
      {"scales", dtype, Shape{rows, groups}}};
  if (!symmetric_) {
    planes.push_back(bytes ? PlaneSpec{"zero_points", DType::kI8, Shape{rows, groups}}
                           : PlaneSpec{"zero_points", DType::kI32,
                                       Shape{WordsFor(rows, bits_, storage_), groups}});
  }
  if (!bytes) planes.push_back({"shape", DType::kI64, Shape{2}});
  return planes;
}

void IntPackedFormat::Validate(const EncodedMatrix& encoded, std::string_view name) const {
  Format::Validate(encoded, name);
  const Tensor* shape = encoded.Find("shape");
  if (shape == nullptr) return;
  int64_t dims[2];
  std::memcpy(dims, shape->bytes().data(), sizeof dims);
  if (dims[0] == encoded.rows && dims[1] == encoded.cols) return;
  ThrowInput("{}: plane \"shape\": expected [{}, {}], found [{}, {}]", name, encoded.rows,
             encoded.cols, dims[0], dims[1]);
}

EncodedMatrix IntPackedFormat::Encode(const MatrixView& matrix,
                                      const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  const DType dtype = matrix.dtype();
  EncodedMatrix encoded = AllocatePlanes(shared_from_this(), matrix.rows(), matrix.cols(), dtype);
  const auto cols = static_cast<size_t>(matrix.cols());
  const auto group_length = static_cast<size_t>(GroupLength(matrix.cols()));
  const size_t groups = cols / group_length;
  const bool bytes = storage_ == IntStorage::kBytes;
  const size_t row_bytes =
      bytes ? cols : 4 * static_cast<size_t>(WordsFor(matrix.cols(), bits_, storage_));
  std::byte* const codes = encoded.planes[0].tensor.mutable_bytes().data();
  std::vector<float> scales(static_cast<size_t>(matrix.rows()) * groups);
  std::vector<int8_t> zeros(symmetric_ ? 0 : scales.size());
  const float q_min = -std::ldexp(1.0F, bits_ - 1);
  const float q_max = std::ldexp(1.0F, bits_ - 1) - 1.0F;
  const auto offset = bytes ? 0 : 1 << (bits_ - 1);
  ParallelFor(0, matrix.rows(), RowsPerChunk(matrix.cols(), kValuesPerIntChunk),
              [&](int64_t first, int64_t last) {
                std::vector<float> values(cols);
                for (int64_t row = first; row < last; ++row) {
                  matrix.ReadRows(row, 1, values);
                  if (!std::all_of(values.begin(), values.end(),
                                   [](float v) { return std::isfinite(v); })) {
                    ThrowNotFinite(*this, options, row, matrix.cols(), values);
                  }
                  std::byte* const row_codes = codes + static_cast<size_t>(row) * row_bytes;
                  for (size_t g = 0; g < groups; ++g) {
                    const std::span<const float> group =
                        std::span(values).subspan(g * group_length, group_length);
                    const GroupCode chosen = ChooseGroup(group, bits_, symmetric_, dtype);
                    const size_t at = static_cast<size_t>(row) * groups + g;
                    scales[at] = chosen.scale;
                    if (!symmetric_) zeros[at] = static_cast<int8_t>(chosen.zero_point);
                    for (size_t i = 0; i < group_length; ++i) {
                      float quotient = RoundToDType(dtype, group[i] / chosen.scale);
                      if (!symmetric_) quotient = RoundToDType(dtype, quotient + chosen.zero_point);
                      const auto q =
                          static_cast<int>(std::nearbyint(std::clamp(quotient, q_min, q_max)));
                      const size_t k = g * group_length + i;
                      if (bytes) {
                        row_codes[k] = static_cast<std::byte>(q);
                      } else {
                        SetField(row_codes, k, bits_, static_cast<uint32_t>(q + offset));
                      }
                    }
                  }
                }
              });
  std::byte* const scale_bytes = encoded.planes[1].tensor.mutable_bytes().data();
  const size_t scale_size = static_cast<size_t>(BitsOf(dtype)) / 8;
  for (size_t i = 0; i < scales.size(); ++i) {
    const uint32_t code = FromFloat(ElementOf(dtype), scales[i]);
    std::memcpy(scale_bytes + i * scale_size, &code, scale_size);
  }
  if (!bytes) {
    const int64_t dims[2] = {matrix.rows(), matrix.cols()};
    std::memcpy(encoded.planes.back().tensor.mutable_bytes().data(), dims, sizeof dims);
  }
  if (symmetric_) return encoded;
  std::byte* const zero_bytes = encoded.planes[2].tensor.mutable_bytes().data();
  if (bytes) {
    std::ranges::copy(std::as_bytes(std::span(zeros)), zero_bytes);
    return encoded;
  }
  const auto num_words = static_cast<size_t>(WordsFor(matrix.rows(), bits_, storage_));
  for (size_t g = 0; g < groups; ++g) {
    std::vector<std::byte> column(4 * num_words);
    for (size_t row = 0; row < static_cast<size_t>(matrix.rows()); ++row) {
      SetField(column.data(), row, bits_, static_cast<uint32_t>(zeros[row * groups + g] + offset));
    }
    for (size_t w = 0; w < num_words; ++w) {
      std::memcpy(zero_bytes + 4 * (w * groups + g), column.data() + 4 * w, 4);
    }
  }
  return encoded;
}

void IntPackedFormat::DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                                 std::span<float> out, DecodeRounding rounding) const {
  RequireRowRange(encoded, first, count, out.size());
  const auto cols = static_cast<size_t>(encoded.cols);
  const auto group_length = static_cast<size_t>(GroupLength(encoded.cols));
  const size_t groups = cols / group_length;
  const bool bytes = storage_ == IntStorage::kBytes;
  const size_t row_bytes =
      bytes ? cols : 4 * static_cast<size_t>(WordsFor(encoded.cols, bits_, storage_));
  const std::byte* const codes = encoded.Get("codes").bytes().data();
  const TensorView& scales = encoded.Get("scales").view();
  const std::byte* const zeros = symmetric_ ? nullptr : encoded.Get("zero_points").bytes().data();
  const int offset = 1 << (bits_ - 1);
  // Codes as stored; `offset` makes them signed.
  const auto unpack_row = [&](size_t row, std::span<uint8_t> fields) {
    const std::byte* const words = codes + row * row_bytes;
    if (bytes) {
      std::ranges::transform(std::span(words, cols), fields.begin(), [](std::byte code) {
        return static_cast<uint8_t>(std::to_integer<uint8_t>(code) ^ 0x80U);
      });
    } else if (storage_ == IntStorage::kStream) {
      UnpackBits(bits_, {words, row_bytes}, 0, fields);
    } else {
      for (size_t k = 0; k < cols; ++k) {
        fields[k] = static_cast<uint8_t>(LegacyField(words, k, bits_));
      }
    }
  };
  const auto zero_of = [&](size_t row, size_t g) {
    if (bytes) return static_cast<int>(static_cast<int8_t>(zeros[row * groups + g]));
    const auto word = [&](size_t w) { return WordAt(zeros, w * groups + g); };
    if (storage_ == IntStorage::kLegacy) {
      const auto per_word = static_cast<size_t>(32 / bits_);
      const uint32_t fields =
          word(row / per_word) >> (static_cast<size_t>(bits_) * (row % per_word));
      return static_cast<int>(fields & ((1U << bits_) - 1U)) - offset;
    }
    return static_cast<int>(StreamField(word, row, bits_)) - offset;
  };
  ParallelFor(first, first + count, RowsPerChunk(encoded.cols, kValuesPerIntChunk),
              [&](int64_t begin, int64_t end) {
                std::vector<float> row_scales(groups);
                std::vector<uint8_t> fields(cols);
                for (int64_t r = begin; r < end; ++r) {
                  const auto row = static_cast<size_t>(r);
                  ReadFloats(scales, r * static_cast<int64_t>(groups), row_scales);
                  unpack_row(row, fields);
                  float* const values = out.data() + static_cast<size_t>(r - first) * cols;
                  for (size_t g = 0; g < groups; ++g) {
                    const int zero = offset + (symmetric_ ? 0 : zero_of(row, g));
                    const float scale = row_scales[g];
                    for (size_t k = g * group_length; k < (g + 1) * group_length; ++k) {
                      values[k] = static_cast<float>(fields[k] - zero) * scale;
                    }
                  }
                  if (rounding != DecodeRounding::kNone) RoundAllTo(encoded.dtype, {values, cols});
                }
              });
}

const CheckpointForm* IntPackedFormat::Form() const {
  return CanEncode() ? IntPackedForm(storage_) : nullptr;
}

namespace {

FormatPtr ParseIntPacked(std::string_view name) {
  if (!name.starts_with("int") || name.size() < 5) return nullptr;
  const int bits = name[3] - '0';
  name.remove_prefix(4);
  IntStorage storage = IntStorage::kStream;
  if (name.ends_with(":legacy")) {
    storage = IntStorage::kLegacy;
    name.remove_suffix(7);
  } else if (name.ends_with(":bytes")) {
    storage = IntStorage::kBytes;
    name.remove_suffix(6);
  }
  const bool symmetric = !name.ends_with(":asym");
  if (!symmetric) name.remove_suffix(5);
  int64_t group_size = IntPackedFormat::kWholeRow;
  if (name != "-channel") {
    if (name.size() < 2 || name[0] != 'g' || name[1] == '0') return nullptr;
    const auto [end, error] =
        std::from_chars(name.data() + 1, name.data() + name.size(), group_size);
    if (error != std::errc{} || end != name.data() + name.size() || group_size < 1) return nullptr;
  }
  if (bits < 1 || bits > 8 || (storage == IntStorage::kBytes && bits != 8)) return nullptr;
  return std::make_shared<const IntPackedFormat>(bits, group_size, symmetric, storage);
}

std::vector<std::string> IntPackedNames() {
  std::vector<std::string> names;
  for (const char* bits : {"2", "3", "4", "5", "6", "8"}) {
    for (const char* group : {"g32", "g64", "g128", "-channel"}) {
      names.push_back(fmt::format("int{}{}", bits, group));
      names.push_back(fmt::format("int{}{}:asym", bits, group));
    }
  }
  names.emplace_back("int8-channel:bytes");
  names.emplace_back("int8-channel:asym:bytes");
  return names;
}

}  // namespace

const FormatFamily kIntPackedFamily = {
    .name = "int_packed",
    .grammar = "int{1..8}{g<N>,-channel}[:asym][:bytes|:legacy]",
    .summary = "compressed-tensors integers: symmetric or with a zero point, per group or row",
    .details =
        "w = (q − zero) · scale, each step rounded to the dtype of the weight.\n"
        "codes        I32 [N, ⌈K·b/32⌉], a bit stream per row of q + 2^(b−1)  (:bytes: I8 [N, K])\n"
        "scales       [N, G] in the weight's dtype\n"
        "zero_points  :asym only; I32 [⌈N·b/32⌉, G], packed down the rows\n"
        "Written by compressed-tensors and llm-compressor (pack-quantized, int-quantized, "
        "naive-quantized). Refuses NaN and infinity.",
    .parse = ParseIntPacked,
    .names = IntPackedNames,
    .recognise = RecogniseIntPacked,
};

}  // namespace assay

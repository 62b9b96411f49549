#include "assay/formats/bitsandbytes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/formats/planes.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

using Table = BitsAndBytesFormat::Table;

constexpr std::array<float, 16> kNf4 = {-1.0F,
                                        -0.6961928009986877F,
                                        -0.5250730514526367F,
                                        -0.39491748809814453F,
                                        -0.28444138169288635F,
                                        -0.18477343022833234F,
                                        -0.09105003625154495F,
                                        0.0F,
                                        0.07958029955625534F,
                                        0.16093020141124725F,
                                        0.24611230194568634F,
                                        0.33791524171829224F,
                                        0.44070982933044434F,
                                        0.5626170039176941F,
                                        0.7229568362236023F,
                                        1.0F};

/// Twelfths, except that the smallest is a sixteenth of one. Index = bit pattern, bit 3 the sign.
constexpr std::array<float, 16> kFp4 = {
    0.0F,          0.0625F / 12.0F, 8.0F / 12.0F,  12.0F / 12.0F,    4.0F / 12.0F,  6.0F / 12.0F,
    2.0F / 12.0F,  3.0F / 12.0F,    0.0F,          -0.0625F / 12.0F, -8.0F / 12.0F, -12.0F / 12.0F,
    -4.0F / 12.0F, -6.0F / 12.0F,   -2.0F / 12.0F, -3.0F / 12.0F};

/// Codes of a table in ascending order of value, and the midpoints between neighbours: a value
/// takes the highest code whose lower midpoint it strictly exceeds.
struct Search {
  std::array<uint8_t, 16> codes{};
  std::array<float, 15> midpoints{};
};

Search MakeSearch(const std::array<float, 16>& table) {
  Search search;
  for (size_t i = 0; i < 16; ++i) search.codes[i] = static_cast<uint8_t>(i);
  std::stable_sort(search.codes.begin(), search.codes.end(),
                   [&table](uint8_t a, uint8_t b) { return table[a] < table[b]; });
  for (size_t i = 0; i < 15; ++i) {
    search.midpoints[i] = (table[search.codes[i]] + table[search.codes[i + 1]]) / 2.0F;
  }
  return search;
}

const Search& SearchOf(Table table) {
  static const Search kNf4Search = MakeSearch(kNf4);
  static const Search kFp4Search = MakeSearch(kFp4);
  return table == Table::kNf4 ? kNf4Search : kFp4Search;
}

uint8_t CodeOf(const Search& search, float x) {
  size_t rank = 0;
  for (const float midpoint : search.midpoints) rank += x > midpoint ? 1 : 0;
  return search.codes[rank];
}

constexpr int64_t kBlocksPerChunk = 256;

}  // namespace

bool BitsAndBytesFormat::SupportsBlock(int64_t block) noexcept {
  return block >= 32 && block <= 4096 && std::has_single_bit(static_cast<uint64_t>(block));
}

std::span<const float, 16> BitsAndBytesFormat::ValuesOf(Table table) noexcept {
  return table == Table::kNf4 ? kNf4 : kFp4;
}

std::string BitsAndBytesFormat::Name() const {
  return fmt::format("{}{}{}", table_ == Table::kNf4 ? "nf4" : "bnb-fp4",
                     block_ == 64 ? std::string() : fmt::format("b{}", block_),
                     nested_ ? ":double" : "");
}

std::string BitsAndBytesFormat::Summary() const {
  return fmt::format("bitsandbytes {}: 4-bit table codes, a magnitude for every {} values{}",
                     table_ == Table::kNf4 ? "NF4" : "FP4", block_,
                     nested_ ? ", itself in 8 bits" : "");
}

std::optional<std::string> BitsAndBytesFormat::WhyNot(int64_t rows, int64_t cols,
                                                      DType dtype) const {
  if (!IsWeightFloat(dtype)) {
    return fmt::format("dtype {}; expected F32, F16 or BF16", NameOf(dtype));
  }
  if (rows < 0 || cols < 0 || !Shape({rows, cols}).CheckedNumBytes(DType::kF32)) {
    return fmt::format("shape [{}, {}]", rows, cols);
  }
  return std::nullopt;
}

std::vector<PlaneSpec> BitsAndBytesFormat::Layout(int64_t rows, int64_t cols,
                                                  DType /*dtype*/) const {
  const int64_t num_values = rows * cols;
  const int64_t blocks = CeilDiv(num_values, block_);
  std::vector<PlaneSpec> planes = {{"codes", DType::kU8, Shape{CeilDiv<int64_t>(num_values, 2), 1}},
                                   {"absmax", nested_ ? DType::kU8 : DType::kF32, Shape{blocks}},
                                   {"table", DType::kF32, Shape{16}}};
  if (nested_) {
    planes.push_back({"nested_absmax", DType::kF32, Shape{CeilDiv(blocks, kNestedBlock)}});
    planes.push_back({"nested_table", DType::kF32, Shape{256}});
    planes.push_back({"nested_offset", DType::kF32, Shape{}});
  }
  return planes;
}

EncodedMatrix BitsAndBytesFormat::Encode(const MatrixView& matrix,
                                         const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  const int64_t cols = matrix.cols();
  EncodedMatrix encoded = AllocatePlanes(shared_from_this(), matrix.rows(), cols, matrix.dtype());
  std::ranges::copy(ValuesOf(table_), encoded.planes[2].tensor.mutable_as<float>().begin());
  const std::span<std::byte> codes = encoded.planes[0].tensor.mutable_bytes();
  const std::span<float> absmax = encoded.planes[1].tensor.mutable_as<float>();
  const Search& search = SearchOf(table_);
  const int64_t num_values = matrix.rows() * cols;
  // As one row: blocks run over the ends of the matrix's own.
  const MatrixView flat({matrix.dtype(), Shape{1, num_values}, matrix.RowBytes(0, matrix.rows())},
                        1, num_values);
  const TensorView all{flat.dtype(), Shape{num_values}, flat.RowBytes(0, 1)};
  ParallelFor(
      0, static_cast<int64_t>(absmax.size()), kBlocksPerChunk, [&](int64_t first, int64_t last) {
        std::vector<float> values(static_cast<size_t>(block_));
        for (int64_t block = first; block < last; ++block) {
          const int64_t begin = block * block_;
          const std::span<float> in_block =
              std::span(values).first(static_cast<size_t>(std::min(block_, num_values - begin)));
          ReadFloats(all, begin, in_block);
          float largest = 0.0F;
          for (size_t i = 0; i < in_block.size(); ++i) {
            if (!std::isfinite(in_block[i])) {
              const int64_t row = (begin + static_cast<int64_t>(i)) / cols;
              std::vector<float> whole(static_cast<size_t>(cols));
              matrix.ReadRows(row, 1, whole);
              ThrowNotFinite(*this, options, row, cols, whole);
            }
            largest = std::max(largest, std::abs(in_block[i]));
          }
          // Upstream divides a short last block and multiplies a full one by the reciprocal.
          const bool is_short = static_cast<int64_t>(in_block.size()) < block_;
          const float divisor = std::max(largest, 1e-38F);
          absmax[static_cast<size_t>(block)] = is_short ? divisor : largest;
          const float reciprocal = 1.0F / divisor;
          for (size_t i = 0; i < in_block.size(); ++i) {
            const float scaled = is_short ? in_block[i] / divisor : in_block[i] * reciprocal;
            const uint8_t code = CodeOf(search, std::clamp(scaled, -1.0F, 1.0F));
            const size_t at = static_cast<size_t>(begin) + i;
            codes[at / 2] |= static_cast<std::byte>(at % 2 == 0 ? code << 4 : code);
          }
        }
      });
  if (num_values % 2 != 0) codes.back() |= static_cast<std::byte>(CodeOf(search, 0.0F));
  return encoded;
}

void BitsAndBytesFormat::DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                                    std::span<float> out, DecodeRounding rounding) const {
  RequireRowRange(encoded, first, count, out.size());
  std::array<float, 16> table{};
  ReadFloats(encoded.Get("table").view(), 0, table);
  const std::byte* const codes = encoded.Get("codes").bytes().data();
  const Tensor& absmax = encoded.Get("absmax");
  std::vector<float> nested_table;
  std::vector<float> nested_absmax;
  float offset = 0.0F;
  if (nested_) {
    nested_table.resize(256);
    nested_absmax.resize(static_cast<size_t>(encoded.Get("nested_absmax").shape()[0]));
    ReadFloats(encoded.Get("nested_table").view(), 0, nested_table);
    ReadFloats(encoded.Get("nested_absmax").view(), 0, nested_absmax);
    ReadFloats(encoded.Get("nested_offset").view(), 0, {&offset, 1});
  }
  const auto magnitude = [&](int64_t block) {
    float value = 0.0F;
    if (!nested_) {
      ReadFloats(absmax.view(), block, {&value, 1});
      return value;
    }
    const auto code = static_cast<size_t>(absmax.bytes()[static_cast<size_t>(block)]);
    value = nested_table[code] * nested_absmax[static_cast<size_t>(block / kNestedBlock)];
    return value + offset;
  };
  const int64_t begin = first * encoded.cols;
  const int64_t end = begin + count * encoded.cols;
  ParallelFor(
      begin / block_, CeilDiv(end, block_), kBlocksPerChunk,
      [&](int64_t first_block, int64_t last_block) {
        for (int64_t block = first_block; block < last_block; ++block) {
          const float scale = magnitude(block);
          const int64_t stop = std::min(end, (block + 1) * block_);
          const int64_t start = std::max(begin, block * block_);
          if (start >= stop) continue;
          const std::span<float> values =
              out.subspan(static_cast<size_t>(start - begin), static_cast<size_t>(stop - start));
          // Rows of odd length start and end inside a byte.
          const auto high = [&](int64_t i) { return std::to_integer<size_t>(codes[i] >> 4); };
          const auto low = [&](int64_t i) {
            return std::to_integer<size_t>(codes[i] & std::byte{15});
          };
          float* to = values.data();
          int64_t byte = start / 2;
          if (start % 2 != 0) *to++ = table[low(byte++)] * scale;
          for (; byte < stop / 2; ++byte) {
            *to++ = table[high(byte)] * scale;
            *to++ = table[low(byte)] * scale;
          }
          if (stop % 2 != 0) *to = table[high(byte)] * scale;
          if (rounding != DecodeRounding::kNone) RoundAllTo(encoded.dtype, values);
        }
      });
}

namespace {

FormatPtr ParseBitsAndBytes(std::string_view name) {
  Table table = Table::kNf4;
  if (name.starts_with("nf4")) {
    name.remove_prefix(3);
  } else if (name.starts_with("bnb-fp4")) {
    table = Table::kFp4;
    name.remove_prefix(7);
  } else {
    return nullptr;
  }
  const bool nested = name.ends_with(":double");
  if (nested) name.remove_suffix(7);
  int64_t block = 64;
  if (!name.empty()) {
    if (name.size() < 2 || name[0] != 'b' || name[1] == '0') return nullptr;
    const auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), block);
    if (error != std::errc{} || end != name.data() + name.size() || block == 64) return nullptr;
  }
  if (!BitsAndBytesFormat::SupportsBlock(block)) return nullptr;
  return std::make_shared<const BitsAndBytesFormat>(table, block, nested);
}

std::vector<std::string> BitsAndBytesNames() {
  return {"nf4", "nf4b128", "nf4:double", "bnb-fp4", "bnb-fp4:double"};
}

}  // namespace

const FormatFamily kBitsAndBytesFamily = {
    .name = "bitsandbytes",
    .grammar = "{nf4,bnb-fp4}[b<block>][:double]",
    .summary = "bitsandbytes 4-bit: NF4 and FP4 table codes with a magnitude per block",
    .details =
        "value = table[code] · absmax, f32, rounded to the checkpoint's dtype; blocks of 64 run "
        "over the flattened matrix.\n"
        "codes   U8 [⌈n/2⌉, 1], high nibble first\n"
        "absmax  F32 [⌈n/64⌉]; `:double` keeps it in 8 bits with nested_absmax per 256, a table of "
        "256 and an offset\n"
        "Written by bitsandbytes and transformers (quant_state.bitsandbytes__nf4). `:double` is "
        "decoded only. Refuses NaN and infinity.",
    .parse = ParseBitsAndBytes,
    .names = BitsAndBytesNames,
    .recognise = RecogniseBitsAndBytes,
};

}  // namespace assay

#include "assay/kernels/ggml_repack.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "assay/base/parallel.h"
#include "assay/formats/ggml.h"
#include "assay/formats/ggml_blocks.h"
#include "assay/formats/ggml_bytes.h"
#include "assay/formats/microscaling.h"
#include "assay/numeric/bit_packing.h"

namespace assay {
namespace {

using ggml_internal::F16At;
using ggml_internal::kGroup;
using ggml_internal::kIq4Values;
using ggml_internal::kTwiceE2M1;

/// Q4_0's codes: kept as a table so that no bias has to take the middle off again.
constexpr std::array<int8_t, 16> kLessEight = {-8, -7, -6, -5, -4, -3, -2, -1,
                                               0,  1,  2,  3,  4,  5,  6,  7};

constexpr GgmlPacking kPackings[] = {
    {.type = "Q4_0", .bits = 4, .middle = 8, .table = kLessEight},
    {.type = "Q4_1", .bits = 4, .min_at = 2},
    {.type = "Q5_0", .bits = 5, .middle = 16},
    {.type = "Q5_1", .bits = 5, .min_at = 2},
    {.type = "Q8_0", .bits = 8},
    {.type = "IQ4_NL", .bits = 4, .table = kIq4Values},
    {.type = "Q4_K", .bits = 4, .min_at = 2, .sub_scales = 4},
    {.type = "Q5_K", .bits = 5, .min_at = 2, .sub_scales = 2},
    {.type = "Q6_K", .bits = 6, .middle = 32, .group = 16, .scale_at = 208, .sub_scales = 4},
    {.type = "IQ4_XS", .bits = 4, .table = kIq4Values, .sub_scales = 4},
};

constexpr int64_t kF16Bytes = 2;

/// From ggml's integers, taken as bytes, to codes of the stream.
std::array<uint8_t, 256> CodesOf(int middle, std::span<const int8_t> table) {
  std::array<uint8_t, 256> codes{};
  for (int value = -128; value < 128; ++value) {
    codes[static_cast<uint8_t>(value)] = static_cast<uint8_t>(value + middle);
  }
  // From the last: of equal entries the first code stands for the integer.
  for (size_t i = table.size(); i-- > 0;) {
    codes[static_cast<uint8_t>(table[i])] = static_cast<uint8_t>(i);
  }
  return codes;
}

/// One thread's row, taken apart.
struct Row {
  explicit Row(int64_t cols)
      : codes(static_cast<size_t>(cols)),
        scales(static_cast<size_t>(cols) / kGroup),
        mins(static_cast<size_t>(cols) / kGroup) {}

  void Unpack(const GgmlType& type, const uint8_t* blocks) {
    ggml_internal::UnpackBlocks(type, blocks, codes.size() / static_cast<size_t>(type.block_values),
                                {codes.data(), scales.data(), mins.data()});
  }

  /// Replaces the integers by their codes and packs those.
  void PackCodes(int bits, const std::array<uint8_t, 256>& code_of, std::span<std::byte> out) {
    const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(codes.data()), codes.size());
    for (uint8_t& byte : bytes) byte = code_of[byte];
    PackBits(bits, bytes, out);
  }

  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<float> mins;
};

/// The integer that `factor` was multiplied by: that product is exact in f32 for every type.
std::byte SubScale(float product, float factor) {
  const float integer = factor == 0 ? 0.0f : product / factor;
  return static_cast<std::byte>(static_cast<int8_t>(std::lrint(integer)));
}

/// A record for each `per_record` groups: the f16 that stands `at` bytes into their block, its sign
/// changed by `flip`, then the integers of values[group].
void WriteRecords(const GgmlType& type, const GgmlPacking& packing, const uint8_t* blocks,
                  int64_t at, int64_t per_record, std::byte flip, std::span<const float> values,
                  int64_t cols, std::byte* out) {
  const int64_t step = packing.group / static_cast<int64_t>(kGroup);
  for (int64_t column = 0; column < cols; column += packing.group * per_record) {
    const uint8_t* factor = blocks + column / type.block_values * type.block_bytes + at;
    const float value = F16At(factor);
    std::memcpy(out, factor, kF16Bytes);
    out[1] ^= flip;
    const int64_t first = column / static_cast<int64_t>(kGroup);
    for (int64_t i = 0; i < per_record; ++i) {
      out[kF16Bytes + i] = SubScale(values[static_cast<size_t>(first + i * step)], value);
    }
    out += kF16Bytes + per_record;
  }
}

/// The f16 of each block.
void CopyF16(const GgmlType& type, const uint8_t* blocks, int64_t at, int64_t count,
             std::byte* out) {
  for (int64_t b = 0; b < count; ++b) {
    std::memcpy(out + b * kF16Bytes, blocks + b * type.block_bytes + at, kF16Bytes);
  }
}

bool F16sAreFinite(const GgmlType& type, const uint8_t* blocks, int64_t at, int64_t count) {
  constexpr uint32_t kExponent = 0x7C00;
  bool finite = true;
  for (int64_t b = 0; b < count; ++b) {
    finite &= (ggml_internal::U16At(blocks + b * type.block_bytes + at) & kExponent) != kExponent;
  }
  return finite;
}

Tensor Bytes(int64_t count) { return Tensor::AllocateUninitialized(DType::kU8, Shape{count}); }

const GgmlType& BlockTypeOf(const EncodedMatrix& weight) {
  return dynamic_cast<const GgmlFormat&>(*weight.format).type();
}

const uint8_t* BlocksOf(const EncodedMatrix& weight) {
  return reinterpret_cast<const uint8_t*>(weight.Get("blocks").bytes().data());
}

}  // namespace

const GgmlPacking* FindGgmlPacking(const GgmlType& type) noexcept {
  const auto* found = std::ranges::find(kPackings, type.name, &GgmlPacking::type);
  return found == std::end(kPackings) ? nullptr : found;
}

std::optional<EncodedMatrix> RepackGgml(const EncodedMatrix& weight, const GgmlPacking& packing) {
  const GgmlType& type = BlockTypeOf(weight);
  const uint8_t* blocks = BlocksOf(weight);
  const int64_t row_blocks = weight.cols / type.block_values;
  const int64_t groups = weight.cols / packing.group;
  const bool records = packing.sub_scales != 0;
  const bool has_min = packing.min_at >= 0;
  const int64_t code_row = weight.cols * packing.bits / 8;
  const int64_t scale_row =
      records ? groups / packing.sub_scales * (kF16Bytes + packing.sub_scales) : groups * kF16Bytes;
  constexpr int64_t kBiasRecord = kF16Bytes + kGgmlSubBiases;
  const int64_t bias_row = !has_min  ? 0
                           : records ? groups / kGgmlSubBiases * kBiasRecord
                                     : groups * kF16Bytes;
  Tensor codes = Bytes(weight.rows * code_row);
  Tensor scales = Bytes(weight.rows * scale_row);
  Tensor biases = Bytes(weight.rows * bias_row + kBiasRecord);
  std::byte* code_bytes = codes.mutable_bytes().data();
  std::byte* scale_bytes = scales.mutable_bytes().data();
  std::byte* bias_bytes = biases.mutable_bytes().data();
  std::memset(bias_bytes + weight.rows * bias_row, 0, kBiasRecord);
  const std::array<uint8_t, 256> code_of = CodesOf(packing.middle, packing.table);
  std::atomic<bool> finite = true;
  ParallelFor(0, weight.rows, RowGrain(weight.rows, 1), [&](int64_t first, int64_t last) {
    Row row(weight.cols);
    for (int64_t n = first; n < last; ++n) {
      const uint8_t* from = blocks + n * row_blocks * type.block_bytes;
      if (!F16sAreFinite(type, from, packing.scale_at, row_blocks) ||
          (has_min && !F16sAreFinite(type, from, packing.min_at, row_blocks))) {
        finite = false;
        return;
      }
      row.Unpack(type, from);
      row.PackCodes(packing.bits, code_of,
                    {code_bytes + n * code_row, static_cast<size_t>(code_row)});
      std::byte* scale = scale_bytes + n * scale_row;
      std::byte* bias = bias_bytes + n * bias_row;
      if (!records) {
        CopyF16(type, from, packing.scale_at, groups, scale);
        if (has_min) CopyF16(type, from, packing.min_at, groups, bias);
        continue;
      }
      WriteRecords(type, packing, from, packing.scale_at, packing.sub_scales, std::byte{0},
                   row.scales, weight.cols, scale);
      if (has_min) {
        WriteRecords(type, packing, from, packing.min_at, kGgmlSubBiases, std::byte{0x80}, row.mins,
                     weight.cols, bias);
      }
    }
  });
  if (!finite) return std::nullopt;
  return EncodedMatrix{weight.format,
                       weight.rows,
                       weight.cols,
                       weight.dtype,
                       {{"codes", codes}, {"scales", scales}, {"biases", biases}}};
}

std::optional<EncodedMatrix> WidenGgml(const EncodedMatrix& weight, const GgmlPacking& packing) {
  const GgmlType& type = BlockTypeOf(weight);
  const uint8_t* blocks = BlocksOf(weight);
  const int64_t row_bytes = weight.cols / type.block_values * type.block_bytes;
  const int64_t groups = weight.cols / packing.group;
  const bool has_min = packing.min_at >= 0;
  const int64_t code_row = packing.bits == 4 ? weight.cols / 2 : weight.cols;
  Tensor codes = Bytes(weight.rows * code_row);
  Tensor scales = Tensor::AllocateUninitialized(DType::kF32, Shape{weight.rows, groups});
  Tensor biases =
      Tensor::AllocateUninitialized(DType::kF32, Shape{weight.rows, has_min ? groups : 0});
  std::byte* code_bytes = codes.mutable_bytes().data();
  float* scale_values = scales.mutable_as<float>().data();
  float* bias_values = biases.mutable_as<float>().data();
  const std::array<uint8_t, 256> code_of = CodesOf(packing.middle, packing.table);
  const auto step = static_cast<size_t>(packing.group) / kGroup;
  std::atomic<bool> finite = true;
  ParallelFor(0, weight.rows, RowGrain(weight.rows, 1), [&](int64_t first, int64_t last) {
    Row row(weight.cols);
    const auto is_finite = [](float value) { return std::isfinite(value); };
    for (int64_t n = first; n < last; ++n) {
      row.Unpack(type, blocks + n * row_bytes);
      if (!std::ranges::all_of(row.scales, is_finite) ||
          !std::ranges::all_of(row.mins, is_finite)) {
        finite = false;
        return;
      }
      for (int64_t g = 0; g < groups; ++g) {
        const size_t from = static_cast<size_t>(g) * step;
        scale_values[n * groups + g] = row.scales[from];
        if (has_min) bias_values[n * groups + g] = -row.mins[from];
      }
      std::byte* out = code_bytes + n * code_row;
      if (packing.bits == 4) {
        row.PackCodes(4, code_of, {out, static_cast<size_t>(code_row)});
      } else {
        std::memcpy(out, row.codes.data(), row.codes.size());
      }
    }
  });
  if (!finite) return std::nullopt;
  return EncodedMatrix{weight.format,
                       weight.rows,
                       weight.cols,
                       weight.dtype,
                       {{"codes", codes}, {"scales", scales}, {"biases", biases}}};
}

std::optional<EncodedMatrix> RepackGgmlMxfp4(const EncodedMatrix& weight) {
  const GgmlType& type = BlockTypeOf(weight);
  const uint8_t* blocks = BlocksOf(weight);
  const auto format = MicroscalingFormat::Make(BlockElement::kE2M1);
  const int64_t row_blocks = weight.cols / type.block_values;
  EncodedMatrix packed{format, weight.rows, weight.cols, weight.dtype, {}};
  for (PlaneSpec& spec : format->Layout(weight.rows, weight.cols, weight.dtype)) {
    Tensor tensor = Tensor::AllocateUninitialized(spec.dtype, std::move(spec.shape));
    packed.planes.push_back({std::move(spec.name), std::move(tensor)});
  }
  std::byte* codes = packed.planes[0].tensor.mutable_bytes().data();
  std::byte* scales = packed.planes[1].tensor.mutable_bytes().data();
  const std::array<uint8_t, 256> code_of = CodesOf(0, kTwiceE2M1);
  ParallelFor(0, weight.rows, RowGrain(weight.rows, 1), [&](int64_t first, int64_t last) {
    Row row(weight.cols);
    for (int64_t n = first; n < last; ++n) {
      const uint8_t* from = blocks + n * row_blocks * type.block_bytes;
      row.Unpack(type, from);
      row.PackCodes(4, code_of,
                    {codes + n * weight.cols / 2, static_cast<size_t>(weight.cols / 2)});
      for (int64_t b = 0; b < row_blocks; ++b) {
        scales[n * row_blocks + b] = static_cast<std::byte>(from[b * type.block_bytes]);
      }
    }
  });
  constexpr std::byte kNoScale{255};
  if (std::ranges::find(packed.planes[1].tensor.bytes(), kNoScale) !=
      packed.planes[1].tensor.bytes().end()) {
    return std::nullopt;
  }
  return packed;
}

}  // namespace assay

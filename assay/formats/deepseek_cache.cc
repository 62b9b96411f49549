#include "assay/formats/deepseek_cache.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/element.h"
#include "assay/numeric/hadamard.h"

namespace assay {
namespace {

using Kind = DeepSeekCacheFormat::Kind;

constexpr float kReciprocalOf448 = std::bit_cast<float>(0x3B124925U);
constexpr float kReciprocalOf6 = std::bit_cast<float>(0x3E2AAAABU);
constexpr float kFp8Floor = 1e-4F;
constexpr float kFp4Floor = 6.0F * 0x1p-126F;
constexpr float kMainFloor = 6.0F * 0x1p-9F;
constexpr float kRotationScale = std::bit_cast<float>(0x3DB504F3U);  // 128^-0.5

struct KindFacts {
  std::string_view name;
  BlockElement element;
  int block;
  DType codes;
  DType scales;
  std::string_view summary;
};

constexpr std::array<KindFacts, 5> kKinds = {{
    {"ds41-window-fp8", BlockElement::kE4M3, 32, DType::kF8E4M3, DType::kF8E8M0,
     "DeepSeek V4.1 window cache: e4m3, a power-of-two scale for every 32"},
    {"ds41-window-fp8:scale-floor", BlockElement::kE4M3, 32, DType::kF8E4M3, DType::kF8E8M0,
     "as ds41-window-fp8 with the floor on the scale (vLLM, FlashMLA tests)"},
    {"ds41-main-fp4", BlockElement::kE2M1, 16, DType::kU8, DType::kF8E4M3,
     "DeepSeek V4.1 compressed cache: e2m1, an e4m3 scale for every 16"},
    {"ds41-index-fp4", BlockElement::kE2M1, 32, DType::kU8, DType::kF8E8M0,
     "DeepSeek V4.1 indexer: e2m1, a power-of-two scale for every 32"},
    {"ds4-index-fp4", BlockElement::kE2M1, 32, DType::kU8, DType::kF8E8M0,
     "DeepSeek V4 indexer: Hadamard rotation of 128 dims, then as ds41-index-fp4"},
}};

const KindFacts& FactsOfKind(Kind kind) { return kKinds[static_cast<size_t>(kind)]; }

/// Smallest power of two ≥ value. Requires a normal value below 2^127.
float CeilPowerOfTwo(float value) noexcept {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFFFFU) & 0x7F800000U);
}

uint8_t ExponentByte(float power_of_two) noexcept {
  return static_cast<uint8_t>(std::bit_cast<uint32_t>(power_of_two) >> 23);
}

void ChooseFp8(CacheFloor floor, std::span<const uint32_t> amax_bits, std::span<uint8_t> scales,
               std::span<float> factors) {
  for (size_t b = 0; b < scales.size(); ++b) {
    const float scale = CacheFp8Scale(std::bit_cast<float>(amax_bits[b]), floor);
    scales[b] = ExponentByte(scale);
    factors[b] = 1.0F / scale;
  }
}

void ChooseIndex(std::span<const uint32_t> amax_bits, std::span<uint8_t> scales,
                 std::span<float> factors) {
  for (size_t b = 0; b < scales.size(); ++b) {
    const float amax = std::max(std::bit_cast<float>(amax_bits[b]), kFp4Floor);
    const float scale = CeilPowerOfTwo(amax * kReciprocalOf6);
    scales[b] = ExponentByte(scale);
    factors[b] = 1.0F / scale;
  }
}

void ChooseMain(std::span<const uint32_t> amax_bits, std::span<uint8_t> scales,
                std::span<float> factors) {
  for (size_t b = 0; b < scales.size(); ++b) {
    const float amax = std::max(std::bit_cast<float>(amax_bits[b]), kMainFloor);
    scales[b] = FloatToE4M3Saturating(std::min(amax / 6.0F, 448.0F));
    factors[b] = E4M3ToFloat(scales[b]);
  }
}

}  // namespace

float CacheFp8Scale(float amax, CacheFloor floor) noexcept {
  return CeilPowerOfTwo(floor == CacheFloor::kAmax ? std::max(amax, kFp8Floor) * kReciprocalOf448
                                                   : std::max(amax * kReciprocalOf448, kFp8Floor));
}

void RotateIndexer(std::span<float> values, bool round_to_bf16) {
  WalshHadamardBlocks(static_cast<size_t>(DeepSeekCacheFormat::kRotation), values);
  for (float& value : values) value *= kRotationScale;
  if (!round_to_bf16) return;
  for (float& value : values) value = RoundToBF16(value);
}

DeepSeekCacheFormat::DeepSeekCacheFormat(Kind kind)
    : BlockFormat(FactsOfKind(kind).element, FactsOfKind(kind).block, FactsOfKind(kind).codes,
                  FactsOfKind(kind).scales),
      kind_(kind) {}

std::string DeepSeekCacheFormat::Name() const { return std::string(FactsOfKind(kind_).name); }

std::string DeepSeekCacheFormat::Summary() const { return std::string(FactsOfKind(kind_).summary); }

std::optional<std::string> DeepSeekCacheFormat::WhyNot(int64_t rows, int64_t cols,
                                                       DType dtype) const {
  if (rotated() && cols % kRotation != 0) {
    return fmt::format("{} columns are not a multiple of the rotation's {}", cols, kRotation);
  }
  return BlockFormat::WhyNot(rows, cols, dtype);
}

EncodedMatrix DeepSeekCacheFormat::Encode(const MatrixView& matrix,
                                          const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  EncodedMatrix encoded = Allocate(shared_from_this(), matrix, DType::kBF16);
  const auto nearest = ElementRounding::kNearestEven;
  switch (kind_) {
    case Kind::kWindowFp8:
    case Kind::kWindowFp8Floored: {
      const auto floor = kind_ == Kind::kWindowFp8 ? CacheFloor::kAmax : CacheFloor::kScale;
      EncodePlanes(
          matrix, options, nearest, {},
          [floor](auto amax, auto scales, auto factors) {
            ChooseFp8(floor, amax, scales, factors);
          },
          encoded);
      break;
    }
    case Kind::kMainFp4:
      EncodePlanes(matrix, options, nearest, {.kind = BlockQuotient::Kind::kDivide}, ChooseMain,
                   encoded);
      break;
    case Kind::kIndexFp4:
      EncodePlanes(matrix, options, nearest, {}, ChooseIndex, encoded);
      break;
    case Kind::kRotatedIndexFp4: {
      AbsMaxOf(matrix, options);  // refuses NaN and infinity where they stand in the source
      Tensor values = Tensor::Allocate(DType::kF32, Shape{matrix.rows(), matrix.cols()});
      matrix.ReadRows(0, matrix.rows(), values.mutable_as<float>());
      RotateIndexer(values.mutable_as<float>(), matrix.dtype() == DType::kBF16);
      EncodePlanes(MatrixView(values.view(), matrix.rows(), matrix.cols()), options, nearest, {},
                   ChooseIndex, encoded);
      break;
    }
  }
  return encoded;
}

void DeepSeekCacheFormat::DecodeCachedRows(const EncodedMatrix& encoded, int64_t first,
                                           int64_t count, std::span<float> out,
                                           DecodeRounding rounding) const {
  BlockFormat::DecodeRows(encoded, first, count, out, rounding);
}

void DeepSeekCacheFormat::DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                                     std::span<float> out, DecodeRounding rounding) const {
  DecodeCachedRows(encoded, first, count, out, rounding);
  if (rotated()) RotateIndexer(out, rounding == DecodeRounding::kCheckpoint);
}

void DeepSeekCacheFormat::DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count,
                                       DType dtype, std::span<std::byte> out) const {
  if (rotated()) {
    Format::DecodeRowsTo(encoded, first, count, dtype, out);
  } else {
    BlockFormat::DecodeRowsTo(encoded, first, count, dtype, out);
  }
}

BlockFormat::ScaleValues DeepSeekCacheFormat::ValuesOfScales(const EncodedMatrix& /*encoded*/,
                                                             DecodeRounding /*rounding*/) const {
  ScaleValues values;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto byte = static_cast<uint8_t>(i);
    values[i] = kind_ == Kind::kMainFp4 ? E4M3ToFloat(byte) : E8M0ToFloat(byte);
  }
  return values;
}

namespace {

FormatPtr ParseCache(std::string_view name) {
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (name == kKinds[i].name) {
      return std::make_shared<const DeepSeekCacheFormat>(static_cast<Kind>(i));
    }
  }
  for (const auto kind : {RopeCacheFormat::Kind::kV4Window, RopeCacheFormat::Kind::kV32Window,
                          RopeCacheFormat::Kind::kIndexFp8}) {
    auto format = std::make_shared<const RopeCacheFormat>(kind);
    if (name == format->Name()) return format;
  }
  return nullptr;
}

std::vector<std::string> CacheNames() {
  std::vector<std::string> names;
  for (const KindFacts& kind : kKinds) names.emplace_back(kind.name);
  for (const auto kind : {RopeCacheFormat::Kind::kV4Window, RopeCacheFormat::Kind::kV32Window,
                          RopeCacheFormat::Kind::kIndexFp8}) {
    names.push_back(RopeCacheFormat(kind).Name());
  }
  return names;
}

}  // namespace

const FormatFamily kDeepSeekCacheFamily = {
    .name = "deepseek_cache",
    .grammar =
        "ds41-{window-fp8[:scale-floor],main-fp4,index-fp4}, ds4-{window-fp8,index-fp4,"
        "index-fp8}, ds32-window-fp8",
    .summary = "the FP8 and FP4 cache equations of DeepSeek V3.2, V4 and V4.1",
    .details =
        "value = bf16(code · scale), the value an in-place kernel leaves in the cache.\n"
        "ds41-window-fp8  e4m3, block 32; scale = smallest power of two >= max(amax, 1e-4) / 448\n"
        "ds41-main-fp4    e2m1, block 16; scale = e4m3(max(amax, 6 * 2^-9) / 6)\n"
        "ds41-index-fp4   e2m1, block 32; scale = smallest power of two >= amax / 6\n"
        "ds4-window-fp8   e4m3, block 64 on all but the last 64 dims, which stay bf16\n"
        "ds4-index-fp4    Hadamard rotation of 128 dims, then ds41-index-fp4\n"
        "ds4-index-fp8    e4m3, one power-of-two f32 scale per 128 dims\n"
        "ds32-window-fp8  e4m3, block 128 with f32 scales, and 64 bf16 dims (656 bytes a token)\n"
        "`assay kv` measures them on captures. Refuses NaN and infinity.",
    .parse = ParseCache,
    .names = CacheNames,
    .recognise = nullptr,
};

}  // namespace assay

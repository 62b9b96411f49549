// RopeCacheFormat: FP8 rows whose last dims stay bf16, or whose scales are f32.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/formats/deepseek_cache.h"
#include "assay/formats/planes.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/element.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

constexpr int64_t kRope = 64;
constexpr int kSubBlock = 32;  ///< what the block kernels take; larger blocks are runs of it
constexpr int64_t kValuesPerRopeChunk = int64_t{1} << 14;

struct RopeKind {
  std::string_view name;
  int64_t block;
  int64_t rope;
  DType scales;
  CacheFloor floor;
  std::string_view summary;
};

constexpr std::array<RopeKind, 3> kRopeKinds = {{
    {"ds4-window-fp8", 64, kRope, DType::kF8E8M0, CacheFloor::kAmax,
     "DeepSeek V4 cache: e4m3, a power-of-two scale for every 64, the last 64 dims bf16"},
    {"ds32-window-fp8", 128, kRope, DType::kF32, CacheFloor::kScale,
     "DeepSeek V3.2 cache: e4m3, an f32 power-of-two scale for every 128, the last 64 dims bf16"},
    {"ds4-index-fp8", 128, 0, DType::kF32, CacheFloor::kAmax,
     "vLLM's FP8 indexer key: e4m3, one f32 power-of-two scale for 128 dims"},
}};

const RopeKind& FactsOfRope(RopeCacheFormat::Kind kind) {
  return kRopeKinds[static_cast<size_t>(kind)];
}

}  // namespace

int64_t RopeCacheFormat::block() const noexcept { return FactsOfRope(kind_).block; }
int64_t RopeCacheFormat::rope() const noexcept { return FactsOfRope(kind_).rope; }
DType RopeCacheFormat::scale_dtype() const noexcept { return FactsOfRope(kind_).scales; }

std::string RopeCacheFormat::Name() const { return std::string(FactsOfRope(kind_).name); }

std::string RopeCacheFormat::Summary() const { return std::string(FactsOfRope(kind_).summary); }

std::optional<std::string> RopeCacheFormat::WhyNot(int64_t rows, int64_t cols, DType dtype) const {
  if (!IsWeightFloat(dtype)) {
    return fmt::format("dtype {}; expected F32, F16 or BF16", NameOf(dtype));
  }
  if (rows < 0 || cols <= rope() || (cols - rope()) % block() != 0) {
    return rope() == 0
               ? fmt::format("{} columns are not a multiple of the block of {}", cols, block())
               : fmt::format("{} columns are not {} bf16 dims and a multiple of the block of {}",
                             cols, rope(), block());
  }
  if (!Shape({rows, cols}).CheckedNumBytes(DType::kF32)) {
    return fmt::format("shape [{}, {}] is too large", rows, cols);
  }
  return std::nullopt;
}

std::vector<PlaneSpec> RopeCacheFormat::Layout(int64_t rows, int64_t cols, DType /*dtype*/) const {
  const int64_t coded = cols - rope();
  std::vector<PlaneSpec> planes = {{"codes", DType::kF8E4M3, Shape{rows, coded}},
                                   {"scales", scale_dtype(), Shape{rows, coded / block()}}};
  if (rope() > 0) planes.push_back({"rope", DType::kBF16, Shape{rows, rope()}});
  return planes;
}

EncodedMatrix RopeCacheFormat::Encode(const MatrixView& matrix,
                                      const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  const int64_t rows = matrix.rows();
  EncodedMatrix encoded = AllocatePlanes(shared_from_this(), rows, matrix.cols(), DType::kBF16);
  const auto cols = static_cast<size_t>(matrix.cols());
  const size_t coded = cols - static_cast<size_t>(rope());
  const size_t num_scales = coded / static_cast<size_t>(block());
  const size_t sub_blocks = static_cast<size_t>(block()) / kSubBlock;
  const size_t scale_bytes = static_cast<size_t>(BitsOf(scale_dtype())) / 8;
  std::byte* const codes = encoded.planes[0].tensor.mutable_bytes().data();
  std::byte* const scales = encoded.planes[1].tensor.mutable_bytes().data();
  std::byte* const rope_values =
      rope() > 0 ? encoded.planes[2].tensor.mutable_bytes().data() : nullptr;
  const CacheFloor floor = FactsOfRope(kind_).floor;
  ParallelFor(
      0, rows, RowsPerChunk(matrix.cols(), kValuesPerRopeChunk), [&](int64_t first, int64_t last) {
        std::vector<float> values(cols);
        std::vector<uint32_t> amax(coded / kSubBlock);
        std::vector<float> factors(amax.size());
        std::vector<float> row_scales(num_scales);
        for (int64_t row = first; row < last; ++row) {
          matrix.ReadRows(row, 1, values);
          if (!std::all_of(values.begin(), values.end(),
                           [](float v) { return std::isfinite(v); })) {
            ThrowNotFinite(*this, options, row, matrix.cols(), values);
          }
          const auto r = static_cast<size_t>(row);
          const std::span<const float> to_code = std::span(values).first(coded);
          BlockAbsMax(to_code, kSubBlock, amax);
          for (size_t s = 0; s < num_scales; ++s) {
            const auto begin = amax.begin() + static_cast<ptrdiff_t>(s * sub_blocks);
            const uint32_t largest =
                *std::max_element(begin, begin + static_cast<ptrdiff_t>(sub_blocks));
            row_scales[s] = CacheFp8Scale(std::bit_cast<float>(largest), floor);
            std::fill_n(factors.begin() + static_cast<ptrdiff_t>(s * sub_blocks), sub_blocks,
                        1.0F / row_scales[s]);
          }
          EncodeBlocks(BlockElement::kE4M3, ElementRounding::kNearestEven, {}, to_code, kSubBlock,
                       factors, {reinterpret_cast<uint8_t*>(codes) + r * coded, coded});
          Round(ElementOf(scale_dtype()), row_scales,
                {scales + r * num_scales * scale_bytes, num_scales * scale_bytes});
          if (rope() > 0) {
            const size_t rope_bytes = 2 * static_cast<size_t>(rope());
            Round(Element::kBF16, std::span(values).subspan(coded),
                  {rope_values + r * rope_bytes, rope_bytes});
          }
        }
      });
  return encoded;
}

void RopeCacheFormat::DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                                 std::span<float> out, DecodeRounding rounding) const {
  const auto cols = static_cast<size_t>(encoded.cols);
  RequireRowRange(encoded, first, count, out.size());
  const size_t coded = cols - static_cast<size_t>(rope());
  const auto block_size = static_cast<size_t>(block());
  const TensorView& scales = encoded.Get("scales").view();
  const std::span<const std::byte> codes = encoded.Get("codes").bytes();
  const bool rounds = rounding == DecodeRounding::kCheckpoint;
  ParallelFor(
      0, count, RowsPerChunk(encoded.cols, kValuesPerRopeChunk), [&](int64_t begin, int64_t end) {
        std::vector<float> row_scales(coded / block_size);
        for (int64_t i = begin; i < end; ++i) {
          const auto row = static_cast<size_t>(first + i);
          const std::span<float> values = out.subspan(static_cast<size_t>(i) * cols, cols);
          Widen(Element::kE4M3, codes.subspan(row * coded, coded), values.first(coded));
          ReadFloats(scales, static_cast<int64_t>(row * row_scales.size()), row_scales);
          for (size_t k = 0; k < coded; ++k) values[k] *= row_scales[k / block_size];
          if (rounds) {
            for (float& value : values.first(coded)) value = RoundToBF16(value);
          }
          if (rope() > 0) {
            const size_t rope_bytes = 2 * static_cast<size_t>(rope());
            Widen(Element::kBF16, encoded.Get("rope").bytes().subspan(row * rope_bytes, rope_bytes),
                  values.subspan(coded));
          }
        }
      });
}

}  // namespace assay

#include "assay/kernels/affine_tiles_x.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "assay/base/checked.h"
#include "assay/numeric/element.h"

namespace assay::affine_tiles {
namespace {

constexpr int64_t kColumnsPerTile = 16;

/// Three bf16 whose sum is x to 24 bits; the last two are 0 when x is a bf16.
std::array<uint16_t, kMaxTerms> TermsOf(float x) {
  std::array<uint16_t, kMaxTerms> terms;
  for (uint16_t& term : terms) {
    term = FloatToBF16(x);
    x -= BF16ToFloat(term);
  }
  return terms;
}

}  // namespace

bool PrepareX(int bits, const Activations& x, int64_t group, TiledX& out) {
  // Infinities would meet codes of 0, and tiles flush subnormals.
  if (!x.AllFinite() || x.HasTiny()) return false;
  const float* values = x.F32();
  const int64_t cols = x.cols();
  const int64_t count = x.num_rows() * cols;
  bool exact = true;
  for (int64_t i = 0; i < count; ++i) {
    if (std::fabs(values[i]) > 0x1p126f) return false;
    exact = exact && RoundToBF16(values[i]) == values[i];
  }
  out.num_x = x.num_rows();
  out.terms = exact ? 1 : kMaxTerms;
  out.column_tiles = CeilDiv(out.num_x * out.terms, kColumnsPerTile);
  const int64_t blocks = cols / kBlock;
  const int64_t block_words = 2 * out.column_tiles * (kTileBytes / 2);
  out.tiles.Resize(static_cast<size_t>(blocks * block_words));
  std::fill_n(out.tiles.data(), out.tiles.size(), uint16_t{0});
  for (int64_t m = 0; m < out.num_x; ++m) {
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t s = 0; s < 2; ++s) {
        uint16_t* step = out.tiles.data() + b * block_words + s * out.column_tiles * 512;
        for (int64_t i = 0; i < 32; ++i) {
          const auto terms = TermsOf(values[m * cols + b * kBlock + ColumnAt(bits, s, i)]);
          for (int64_t t = 0; t < out.terms; ++t) {
            const int64_t column = t * out.num_x + m;
            step[column / 16 * 512 + i / 2 * 32 + column % 16 * 2 + i % 2] =
                terms[static_cast<size_t>(t)];
          }
        }
      }
    }
  }
  const int64_t groups = cols / group;
  const int64_t stride = out.column_tiles * 16;
  out.sums.Resize(static_cast<size_t>(groups * stride));
  std::fill_n(out.sums.data(), out.sums.size(), 0.0f);
  for (int64_t m = 0; m < out.num_x; ++m) {
    for (int64_t g = 0; g < groups; ++g) {
      double sum = 0;
      for (int64_t i = 0; i < group; ++i) {
        sum += static_cast<double>(values[m * cols + g * group + i]);
      }
      out.sums[static_cast<size_t>(g * stride + m)] = static_cast<float>(sum);
    }
  }
  return true;
}

}  // namespace assay::affine_tiles

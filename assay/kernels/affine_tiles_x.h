#pragma once

#include <cstdint>

#include "assay/base/aligned_buffer.h"
#include "assay/kernels/activations.h"

/// Activations in the order that the bf16 tiles of affine_tiles.cc multiply.
namespace assay::affine_tiles {

inline constexpr int64_t kBlock = 64;  ///< columns under one scale: two tile steps of 32
inline constexpr int64_t kTileBytes = 1024;
inline constexpr int64_t kMaxTerms = 3;
inline constexpr int64_t kMaxXRows = 16;
inline constexpr int64_t kMaxColumnTiles = 3;  ///< kMaxXRows · kMaxTerms / 16

/// x of one call. Column t · num_x + m of the tiles is term t of row m.
struct TiledX {
  AlignedBuffer<uint16_t> tiles;  ///< [block][step][column tile] of 16 pairs × 16 columns × 2
  AlignedBuffer<float> sums;      ///< [group][column tile · 16]: Σ x of the group, in term 0
  int64_t num_x = 0;
  int64_t terms = 0;
  int64_t column_tiles = 0;
};

/// Column of the block at position i of step s, as the decoder of `bits`-bit codes writes it.
constexpr int64_t ColumnAt(int bits, int64_t s, int64_t i) {
  return bits == 4 ? 2 * i + s : 32 * s + i;
}

/// False when x has values that tiles cannot hold: not finite, tiny or huge.
bool PrepareX(int bits, const Activations& x, int64_t group, TiledX& out);

}  // namespace assay::affine_tiles

#pragma once

#include <cstdint>

namespace assay {

/// Inner loops of the panel engine in f32 multiply-adds, for one instruction set.
struct F32PanelKernel {
  const char* target;  ///< "avx2"
  int64_t row_tile;    ///< rows of a panel are a multiple of it; missing ones hold anything finite
  int64_t panel_rows;  ///< rows decoded at a time
  int64_t x_tile;      ///< rows of x in a packed tile
  int64_t x_grain;     ///< and in the last tile: the rest, rounded up to a multiple of this
  int64_t k_block;     ///< columns multiplied before the sums are stored
  int64_t panel_stride;  ///< f32 values from one row of a panel to the next

  /// out[k · width + j] = x[j · x_stride + k], 0 for j in [num_x, width).
  void (*pack_x)(const float* x, int64_t num_x, int64_t x_stride, int64_t k, int64_t width,
                 float* out);

  /// c[r · c_stride + j] (+)= Σ_k panel[r · panel_stride + k] · x_j[k] for `row_tiles` tiles of
  /// rows and `width` rows of x (a multiple of x_grain), packed tile by tile.
  void (*multiply)(const float* panel, int64_t row_tiles, const float* x, int64_t width, int64_t k,
                   bool add, float* c, int64_t c_stride);

  /// y[m · y_stride + n] = c[n · c_stride + m]. Stored past the caches when `stream`, which
  /// requires y and y_stride on multiples of 4 values.
  void (*write_y)(const float* c, int64_t c_stride, int64_t num_w, int64_t num_x, bool stream,
                  float* y, int64_t y_stride);
};

/// Of the target that is active now.
F32PanelKernel ActiveF32PanelKernel();

}  // namespace assay

#pragma once

#include <vector>

namespace assay {

/// Which of TurboQuant's two computations of one codebook; the tables differ by a few f32 ulp.
enum class LloydMaxVariant {
  kDecoder,  ///< the loader's: f32 state, Simpson sums in f64; what codes are decoded with
  kEncoder,  ///< the encoder's: f64 state, accurate integrals, cast to f32 at the end
};

/// Levels ascending, and the cell borders between −1 and 1.
struct Codebook {
  std::vector<float> centroids;   ///< 2^bits
  std::vector<float> boundaries;  ///< 2^bits + 1, the first −1, the last 1
};

/// Lloyd–Max codebook for one coordinate of a random unit vector in `dimension` dimensions, after
/// exactly 200 iterations (16 levels are not at a fixed point then, so the count matters).
/// Values: density (1 − x²)^((dimension − 3)/2) on [−1, 1]. An iteration sets each inner boundary
///         to the middle of its centroids, then each centroid to the mean of its cell, unless
///         the cell holds no more than 1e-30: the boundaries belong to the centroids of the
///         iteration before.
/// Requires 3 ≤ dimension ≤ 65536, 1 ≤ bits ≤ 8. Errors: internal.
/// Cost: on one core up to a quarter of a second once (16 levels, kDecoder); later calls return the
/// same object. Any thread. Source: docs/formats/turboquant.md.
const Codebook& LloydMaxCodebook(int dimension, int bits, LloydMaxVariant variant);

}  // namespace assay

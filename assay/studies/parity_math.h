#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace assay {

/// The x of a parity report: `count` bf16 codes from Lcg.
std::vector<uint16_t> ParityInput(uint32_t seed, int64_t count);

/// How LaneDot adds a product to its lane.
enum class LaneArithmetic {
  kFused,     ///< one rounding: what a GPU kernel does
  kSeparate,  ///< product and sum rounded apart
};

/// w · x in f32, in the order of a GPU kernel with one thread for each position of a group:
/// lane i adds w[i], w[i + lanes], … ; then lane l < 32 adds lanes l, l + 32, … starting from 0;
/// then a tree, lane l += lane l + 16, 8, 4, 2, 1.
/// Requires w.size() = x.size(), num_lanes a multiple of 32 up to 128.
float LaneDot(std::span<const float> w, std::span<const float> x, int64_t num_lanes,
              LaneArithmetic arithmetic) noexcept;

/// The figures of the parity report, which are fixed to the last bit: differences and relative
/// differences in f32, sums in double in index order.
struct ParityFigures {
  int64_t elements = 0;
  double max_abs = 0;  ///< an f32 value, as the other maxima
  int64_t max_abs_index = 0;
  double mean_abs = 0;
  double rmse = 0;
  double rhs_rms = 0;
  double rmse_over_rhs_rms = 0;  ///< rmse / max(rhs_rms, 1e-12)
  double max_rel = 0;            ///< |a − b| / max(|b|, 1e-6)
  int64_t max_rel_index = 0;
  double mean_rel = 0;
};

/// |a − b| and |a − b| / max(|b|, 1e-6), both in f32.
float AbsoluteError(float a, float b) noexcept;
float RelativeError(float a, float b) noexcept;

/// Requires lhs.size() = rhs.size(). NaN is never a maximum, but makes the means NaN.
/// Errors: internal.
ParityFigures MeasureParity(std::span<const float> lhs, std::span<const float> rhs);

}  // namespace assay

#include "assay/studies/parity_math.h"

#include <algorithm>
#include <cmath>

#include "assay/base/error.h"
#include "assay/numeric/random.h"

namespace assay {
namespace {

constexpr size_t kWarp = 32;
constexpr size_t kMaxLanes = 128;

}  // namespace

std::vector<uint16_t> ParityInput(uint32_t seed, int64_t count) {
  std::vector<uint16_t> codes(static_cast<size_t>(count));
  Lcg generator(seed);
  for (uint16_t& code : codes) code = generator.NextBF16();
  return codes;
}

float LaneDot(std::span<const float> w, std::span<const float> x, int64_t num_lanes,
              LaneArithmetic arithmetic) noexcept {
  std::array<float, kMaxLanes> lanes{};
  const auto count = static_cast<size_t>(num_lanes);
  for (size_t first = 0; first < w.size(); first += count) {
    const size_t width = std::min(count, w.size() - first);
    if (arithmetic == LaneArithmetic::kFused) {
      for (size_t i = 0; i < width; ++i) lanes[i] = std::fma(w[first + i], x[first + i], lanes[i]);
    } else {
      for (size_t i = 0; i < width; ++i) lanes[i] += w[first + i] * x[first + i];
    }
  }
  std::array<float, kWarp> warp{};
  for (size_t lane = 0; lane < kWarp; ++lane) {
    if (count == kWarp) {
      warp[lane] = lanes[lane];
      continue;
    }
    for (size_t i = lane; i < count; i += kWarp) warp[lane] += lanes[i];
  }
  for (size_t offset = kWarp / 2; offset > 0; offset /= 2) {
    for (size_t lane = 0; lane < offset; ++lane) warp[lane] += warp[lane + offset];
  }
  return warp[0];
}

float AbsoluteError(float a, float b) noexcept { return std::abs(a - b); }

float RelativeError(float a, float b) noexcept {
  return AbsoluteError(a, b) / std::max(std::abs(b), 1e-6f);
}

ParityFigures MeasureParity(std::span<const float> lhs, std::span<const float> rhs) {
  if (lhs.size() != rhs.size()) {
    ThrowInternal("parity: {} values against {}", lhs.size(), rhs.size());
  }
  ParityFigures figures;
  figures.elements = static_cast<int64_t>(lhs.size());
  if (lhs.empty()) return figures;
  double sum_abs = 0;
  double sum_rel = 0;
  double sum_d2 = 0;
  double sum_b2 = 0;
  for (size_t i = 0; i < lhs.size(); ++i) {
    const double abs = static_cast<double>(AbsoluteError(lhs[i], rhs[i]));
    const double rel = static_cast<double>(RelativeError(lhs[i], rhs[i]));
    const double difference = static_cast<double>(lhs[i] - rhs[i]);
    const double reference = static_cast<double>(rhs[i]);
    if (abs > figures.max_abs) {
      figures.max_abs = abs;
      figures.max_abs_index = static_cast<int64_t>(i);
    }
    if (rel > figures.max_rel) {
      figures.max_rel = rel;
      figures.max_rel_index = static_cast<int64_t>(i);
    }
    sum_abs += abs;
    sum_rel += rel;
    sum_d2 += difference * difference;
    sum_b2 += reference * reference;
  }
  const auto count = static_cast<double>(lhs.size());
  figures.mean_abs = sum_abs / count;
  figures.mean_rel = sum_rel / count;
  figures.rmse = std::sqrt(sum_d2 / count);
  figures.rhs_rms = std::sqrt(sum_b2 / count);
  figures.rmse_over_rhs_rms = figures.rmse / std::max(figures.rhs_rms, 1e-12);
  return figures;
}

}  // namespace assay

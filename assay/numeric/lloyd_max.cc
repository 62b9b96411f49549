#include "assay/numeric/lloyd_max.h"

#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <tuple>

#include "assay/base/error.h"

namespace assay {
namespace {

constexpr int kIterations = 200;
constexpr double kMinMass = 1e-30;

/// (1 − x²)^(half_exponents / 2), from multiplications and one square root.
class Density {
 public:
  explicit Density(int dimension) : half_exponents_(dimension - 3) {}

  double operator()(double x) const {
    const double base = 1.0 - x * x;
    if (base <= 0) return 0;
    double power = half_exponents_ % 2 == 0 ? 1.0 : std::sqrt(base);
    double square = base;
    for (int exponent = half_exponents_ / 2; exponent != 0; exponent /= 2, square *= square) {
      if (exponent % 2 != 0) power *= square;
    }
    return power;
  }

 private:
  int half_exponents_;
};

struct Moments {
  double mass = 0;
  double first = 0;
};

/// The loader's rule: composite Simpson over 10,000 intervals, terms added from left to right.
Moments SimpsonMoments(const Density& density, double from, double to) {
  constexpr int kIntervals = 10000;
  const double step = (to - from) / kIntervals;
  Moments sum;
  for (int i = 0; i <= kIntervals; ++i) {
    const double x = from + i * step;
    const double weight = i == 0 || i == kIntervals ? 1.0 : i % 2 == 1 ? 4.0 : 2.0;
    const double term = weight * density(x);
    sum.mass += term;
    sum.first += term * x;
  }
  return {sum.mass * step / 3.0, sum.first * step / 3.0};
}

/// Gauss–Legendre nodes and weights on [−1, 1].
constexpr int kNodes = 20;
struct GaussRule {
  std::array<double, kNodes> nodes;
  std::array<double, kNodes> weights;

  GaussRule() {
    for (int i = 0; i < kNodes; ++i) {
      // Newton's method on the Legendre polynomial P, from Tricomi's estimate of its i-th root.
      double x = std::cos(std::numbers::pi * (i + 0.75) / (kNodes + 0.5));
      double slope = 0;
      for (int round = 0; round < 8; ++round) {
        double previous = 1;
        double p = x;
        for (int k = 2; k <= kNodes; ++k) {
          const double next = ((2 * k - 1) * x * p - (k - 1) * previous) / k;
          previous = p;
          p = next;
        }
        slope = kNodes * (x * p - previous) / (x * x - 1);
        x -= p / slope;
      }
      nodes[static_cast<size_t>(i)] = x;
      weights[static_cast<size_t>(i)] = 2 / ((1 - x * x) * slope * slope);
    }
  }
};

/// What the encoder gets from an adaptive quadrature: the integrals to about 1e-15.
Moments AccurateMoments(const Density& density, double from, double to) {
  static const GaussRule rule;
  constexpr int kPanels = 8;
  if (to <= 0) {
    // The density is even: mirrored cells must have mirrored moments, to the last bit.
    const Moments mirrored = AccurateMoments(density, -to, -from);
    return {mirrored.mass, -mirrored.first};
  }
  Moments sum;
  const double half = (to - from) / (2 * kPanels);
  for (int panel = 0; panel < kPanels; ++panel) {
    const double centre = from + (2 * panel + 1) * half;
    for (size_t i = 0; i < kNodes; ++i) {
      const double x = centre + half * rule.nodes[i];
      const double term = rule.weights[i] * density(x);
      sum.mass += term;
      sum.first += term * x;
    }
  }
  return {sum.mass * half, sum.first * half};
}

/// State of T: f32 rounds every centroid and boundary at every update.
template <typename T, typename Integrate>
Codebook Iterate(int bits, const Integrate& integrate) {
  const size_t levels = size_t{1} << bits;
  std::vector<T> centroids(levels);
  std::vector<T> boundaries(levels + 1);
  for (size_t i = 0; i < levels; ++i) {
    const double middle = (static_cast<double>(i) + 0.5) / static_cast<double>(levels);
    centroids[i] = static_cast<T>(-1.0 + 2.0 * middle);
  }
  boundaries.front() = -1;
  boundaries.back() = 1;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    for (size_t i = 1; i < levels; ++i) {
      boundaries[i] = (centroids[i - 1] + centroids[i]) / 2;
    }
    for (size_t i = 0; i < levels; ++i) {
      const Moments cell =
          integrate(static_cast<double>(boundaries[i]), static_cast<double>(boundaries[i + 1]));
      if (cell.mass > kMinMass) centroids[i] = static_cast<T>(cell.first / cell.mass);
    }
  }
  return {std::vector<float>(centroids.begin(), centroids.end()),
          std::vector<float>(boundaries.begin(), boundaries.end())};
}

Codebook Compute(int dimension, int bits, LloydMaxVariant variant) {
  const Density density(dimension);
  switch (variant) {
    case LloydMaxVariant::kDecoder:
      return Iterate<float>(
          bits, [&](double from, double to) { return SimpsonMoments(density, from, to); });
    case LloydMaxVariant::kEncoder:
      return Iterate<double>(bits, [&](double from, double to) {
        constexpr double kMinWidth = 1e-15;
        return to - from < kMinWidth ? Moments{} : AccurateMoments(density, from, to);
      });
  }
  return {};
}

}  // namespace

const Codebook& LloydMaxCodebook(int dimension, int bits, LloydMaxVariant variant) {
  constexpr int kMaxDimension = 65536;
  if (dimension < 3 || dimension > kMaxDimension || bits < 1 || bits > 8) {
    ThrowInternal("Lloyd-Max codebook of {} dimensions, {} bits: out of range", dimension, bits);
  }
  static std::mutex mutex;
  static std::map<std::tuple<int, int, LloydMaxVariant>, Codebook> computed;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = computed.try_emplace({dimension, bits, variant});
  if (is_new) entry->second = Compute(dimension, bits, variant);
  return entry->second;
}

}  // namespace assay

#include "assay/numeric/random.h"

#include <array>
#include <bit>
#include <cmath>

#include "assay/base/parallel.h"

namespace assay {
namespace {

/// Horner's rule; coefficients from the constant upwards.
template <size_t kCount>
double Polynomial(const std::array<double, kCount>& coefficients, double x) noexcept {
  double sum = coefficients[kCount - 1];
  for (size_t i = kCount - 1; i-- > 0;) sum = sum * x + coefficients[i];
  return sum;
}

/// ln x. Requires x normal and positive. Accuracy: within a few ulp.
/// With x = 2^k · m and m in [√½, √2): ln m = 2 artanh(s), s = (m − 1)/(m + 1), |s| < 0.172; the
/// series ends where s^22/23 is below 2^−53.
double Logarithm(double x) noexcept {
  constexpr double kLn2High = 0x1.62e42fefa38p-1;  // 42 bits: exact when multiplied by k
  constexpr double kLn2Low = 0x1.ef35793c7673p-45;
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;
  constexpr uint64_t kOne = uint64_t{1023} << 52;
  const auto bits = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<int>(bits >> 52) - 1023;
  auto m = std::bit_cast<double>((bits & kMantissa) | kOne);
  if (m > 0x1.6a09e667f3bcdp0) {
    m /= 2;
    ++exponent;
  }
  constexpr std::array kSeries = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9, 1.0 / 11,
                                  1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
  const double s = (m - 1) / (m + 1);
  const double k = exponent;
  return k * kLn2High + (k * kLn2Low + 2 * s * Polynomial(kSeries, s * s));
}

// Coefficients of PPND16: centre, then tails up to and beyond r = 5.
constexpr std::array kCentreTop = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                                   1.9715909503065514427e+3, 1.3731693765509461125e+4,
                                   4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                   3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr std::array kCentreBottom = {1.0,
                                      4.2313330701600911252e+1,
                                      6.8718700749205790830e+2,
                                      5.3941960214247511077e+3,
                                      2.1213794301586595867e+4,
                                      3.9307895800092710610e+4,
                                      2.8729085735721942674e+4,
                                      5.2264952788528545610e+3};
constexpr std::array kNearTop = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                 5.76949722146069140550e0,  3.64784832476320460504e0,
                                 1.27045825245236838258e0,  2.41780725177450611770e-1,
                                 2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr std::array kNearBottom = {1.0,
                                    2.05319162663775882187e0,
                                    1.67638483018380384940e0,
                                    6.89767334985100004550e-1,
                                    1.48103976427480074590e-1,
                                    1.51986665636164571966e-2,
                                    5.47593808499534494600e-4,
                                    1.05075007164441684324e-9};
constexpr std::array kFarTop = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                1.78482653991729133580e0,  2.96560571828504891230e-1,
                                2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr std::array kFarBottom = {1.0,
                                   5.99832206555887937690e-1,
                                   1.36929880922735805310e-1,
                                   1.48753612908506148525e-2,
                                   7.86869131145613259100e-4,
                                   1.84631831751005468180e-5,
                                   1.42151175831644588870e-7,
                                   2.04426310338993978564e-15};

}  // namespace

double NormalQuantile(double p) noexcept {
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(kCentreTop, r) / Polynomial(kCentreBottom, r);
  }
  // sqrt is one of the operations that IEEE 754 rounds correctly.
  const double r = std::sqrt(-Logarithm(q < 0 ? p : 1 - p));
  const double magnitude = r <= 5 ? Polynomial(kNearTop, r - 1.6) / Polynomial(kNearBottom, r - 1.6)
                                  : Polynomial(kFarTop, r - 5) / Polynomial(kFarBottom, r - 5);
  return q < 0 ? -magnitude : magnitude;
}

void NormalGenerator::Fill(std::span<float> out) {
  constexpr int64_t kSamplesPerChunk = 1 << 14;
  ParallelFor(0, static_cast<int64_t>(out.size()), kSamplesPerChunk,
              [&](int64_t first, int64_t last) {
                NormalGenerator part = *this;
                part.Skip(static_cast<uint64_t>(first));
                for (int64_t i = first; i < last; ++i) out[static_cast<size_t>(i)] = part.Next();
              });
  Skip(out.size());
}

}  // namespace assay

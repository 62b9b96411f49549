#pragma once

#include <cstdint>
#include <span>

#include "assay/numeric/element.h"

namespace assay {

/// The generator of TurboQuant's parity example.
/// Values: state ← state · 1664525 + 1013904223 mod 2^32; the sample is
///         bf16((f32((state >> 8) & 0xFFFF) / 65535 − 0.5) · 2), each step rounded to f32, the last
///         one to bf16 nearest even: 65,536 steps from −1 to 1.
class Lcg {
 public:
  static constexpr uint32_t kDefaultSeed = 0x5EED1234u;

  explicit Lcg(uint32_t seed = kDefaultSeed) noexcept : state_(seed) {}

  /// The next sample, a bf16 code.
  uint16_t NextBF16() noexcept {
    state_ = state_ * 1664525u + 1013904223u;
    const float raw = static_cast<float>((state_ >> 8) & 0xFFFFu) / 65535.0f;
    return FloatToBF16((raw - 0.5f) * 2.0f);
  }

 private:
  uint32_t state_;
};

/// 64 random bits a call, any seed; sample i depends on seed and i only.
/// Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) noexcept : state_(seed) {}

  uint64_t Next() noexcept {
    state_ += kGamma;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  /// As if Next had been called `count` times.
  void Skip(uint64_t count) noexcept { state_ += kGamma * count; }

 private:
  static constexpr uint64_t kGamma = 0x9E3779B97F4A7C15u;

  uint64_t state_;
};

/// Quantile of the standard normal distribution. Requires 0 < p < 1.
/// Why:      own arithmetic, square root and logarithm instead of the C library's, whose last bits
///           differ from system to system; only IEEE operations that round once are used.
/// Accuracy: relative error below 1e-15.
/// Source:   Wichura: Algorithm AS 241, Applied Statistics 37 (1988), PPND16.
double NormalQuantile(double p) noexcept;

/// N(0, 1) samples, the same bits on every machine, instruction set and thread count.
/// Values: sample i is f32(NormalQuantile((⌊z / 2^12⌋ + ½) / 2^52)), z the i-th value of
///         SplitMix64(seed): one sample for each z, all within ±8.3.
class NormalGenerator {
 public:
  explicit NormalGenerator(uint64_t seed) noexcept : bits_(seed) {}

  float Next() noexcept {
    const auto step = static_cast<double>(bits_.Next() >> 12);
    return static_cast<float>(NormalQuantile((step + 0.5) * 0x1p-52));
  }

  /// As if Next had been called `count` times; constant time.
  void Skip(uint64_t count) noexcept { bits_.Skip(count); }

  /// The next out.size() samples. Uses all threads.
  void Fill(std::span<float> out);

 private:
  SplitMix64 bits_;
};

}  // namespace assay

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace assay {

/// How a block of FP8 activations gets its f32 scale from its largest magnitude, max(amax, 1e-4).
enum class Fp8ActivationScale : uint8_t {
  kPowerOfTwo,  ///< smallest power of two ≥ amax · f32(1/448). DeepSeek V4, V4.1 ("ue8m0")
  kLinear,      ///< amax · f32(1/448). V4 without scale_fmt
  kDivide,      ///< amax / 448. V3
};

/// Quantises activations as DeepSeek's act_quant does: code = e4m3(clamp(x / scale, ±448)).
/// Requires block > 0 dividing values.size(), codes.size() = values.size(), one scale a block,
/// finite values. Errors: internal. Accuracy: exact.
/// Source: DeepSeek-V3 and V4 inference/kernel.py; docs/formats/deepseek_cache.md.
void QuantiseFp8Activations(std::span<const float> values, size_t block, Fp8ActivationScale rule,
                            std::span<uint8_t> codes, std::span<float> scales);

}  // namespace assay

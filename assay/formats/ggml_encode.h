#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "assay/formats/ggml_blocks.h"
#include "assay/formats/ggml_bytes.h"
#include "assay/numeric/element.h"

/// Encoders of ggml's blocks, to the bytes of ggml_quantize_chunk without an importance matrix.
/// Equations: docs/formats/ggml.md.
namespace assay::ggml_internal {

/// Nearest integer, ties to even. Requires |x| < 2^22.
inline int NearestInt(float x) noexcept {
  constexpr float kMagic = 12582912.0F;  // 1.5 · 2^23
  return static_cast<int>((x + kMagic) - kMagic);
}

/// Writes f16(value). False when that is not finite.
inline bool PutF16(uint8_t* at, float value) noexcept {
  const uint16_t code = FloatToF16(value);
  PutU16(at, code);
  return (code & 0x7C00U) != 0x7C00U;
}

// All encode `num_blocks` blocks of finite values to `out`.

Encoded EncodeQ4_0(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeQ4_1(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeQ5_0(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeQ5_1(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeQ8_0(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeQ8_1(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeMXFP4(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeNVFP4(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeQ1_0(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeQ2_0(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeTQ1_0(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeTQ2_0(const float* values, size_t num_blocks, uint8_t* out);

Encoded EncodeQ2_K(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeQ3_K(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeQ4_K(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeQ5_K(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeQ6_K(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeQ8_K(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeIQ4_NL(const float* values, size_t num_blocks, uint8_t* out);
Encoded EncodeIQ4_XS(const float* values, size_t num_blocks, uint8_t* out);

}  // namespace assay::ggml_internal

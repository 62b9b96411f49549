#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace assay {

/// Element types a tensor can be stored in: those of safetensors, under its names.
/// Source: formats of the safetensors reference, section "dtypes" of docs/formats/safetensors.md.
enum class DType : uint8_t {
  kBool,
  kF4,      ///< e2m1, two per byte, first element in the low nibble
  kF6E2M3,  ///< dense, least significant bit first
  kF6E3M2,  ///< dense, least significant bit first
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,  ///< e4m3fn
  kF8E8M0,  ///< scale type
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,  ///< two f32
  kF64,
  kI64,
  kU64,
  kUnknown,  ///< a name this version does not know: listed, never decoded
};

/// Bits of one element; 0 for kUnknown.
int BitsOf(DType dtype) noexcept;

/// The safetensors name, "BF16"; "?" for kUnknown.
std::string_view NameOf(DType dtype) noexcept;

/// Inverse of NameOf, case-sensitive; nothing for a name that is not one of them.
std::optional<DType> ParseDType(std::string_view name) noexcept;

/// f32, f16 or bf16: what a weight to be encoded may be stored in.
bool IsWeightFloat(DType dtype) noexcept;

/// Every floating type whose single elements widen exactly to f32 (F4 … F32), F8E8M0 included.
bool WidensToFloat(DType dtype) noexcept;

}  // namespace assay

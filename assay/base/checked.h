#pragma once

#include <concepts>
#include <optional>

namespace assay {

/// Product, or nothing when it does not fit. Every size that comes from a file goes through here.
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> CheckedMul(T a, T b) noexcept {
  T result{};
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

/// Sum, or nothing when it does not fit.
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> CheckedAdd(T a, T b) noexcept {
  T result{};
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

/// ⌈a / b⌉ without the overflow of (a + b − 1) / b. Requires b > 0, a ≥ 0.
template <std::integral T>
[[nodiscard]] constexpr T CeilDiv(T a, T b) noexcept {
  return static_cast<T>(a / b + (a % b != 0 ? 1 : 0));
}

/// The least multiple of `multiple` that is not below `value`. Requires multiple > 0, value ≥ 0,
/// and a result that T holds.
template <std::integral T>
[[nodiscard]] constexpr T RoundUp(T value, T multiple) noexcept {
  return static_cast<T>(CeilDiv(value, multiple) * multiple);
}

}  // namespace assay

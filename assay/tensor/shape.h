#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "assay/tensor/dtype.h"

namespace assay {

/// Dimensions of a row-major tensor, slowest first. Rank 0 is a scalar (one element).
class Shape {
 public:
  static constexpr size_t kMaxRank = 32;

  Shape() = default;
  /// Requires every dimension ≥ 0 and rank ≤ kMaxRank. Errors: internal (readers check first).
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::vector<int64_t> dims);

  size_t rank() const noexcept { return dims_.size(); }
  int64_t operator[](size_t axis) const { return dims_.at(axis); }
  std::span<const int64_t> dims() const noexcept { return dims_; }

  /// Product of the dimensions taken left to right, 1 for rank 0; nothing when a partial product
  /// overflows, even if a later dimension is 0 (the rule of safetensors).
  std::optional<int64_t> CheckedNumElements() const noexcept;

  /// As CheckedNumElements. Errors: internal on overflow.
  int64_t NumElements() const;

  /// Whole bytes that `dtype` elements of this shape take; nothing on overflow, or when the bits
  /// do not fill whole bytes (an odd number of F4), or for kUnknown.
  std::optional<int64_t> CheckedNumBytes(DType dtype) const noexcept;

  /// "[4096, 11008]", "[]" for a scalar.
  std::string ToString() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::vector<int64_t> dims_;
};

}  // namespace assay

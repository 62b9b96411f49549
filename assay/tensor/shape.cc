#include "assay/tensor/shape.h"

#include <fmt/ranges.h>

#include "assay/base/checked.h"
#include "assay/base/error.h"

namespace assay {

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::vector<int64_t>(dims)) {}

Shape::Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {
  if (dims_.size() > kMaxRank) ThrowInternal("shape: rank {} exceeds {}", dims_.size(), kMaxRank);
  for (const int64_t dim : dims_) {
    if (dim < 0) ThrowInternal("shape: dimension {} is negative", dim);
  }
}

std::optional<int64_t> Shape::CheckedNumElements() const noexcept {
  int64_t product = 1;
  for (const int64_t dim : dims_) {
    const auto next = CheckedMul(product, dim);
    if (!next) return std::nullopt;
    product = *next;
  }
  return product;
}

int64_t Shape::NumElements() const {
  const auto product = CheckedNumElements();
  if (!product) ThrowInternal("shape {}: the number of elements overflows", ToString());
  return *product;
}

std::optional<int64_t> Shape::CheckedNumBytes(DType dtype) const noexcept {
  const auto elements = CheckedNumElements();
  if (!elements || dtype == DType::kUnknown) return std::nullopt;
  const auto bits = CheckedMul(*elements, static_cast<int64_t>(BitsOf(dtype)));
  if (!bits || *bits % 8 != 0) return std::nullopt;
  return *bits / 8;
}

std::string Shape::ToString() const { return fmt::format("[{}]", fmt::join(dims_, ", ")); }

}  // namespace assay

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "assay/base/error.h"
#include "assay/tensor/dtype.h"
#include "assay/tensor/shape.h"

namespace assay {

/// Bytes of a tensor that somebody else keeps alive: row-major, little-endian, any alignment.
struct TensorView {
  DType dtype = DType::kU8;
  Shape shape;
  std::span<const std::byte> bytes;
};

/// Tensor with shared ownership of its bytes: of memory it allocated, or of a mapped file.
/// Copies are cheap and share the bytes.
/// Why: planes of a checkpoint stay in the mapping until they are read, and an encoder's planes
/// pass to a writer, without a copy in either case.
class Tensor {
 public:
  Tensor() = default;

  /// 64-byte aligned, zero-filled. Errors: internal when the size overflows or is not whole bytes.
  static Tensor Allocate(DType dtype, Shape shape);

  /// The same with undefined bytes, for a caller that writes every one of them.
  static Tensor AllocateUninitialized(DType dtype, Shape shape);

  /// Shares `bytes`, which `owner` keeps alive. Requires bytes.size() to match dtype and shape.
  static Tensor Share(std::shared_ptr<const void> owner, DType dtype, Shape shape,
                      std::span<const std::byte> bytes);

  DType dtype() const noexcept { return view_.dtype; }
  const Shape& shape() const noexcept { return view_.shape; }
  std::span<const std::byte> bytes() const noexcept { return view_.bytes; }
  const TensorView& view() const noexcept { return view_; }
  int64_t num_bytes() const noexcept { return static_cast<int64_t>(view_.bytes.size()); }

  /// The bytes of a tensor made by Allocate, for filling in. Errors: internal on a shared one.
  std::span<std::byte> mutable_bytes();

  /// The same as elements of T. Requires sizeof(T) · count = bytes. Allocate's memory is aligned.
  template <typename T>
  std::span<T> mutable_as() {
    const std::span<std::byte> raw = mutable_bytes();
    return {reinterpret_cast<T*>(raw.data()), raw.size() / sizeof(T)};
  }

  /// Entry `index` along the first axis, sharing bytes: shape loses its first dimension.
  /// Requires rank ≥ 1, 0 ≤ index < shape[0], entries of whole bytes. Errors: internal.
  Tensor Slice(int64_t index) const;

  /// Same bytes under another dtype or shape of the same size. Errors: internal.
  Tensor As(DType dtype, Shape shape) const;

 private:
  std::shared_ptr<const void> owner_;
  std::byte* writable_ = nullptr;
  TensorView view_;
};

}  // namespace assay

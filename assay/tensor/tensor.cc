#include "assay/tensor/tensor.h"

#include <algorithm>

#include "assay/base/aligned_buffer.h"

namespace assay {
Tensor Tensor::AllocateUninitialized(DType dtype, Shape shape) {
  const auto num_bytes = shape.CheckedNumBytes(dtype);
  if (!num_bytes) {
    ThrowInternal("tensor {} of {}: no whole number of bytes", shape.ToString(), NameOf(dtype));
  }
  const auto size = static_cast<size_t>(*num_bytes);
  const std::shared_ptr<std::byte> data = AllocateAligned(size);
  Tensor tensor;
  tensor.owner_ = data;
  tensor.writable_ = data.get();
  tensor.view_ = TensorView{dtype, std::move(shape), {data.get(), size}};
  return tensor;
}

Tensor Tensor::Allocate(DType dtype, Shape shape) {
  Tensor tensor = AllocateUninitialized(dtype, std::move(shape));
  std::ranges::fill(tensor.mutable_bytes(), std::byte{0});
  return tensor;
}

Tensor Tensor::Share(std::shared_ptr<const void> owner, DType dtype, Shape shape,
                     std::span<const std::byte> bytes) {
  const auto num_bytes = shape.CheckedNumBytes(dtype);
  if (!num_bytes || static_cast<size_t>(*num_bytes) != bytes.size()) {
    ThrowInternal("tensor {} of {}: {} bytes do not fit", shape.ToString(), NameOf(dtype),
                  bytes.size());
  }
  Tensor tensor;
  tensor.owner_ = std::move(owner);
  tensor.view_ = TensorView{dtype, std::move(shape), bytes};
  return tensor;
}

std::span<std::byte> Tensor::mutable_bytes() {
  if (writable_ == nullptr && !view_.bytes.empty()) ThrowInternal("tensor: shared bytes are const");
  return {writable_, view_.bytes.size()};
}

Tensor Tensor::Slice(int64_t index) const {
  const Shape& shape = view_.shape;
  if (shape.rank() == 0 || index < 0 || index >= shape[0]) {
    ThrowInternal("tensor {}: no entry {}", shape.ToString(), index);
  }
  const size_t stride = view_.bytes.size() / static_cast<size_t>(shape[0]);
  Tensor slice;
  slice.owner_ = owner_;
  slice.view_.dtype = view_.dtype;
  slice.view_.shape = Shape(std::vector<int64_t>(shape.dims().begin() + 1, shape.dims().end()));
  const auto num_bytes = slice.view_.shape.CheckedNumBytes(view_.dtype);
  if (!num_bytes || static_cast<size_t>(*num_bytes) != stride) {
    ThrowInternal("tensor {}: entries are not whole bytes", shape.ToString());
  }
  slice.view_.bytes = view_.bytes.subspan(static_cast<size_t>(index) * stride, stride);
  return slice;
}

Tensor Tensor::As(DType dtype, Shape shape) const {
  Tensor tensor = Share(owner_, dtype, std::move(shape), view_.bytes);
  tensor.writable_ = writable_;
  return tensor;
}

}  // namespace assay

#include "assay/tensor/convert.h"

#include <algorithm>

#include "assay/base/error.h"
#include "assay/numeric/bulk.h"

namespace assay {

Element ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kF4:
      return Element::kE2M1;
    case DType::kF6E2M3:
      return Element::kE2M3;
    case DType::kF6E3M2:
      return Element::kE3M2;
    case DType::kF8E5M2:
      return Element::kE5M2;
    case DType::kF8E4M3:
      return Element::kE4M3;
    case DType::kF8E8M0:
      return Element::kE8M0;
    case DType::kF8E4M3Fnuz:
      return Element::kE4M3Fnuz;
    case DType::kF8E5M2Fnuz:
      return Element::kE5M2Fnuz;
    case DType::kF16:
      return Element::kF16;
    case DType::kBF16:
      return Element::kBF16;
    case DType::kF32:
      return Element::kF32;
    case DType::kBool:
    case DType::kU8:
    case DType::kI8:
    case DType::kI16:
    case DType::kU16:
    case DType::kI32:
    case DType::kU32:
    case DType::kC64:
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
    case DType::kUnknown:
      break;
  }
  ThrowInternal("{}: does not widen to f32", NameOf(dtype));
}

void ReadFloats(const TensorView& tensor, int64_t first, std::span<float> out) {
  const Element element = ElementOf(tensor.dtype);
  const auto bits = static_cast<size_t>(BitsOf(element));
  const size_t capacity = tensor.bytes.size() * 8 / bits;
  if (first < 0 || static_cast<size_t>(first) > capacity ||
      out.size() > capacity - static_cast<size_t>(first)) {
    ThrowInternal("{} elements from {} of {}: the tensor holds {}", out.size(), first,
                  NameOf(tensor.dtype), capacity);
  }
  size_t index = static_cast<size_t>(first);
  // Sub-byte elements: 4 of 6 bits (2 of 4) fill whole bytes; start from the group `first` is in.
  if (const size_t inside = bits * index % 8; inside != 0) {
    constexpr size_t kMaxGroup = 4;
    const size_t group = bits == 6 ? 4 : 2;
    const size_t skipped = index % group;
    float values[kMaxGroup];
    Widen(element, tensor.bytes.subspan((index - skipped) * bits / 8), std::span(values, group));
    const size_t head = std::min(out.size(), group - skipped);
    std::copy_n(values + skipped, head, out.begin());
    out = out.subspan(head);
    index += head;
  }
  if (!out.empty()) Widen(element, tensor.bytes.subspan(index * bits / 8), out);
}

}  // namespace assay

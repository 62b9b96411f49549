#include "assay/studies/difference_sums.h"

#include <cstring>

namespace assay {

Grid GridOf(const Shape& shape, int bits) {
  Grid grid;
  grid.cols = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  for (size_t axis = 0; axis + 1 < shape.rank(); ++axis) grid.rows *= shape[axis];
  const bool whole_bytes = grid.cols * bits % 8 == 0;
  if (grid.rows == 1 || grid.rows > kMaxCounted || !whole_bytes) {
    grid.cols *= grid.rows;
    grid.rows = 1;
    grid.has_rows = false;
  }
  return grid;
}

DType CommonType(DType a, DType b) {
  if (a == b) return a;
  return WidensToFloat(a) && WidensToFloat(b) ? DType::kF32 : DType::kF64;
}

void MarkDifferences(int bits, std::span<const std::byte> a, std::span<const std::byte> b,
                     std::span<uint8_t> differs) {
  if (bits % 8 == 0) {
    const auto size = static_cast<size_t>(bits / 8);
    for (size_t i = 0; i < differs.size(); ++i) {
      differs[i] = std::memcmp(a.data() + i * size, b.data() + i * size, size) != 0 ? 1 : 0;
    }
    return;
  }
  for (size_t i = 0; i < differs.size(); ++i) {
    const size_t bit = i * static_cast<size_t>(bits);
    unsigned window = std::to_integer<unsigned>(a[bit / 8] ^ b[bit / 8]);
    if (bit % 8 + static_cast<size_t>(bits) > 8) {
      window |= std::to_integer<unsigned>(a[bit / 8 + 1] ^ b[bit / 8 + 1]) << 8;
    }
    differs[i] = ((window >> (bit % 8)) & ((1u << bits) - 1)) != 0 ? 1 : 0;
  }
}

}  // namespace assay

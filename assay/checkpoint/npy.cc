#include "assay/checkpoint/npy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/mapped_file.h"

namespace assay {
namespace {

// Copies a rows × cols matrix stored column by column; in tiles, so that both sides stay in cache.
void TransposeElements(const std::byte* in, std::byte* out, size_t rows, size_t cols,
                       size_t element_bytes) {
  constexpr size_t kTile = 64;
  for (size_t row_begin = 0; row_begin < rows; row_begin += kTile) {
    const size_t row_end = std::min(rows, row_begin + kTile);
    for (size_t col_begin = 0; col_begin < cols; col_begin += kTile) {
      const size_t col_end = std::min(cols, col_begin + kTile);
      for (size_t row = row_begin; row < row_end; ++row) {
        for (size_t col = col_begin; col < col_end; ++col) {
          std::memcpy(out + (row * cols + col) * element_bytes,
                      in + (col * rows + row) * element_bytes, element_bytes);
        }
      }
    }
  }
}

// Both orders are the same when at most one dimension is not 1, or when there is nothing.
bool OrderMatters(const Shape& shape) {
  const auto dims = shape.dims();
  return std::count_if(dims.begin(), dims.end(), [](int64_t dim) { return dim != 1; }) > 1 &&
         shape.NumElements() > 0;
}

}  // namespace

Tensor FromFortranOrder(const TensorView& tensor) {
  Tensor result = Tensor::Allocate(tensor.dtype, tensor.shape);
  const size_t rank = tensor.shape.rank();
  const auto element_bytes = static_cast<size_t>(BitsOf(tensor.dtype)) / 8;
  std::byte* out = result.mutable_bytes().data();
  if (rank == 2) {
    TransposeElements(tensor.bytes.data(), out, static_cast<size_t>(tensor.shape[0]),
                      static_cast<size_t>(tensor.shape[1]), element_bytes);
    return result;
  }
  // Walks the output in order and keeps the input offset of the current index.
  std::array<size_t, Shape::kMaxRank> strides{};
  size_t stride = element_bytes;
  for (size_t axis = 0; axis < rank; ++axis) {
    strides[axis] = stride;
    stride *= static_cast<size_t>(tensor.shape[axis]);
  }
  std::array<int64_t, Shape::kMaxRank> index{};
  size_t offset = 0;
  for (int64_t left = tensor.shape.NumElements(); left > 0; --left) {
    std::memcpy(out, tensor.bytes.data() + offset, element_bytes);
    out += element_bytes;
    for (size_t axis = rank; axis-- > 0;) {
      offset += strides[axis];
      if (++index[axis] < tensor.shape[axis]) break;
      offset -= strides[axis] * static_cast<size_t>(tensor.shape[axis]);
      index[axis] = 0;
    }
  }
  return result;
}

std::shared_ptr<const NpyFile> NpyFile::Open(const std::string& path) {
  return Open(MappedFile::Open(path));
}

std::shared_ptr<const NpyFile> NpyFile::Open(std::shared_ptr<const MappedFile> mapped) {
  const std::shared_ptr<NpyFile> file(new NpyFile(std::move(mapped)));
  file->header_ = ReadNpyHeader(file->file_->bytes(), file->path());
  const NpyHeader& header = file->header_;
  const int64_t data_end =
      header.data_offset + header.shape.CheckedNumBytes(header.dtype).value_or(0);
  if (data_end < file->num_file_bytes()) {
    file->notes_.push_back(fmt::format("{}: {} trailing bytes after the array are not read",
                                       file->path(), Grouped(file->num_file_bytes() - data_end)));
  }
  file->tensors_.push_back(
      {std::filesystem::path(file->path()).stem().string(), header.dtype, header.shape});
  file->Verify();
  return file;
}

Tensor NpyFile::Load(size_t index) const {
  const Tensor mapped = MappedTensor(index, header_.data_offset);
  if (!header_.fortran_order || !OrderMatters(header_.shape)) return mapped;
  Tensor tensor = FromFortranOrder(mapped.view());
  Verify();
  return tensor;
}

}  // namespace assay

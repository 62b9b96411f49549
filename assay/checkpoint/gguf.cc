#include "assay/checkpoint/gguf.h"

#include <algorithm>
#include <numeric>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/mapped_file.h"
#include "assay/formats/ggml_type.h"

namespace assay {

StoredTensor StoredGgmlTensor(std::string name, const GgmlType& type, const Shape& shape) {
  if (type.dtype) return {std::move(name), *type.dtype, shape};
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  if (dims.empty() || dims.back() % type.block_values != 0) {
    ThrowInternal("tensor {}: {} holds no {}", Quoted(name), shape.ToString(), type.name);
  }
  dims.back() = dims.back() / type.block_values * type.block_bytes;
  return {std::move(name), DType::kU8, Shape(std::move(dims)), &type};
}

std::shared_ptr<const GgufFile> GgufFile::Open(const std::string& path) {
  return Open(MappedFile::Open(path));
}

std::shared_ptr<const GgufFile> GgufFile::Open(std::shared_ptr<const MappedFile> mapped) {
  const std::shared_ptr<GgufFile> file(new GgufFile(std::move(mapped)));
  file->header_ = ReadGgufHeader(file->file_->bytes(), file->path(), file->file_);
  const std::vector<GgufTensorInfo>& infos = file->header_.tensors;
  file->infos_.resize(infos.size());
  std::iota(file->infos_.begin(), file->infos_.end(), size_t{0});
  std::ranges::sort(file->infos_, {}, [&](size_t i) { return std::string_view(infos[i].name); });
  for (const size_t i : file->infos_) {
    file->tensors_.push_back(StoredGgmlTensor(infos[i].name, *infos[i].type, infos[i].shape));
  }
  for (const GgufMetadata::Entry& entry : file->header_.metadata.entries()) {
    const bool is_text = !FirstInvalidUtf8(entry.key);
    file->metadata_.emplace(is_text ? entry.key : Quoted(entry.key), entry.value.ToText());
  }
  file->Verify();
  return file;
}

Tensor GgufFile::Load(size_t index) const {
  RequireTensor(index);
  const uint64_t offset = header_.data_offset + header_.tensors[infos_[index]].offset;
  return MappedTensor(index, static_cast<int64_t>(offset));
}

}  // namespace assay

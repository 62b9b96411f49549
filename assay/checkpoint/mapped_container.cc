#include "assay/checkpoint/mapped_container.h"

#include <utility>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/mapped_file.h"

namespace assay {

MappedContainer::MappedContainer(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}

const std::string& MappedContainer::path() const { return file_->path(); }

int64_t MappedContainer::num_file_bytes() const { return file_->num_bytes(); }

void MappedContainer::Verify() const { file_->Verify(); }

void MappedContainer::RequireTensor(size_t index) const {
  if (index >= tensors_.size()) ThrowInternal("{}: no tensor {}", path(), index);
}

Tensor MappedContainer::MappedTensor(size_t index, int64_t offset) const {
  RequireTensor(index);
  const StoredTensor& tensor = tensors_[index];
  const auto num_bytes = tensor.shape.CheckedNumBytes(tensor.dtype);
  if (!num_bytes) ThrowInternal("{}: tensor {} lost its size", path(), Quoted(tensor.name));
  return Tensor::Share(
      file_, tensor.dtype, tensor.shape,
      file_->bytes().subspan(static_cast<size_t>(offset), static_cast<size_t>(*num_bytes)));
}

}  // namespace assay

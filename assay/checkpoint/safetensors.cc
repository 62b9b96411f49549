#include "assay/checkpoint/safetensors.h"

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/mapped_file.h"
#include "assay/checkpoint/safetensors_header.h"

namespace assay {
namespace {

// Legal, but not a matrix that can be read by rows.
bool RowsStartInsideBytes(const SafetensorsEntry& entry) {
  const Shape& shape = entry.shape;
  return shape.rank() >= 2 && BitsOf(entry.dtype) % 8 != 0 && entry.begin != entry.end &&
         shape[shape.rank() - 1] % 8 * BitsOf(entry.dtype) % 8 != 0;
}

}  // namespace

std::shared_ptr<const SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  return Open(MappedFile::Open(path));
}

std::shared_ptr<const SafetensorsFile> SafetensorsFile::Open(
    std::shared_ptr<const MappedFile> mapped) {
  const std::shared_ptr<SafetensorsFile> file(new SafetensorsFile(std::move(mapped)));
  SafetensorsHeader header = ReadSafetensorsHeader(file->file_->bytes(), file->path());
  file->tensors_.reserve(header.entries.size());
  file->offsets_.reserve(header.entries.size());
  for (SafetensorsEntry& entry : header.entries) {
    if (RowsStartInsideBytes(entry)) {
      file->notes_.push_back(
          fmt::format("{}: tensor {}: {} rows of odd width {} start inside a byte: listed, not "
                      "decoded",
                      file->path(), Quoted(entry.name), NameOf(entry.dtype),
                      entry.shape[entry.shape.rank() - 1]));
    }
    file->offsets_.push_back(header.data_offset + entry.begin);
    file->tensors_.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape)});
  }
  file->metadata_ = std::move(header.metadata);
  file->Verify();
  return file;
}

Tensor SafetensorsFile::Load(size_t index) const {
  RequireTensor(index);
  return MappedTensor(index, offsets_[index]);
}

}  // namespace assay

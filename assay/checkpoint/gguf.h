#pragma once

#include <memory>
#include <string>

#include "assay/checkpoint/container.h"
#include "assay/checkpoint/gguf_header.h"

namespace assay {

class MappedFile;

/// A GGUF file, version 2 or 3: typed metadata, tensor infos, then the data, padded.
/// Tensors: values of plain types under their dtype; blocks as U8 whose last axis counts the bytes
///          of a row, with StoredTensor::block_type. Axes are those of other files: slowest first.
/// Errors:  opening reads the head only and checks every rule of docs/formats/gguf.md.
class GgufFile final : public Container {
 public:
  /// Errors: input.
  static std::shared_ptr<const GgufFile> Open(const std::string& path);
  static std::shared_ptr<const GgufFile> Open(std::shared_ptr<const MappedFile> file);

  const std::string& path() const override;
  std::string_view kind() const override { return "gguf"; }
  int64_t num_file_bytes() const override;
  const std::vector<StoredTensor>& Tensors() const override { return tensors_; }
  /// The mapped bytes, not copied.
  Tensor Load(size_t index) const override;
  /// GgufValue::ToText of every entry, keys that are not UTF-8 escaped.
  const std::map<std::string, std::string>& Metadata() const override { return metadata_; }
  const std::vector<std::string>& Notes() const override { return notes_; }
  void Verify() const override;

  /// As stored: typed metadata, and the tensors in the file's order.
  const GgufHeader& header() const noexcept { return header_; }

 private:
  GgufFile() = default;

  std::shared_ptr<const MappedFile> file_;
  GgufHeader header_;
  std::vector<StoredTensor> tensors_;
  std::vector<size_t> infos_;  // in header_.tensors, parallel to tensors_
  std::map<std::string, std::string> metadata_;
  std::vector<std::string> notes_;
};

/// How a tensor of `type` stands in a container, given the shape of its values: under its dtype, or
/// as U8 whose last axis counts the bytes of a row of blocks.
/// Requires rows of whole blocks. Errors: internal.
StoredTensor StoredGgmlTensor(std::string name, const GgmlType& type, const Shape& shape);

}  // namespace assay

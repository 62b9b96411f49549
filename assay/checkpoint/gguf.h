#pragma once

#include <memory>
#include <string>

#include "assay/checkpoint/gguf_header.h"
#include "assay/checkpoint/mapped_container.h"

namespace assay {

/// A GGUF file, version 2 or 3: typed metadata, tensor infos, then the data, padded.
/// Tensors: values of plain types under their dtype; blocks as U8 whose last axis counts the bytes
///          of a row, with StoredTensor::block_type. Axes are those of other files: slowest first.
/// Metadata: GgufValue::ToText of every entry, keys that are not UTF-8 escaped.
/// Errors:  opening reads the head only and checks every rule of docs/formats/gguf.md.
class GgufFile final : public MappedContainer {
 public:
  /// Errors: input.
  static std::shared_ptr<const GgufFile> Open(const std::string& path);
  static std::shared_ptr<const GgufFile> Open(std::shared_ptr<const MappedFile> file);

  std::string_view kind() const override { return "gguf"; }
  /// The mapped bytes, not copied.
  Tensor Load(size_t index) const override;

  /// As stored: typed metadata, and the tensors in the file's order.
  const GgufHeader& header() const noexcept { return header_; }

 private:
  using MappedContainer::MappedContainer;

  GgufHeader header_;
  std::vector<size_t> infos_;  // in header_.tensors, parallel to tensors_
};

/// How a tensor of `type` stands in a container, given the shape of its values: under its dtype, or
/// as U8 whose last axis counts the bytes of a row of blocks.
/// Requires rows of whole blocks. Errors: internal.
StoredTensor StoredGgmlTensor(std::string name, const GgmlType& type, const Shape& shape);

}  // namespace assay

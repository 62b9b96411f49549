#pragma once

#include <memory>
#include <string>
#include <vector>

#include "assay/checkpoint/mapped_container.h"

namespace assay {

/// A safetensors file: a JSON header with names, dtypes, shapes and byte ranges, then the data.
/// Layout: u64 length N · N bytes of JSON · tensors in C order, little-endian, without gaps
/// Errors: opening reads the header only and checks every rule of docs/formats/safetensors.md.
class SafetensorsFile final : public MappedContainer {
 public:
  /// Errors: input.
  static std::shared_ptr<const SafetensorsFile> Open(const std::string& path);
  static std::shared_ptr<const SafetensorsFile> Open(std::shared_ptr<const MappedFile> file);

  std::string_view kind() const override { return "safetensors"; }
  /// The mapped bytes, not copied; of any alignment.
  Tensor Load(size_t index) const override;

 private:
  using MappedContainer::MappedContainer;

  std::vector<int64_t> offsets_;  // in the file, parallel to tensors_
};

}  // namespace assay

#pragma once

#include <memory>
#include <string>

#include "assay/checkpoint/container.h"

namespace assay {

class MappedFile;

/// A safetensors file: a JSON header with names, dtypes, shapes and byte ranges, then the data.
/// Layout: u64 length N · N bytes of JSON · tensors in C order, little-endian, without gaps
/// Errors: opening reads the header only and checks every rule of docs/formats/safetensors.md.
class SafetensorsFile final : public Container {
 public:
  /// Errors: input.
  static std::shared_ptr<const SafetensorsFile> Open(const std::string& path);
  static std::shared_ptr<const SafetensorsFile> Open(std::shared_ptr<const MappedFile> file);

  const std::string& path() const override;
  std::string_view kind() const override { return "safetensors"; }
  int64_t num_file_bytes() const override;
  const std::vector<StoredTensor>& Tensors() const override { return tensors_; }
  /// The mapped bytes, not copied; of any alignment.
  Tensor Load(size_t index) const override;
  const std::map<std::string, std::string>& Metadata() const override { return metadata_; }
  const std::vector<std::string>& Notes() const override { return notes_; }
  void Verify() const override;

 private:
  SafetensorsFile() = default;

  std::shared_ptr<const MappedFile> file_;
  std::vector<StoredTensor> tensors_;
  std::vector<int64_t> offsets_;  // in the file, parallel to tensors_
  std::map<std::string, std::string> metadata_;
  std::vector<std::string> notes_;
};

}  // namespace assay

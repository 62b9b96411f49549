#pragma once

#include <memory>
#include <string>

#include "assay/checkpoint/container.h"
#include "assay/checkpoint/npy_header.h"

namespace assay {

class MappedFile;

/// An npy file, versions 1.0 to 3.0: one array, named by the file's stem.
/// Layout: magic · version · header length · Python dictionary · data, in C or Fortran order
/// Errors: opening reads the header only; see docs/formats/npy.md for what is refused.
class NpyFile final : public Container {
 public:
  /// Errors: input.
  static std::shared_ptr<const NpyFile> Open(const std::string& path);
  static std::shared_ptr<const NpyFile> Open(std::shared_ptr<const MappedFile> file);

  const std::string& path() const override;
  std::string_view kind() const override { return "npy"; }
  int64_t num_file_bytes() const override;
  const std::vector<StoredTensor>& Tensors() const override { return tensors_; }
  /// The mapped bytes; a copy in C order when the file is in Fortran order.
  Tensor Load(size_t index = 0) const override;
  const std::map<std::string, std::string>& Metadata() const override { return metadata_; }
  const std::vector<std::string>& Notes() const override { return notes_; }
  void Verify() const override;

 private:
  NpyFile() = default;

  std::shared_ptr<const MappedFile> file_;
  NpyHeader header_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::string> notes_;
};

/// Bytes of a Fortran-order tensor (first index fastest) in C order.
/// Requires: whole-byte elements. Cost: one pass, one allocation.
Tensor FromFortranOrder(const TensorView& tensor);

}  // namespace assay

#pragma once

#include <memory>
#include <string>

#include "assay/checkpoint/mapped_container.h"
#include "assay/checkpoint/npy_header.h"

namespace assay {

/// An npy file, versions 1.0 to 3.0: one array, named by the file's stem.
/// Layout: magic · version · header length · Python dictionary · data, in C or Fortran order
/// Errors: opening reads the header only; see docs/formats/npy.md for what is refused.
class NpyFile final : public MappedContainer {
 public:
  /// Errors: input.
  static std::shared_ptr<const NpyFile> Open(const std::string& path);
  static std::shared_ptr<const NpyFile> Open(std::shared_ptr<const MappedFile> file);

  std::string_view kind() const override { return "npy"; }
  /// The mapped bytes; a copy in C order when the file is in Fortran order.
  Tensor Load(size_t index = 0) const override;

 private:
  using MappedContainer::MappedContainer;

  NpyHeader header_;
};

/// Bytes of a Fortran-order tensor (first index fastest) in C order.
/// Requires: whole-byte elements. Cost: one pass, one allocation.
Tensor FromFortranOrder(const TensorView& tensor);

}  // namespace assay

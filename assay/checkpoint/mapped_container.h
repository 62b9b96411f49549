#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "assay/checkpoint/container.h"

namespace assay {

class MappedFile;

/// What the containers that are one mapped file have in common. A kind of file adds how its head is
/// read and where each tensor lies.
class MappedContainer : public Container {
 public:
  const std::string& path() const final;
  int64_t num_file_bytes() const final;
  const std::vector<StoredTensor>& Tensors() const final { return tensors_; }
  const std::map<std::string, std::string>& Metadata() const final { return metadata_; }
  const std::vector<std::string>& Notes() const final { return notes_; }
  void Verify() const final;

 protected:
  explicit MappedContainer(std::shared_ptr<const MappedFile> file);

  /// Tensors()[index], whose bytes begin at `offset` of the file and were checked to lie in it: the
  /// mapped bytes, not copied, of any alignment. Errors: internal when there is no such tensor.
  Tensor MappedTensor(size_t index, int64_t offset) const;
  /// Errors: internal when Tensors()[index] does not exist.
  void RequireTensor(size_t index) const;

  const std::shared_ptr<const MappedFile> file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::string> notes_;
};

}  // namespace assay

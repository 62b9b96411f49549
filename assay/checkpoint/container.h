#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/formats/checkpoint_form.h"
#include "assay/tensor/tensor.h"

namespace assay {

/// One file of named tensors, headers read, bytes mapped. A model is one or several of them.
/// Immutable; every method may be called from several threads at once.
class Container {
 public:
  virtual ~Container() = default;

  /// As given when it was opened.
  virtual const std::string& path() const = 0;
  /// "safetensors", "gguf", "npy".
  virtual std::string_view kind() const = 0;
  virtual int64_t num_file_bytes() const = 0;

  /// Sorted by name (byte order), names unique.
  virtual const std::vector<StoredTensor>& Tensors() const = 0;

  /// Bytes of Tensors()[index] in C order. Requires index < Tensors().size().
  /// Errors: internal when out of range.
  virtual Tensor Load(size_t index) const = 0;

  /// Free text the file carries, sorted by key.
  virtual const std::map<std::string, std::string>& Metadata() const = 0;

  /// What a reader should know although the file was accepted, one line each.
  virtual const std::vector<std::string>& Notes() const = 0;

  /// Call after loaded bytes were used. Errors: input when the file was cut while it was mapped.
  virtual void Verify() const = 0;

  /// Position of a tensor in Tensors(); nothing when there is none.
  std::optional<size_t> Find(std::string_view name) const;

  /// Load by name. Errors: input, naming file and tensor, when there is none.
  Tensor Get(std::string_view name) const;
};

using ContainerPtr = std::shared_ptr<const Container>;

/// Opens a file by its name's extension (".safetensors", ".gguf", ".npy"), or by its first bytes
/// when the extension says nothing. A part of a split GGUF model is opened by itself. Errors:
/// input.
ContainerPtr OpenContainer(const std::string& path);

}  // namespace assay

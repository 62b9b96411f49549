#include "assay/checkpoint/container.h"

#include <algorithm>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/gguf.h"
#include "assay/checkpoint/mapped_file.h"
#include "assay/checkpoint/npy.h"
#include "assay/checkpoint/safetensors.h"

namespace assay {

std::optional<size_t> Container::Find(std::string_view name) const {
  const std::vector<StoredTensor>& tensors = Tensors();
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const StoredTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  if (found == tensors.end() || found->name != name) return std::nullopt;
  return static_cast<size_t>(found - tensors.begin());
}

Tensor Container::Get(std::string_view name) const {
  const auto index = Find(name);
  if (!index) ThrowInput("{}: there is no tensor {}", path(), Quoted(name));
  return Load(*index);
}

ContainerPtr OpenContainer(const std::string& path) {
  std::shared_ptr<const MappedFile> file = MappedFile::Open(path);
  const std::string_view content = AsText(file->bytes());
  const bool named =
      path.ends_with(".safetensors") || path.ends_with(".npy") || path.ends_with(".gguf");
  if (path.ends_with(".npy") || (!named && HasNpyMagic(content))) {
    return NpyFile::Open(std::move(file));
  }
  if (path.ends_with(".gguf") || (!named && content.starts_with(kGgufMagic))) {
    return GgufFile::Open(std::move(file));
  }
  return SafetensorsFile::Open(std::move(file));
}

}  // namespace assay

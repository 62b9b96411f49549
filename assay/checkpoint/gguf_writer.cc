#include "assay/checkpoint/gguf_writer.h"

#include "assay/base/output_file.h"
#include "assay/base/text.h"

namespace assay {

GgufWriter::GgufWriter(const std::string& path, const std::vector<TensorSpec>& tensors,
                       const GgufMetadata& metadata)
    : slots_(path) {
  const GgufLayout layout = LayOutGguf(tensors, metadata, path);
  file_ = std::make_unique<OutputFile>(path);
  // Zeros from the start, so that the padding between tensors is there.
  file_->Reserve(layout.num_file_bytes);
  file_->WriteAt(0, AsBytes(layout.head));
  for (size_t i = 0; i < tensors.size(); ++i) {
    slots_.Add(tensors[i].name, *file_, layout.offsets[i],
               tensors[i].shape.CheckedNumBytes(tensors[i].dtype).value_or(0));
  }
}

GgufWriter::~GgufWriter() = default;

void GgufWriter::Write(std::string_view tensor, std::span<const std::byte> bytes, int64_t offset) {
  slots_.Write(tensor, bytes, offset);
}

void GgufWriter::Commit() {
  slots_.RequireComplete();
  file_->Commit();
}

}  // namespace assay

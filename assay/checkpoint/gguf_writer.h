#pragma once

#include <memory>
#include <string>
#include <vector>

#include "assay/checkpoint/gguf_layout.h"
#include "assay/checkpoint/output_slots.h"
#include "assay/checkpoint/tensor_writer.h"

namespace assay {

/// Writes one GGUF file whose tensors are known before their bytes. See TensorWriter.
class GgufWriter final : public TensorWriter {
 public:
  /// Metadata values are copied into the file now. Errors: input.
  GgufWriter(const std::string& path, const std::vector<TensorSpec>& tensors,
             const GgufMetadata& metadata);
  ~GgufWriter() override;

  void Write(std::string_view tensor, std::span<const std::byte> bytes,
             int64_t offset = 0) override;
  void Commit() override;

 private:
  std::unique_ptr<OutputFile> file_;
  OutputSlots slots_;
};

}  // namespace assay

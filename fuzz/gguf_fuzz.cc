// A file's bytes through the GGUF reader. What it accepts must obey the format's rules, every
// metadata value must be readable, and all of it must come back equal after our own writer.

#include <cstdint>
#include <cstdlib>
#include <set>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/gguf.h"
#include "assay/checkpoint/gguf_header.h"
#include "assay/checkpoint/gguf_layout.h"
#include "assay/formats/ggml_type.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckMetadata(const assay::GgufMetadata& metadata) {
  std::set<std::string_view> keys;
  for (const auto& [key, value] : metadata.entries()) {
    Require(!key.empty() && keys.insert(key).second);
    Require(!assay::FirstInvalidUtf8(value.ToText()));
    if (value.element() == assay::GgufType::kString) {
      Require(value.Strings().size() == value.count());
    } else if (value.count() > 0) {
      Require(!value.NumberText(value.count() - 1).empty());
    }
  }
}

void CheckCopy(const assay::GgufHeader& header) {
  std::vector<assay::TensorSpec> specs;
  for (const assay::GgufTensorInfo& info : header.tensors) {
    if (info.num_bytes > 4096) return;  // the copy's data is allocated
    specs.push_back(assay::StoredGgmlTensor(info.name, *info.type, info.shape));
  }
  if (header.alignment > 4096 || specs.size() > 64) return;
  const assay::GgufLayout layout = assay::LayOutGguf(specs, header.metadata, "copy.gguf");
  std::string copy = layout.head;
  copy.resize(static_cast<size_t>(layout.num_file_bytes));
  const assay::GgufHeader again = assay::ReadGgufHeader(assay::AsBytes(copy), "copy.gguf");
  Require(again.metadata == header.metadata && again.alignment == header.alignment);
  Require(again.tensors.size() == header.tensors.size());
  for (size_t i = 0; i < again.tensors.size(); ++i) {
    Require(again.tensors[i].name == header.tensors[i].name);
    Require(again.tensors[i].type == header.tensors[i].type);
    Require(again.tensors[i].shape == header.tensors[i].shape);
    Require(again.tensors[i].offset == header.tensors[i].offset);
  }
}

void CheckTensors(const assay::GgufHeader& header, uint64_t num_file_bytes) {
  std::set<std::string_view> names;
  uint64_t end = 0;
  for (const assay::GgufTensorInfo& info : header.tensors) {
    Require(names.insert(info.name).second && info.name.size() <= assay::kMaxGgufNameBytes);
    Require(info.offset >= end && info.offset - end < header.alignment);
    Require(info.offset % header.alignment == 0);
    end = info.offset + info.num_bytes;
    Require(header.data_offset + end <= num_file_bytes);
    const assay::StoredTensor stored = assay::StoredGgmlTensor(info.name, *info.type, info.shape);
    Require(stored.shape.CheckedNumBytes(stored.dtype) == static_cast<int64_t>(info.num_bytes));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const assay::GgufHeader header = assay::ReadGgufHeader(assay::AsBytes(input), "fuzz.gguf");
    CheckMetadata(header.metadata);
    CheckTensors(header, size);
    CheckCopy(header);
  } catch (const assay::Error& error) {
    Require(error.kind() == assay::ErrorKind::kInput);
    Require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}

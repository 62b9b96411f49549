#include "assay/checkpoint/safetensors_layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/safetensors_header.h"
#include "assay/formats/ggml_type.h"

namespace assay {
namespace {

// Only what JSON requires is escaped; the rest stays UTF-8, as in the reference writer.
std::string JsonString(const std::string& text, std::string_view path) {
  if (FirstInvalidUtf8(text)) ThrowInput("{}: {} is not UTF-8", path, Quoted(text));
  return nlohmann::json(text).dump();
}

int64_t NumBytes(const TensorSpec& tensor, std::string_view path) {
  if (tensor.block_type != nullptr) {
    ThrowInput("{}: tensor {}: blocks of {} stand in GGUF files, not in safetensors", path,
               Quoted(tensor.name), tensor.block_type->name);
  }
  const auto num_bytes = tensor.shape.CheckedNumBytes(tensor.dtype);
  if (!num_bytes) {
    ThrowInput("{}: tensor {}: {} {} does not fill whole bytes, or overflows", path,
               Quoted(tensor.name), NameOf(tensor.dtype), tensor.shape.ToString());
  }
  return *num_bytes;
}

std::vector<size_t> FileOrder(const std::vector<TensorSpec>& tensors, TensorOrder order) {
  std::vector<size_t> indices(tensors.size());
  std::iota(indices.begin(), indices.end(), size_t{0});
  if (order == TensorOrder::kReference) {
    std::sort(indices.begin(), indices.end(), [&](size_t a, size_t b) {
      // DType lists them in the reference's order.
      if (tensors[a].dtype != tensors[b].dtype) return tensors[a].dtype > tensors[b].dtype;
      return tensors[a].name < tensors[b].name;
    });
  }
  return indices;
}

void RequireUniqueNames(const std::vector<TensorSpec>& tensors, std::string_view path) {
  std::set<std::string_view> names = {"__metadata__"};
  for (const TensorSpec& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      ThrowInput("{}: tensor name {} is reserved, or given twice", path, Quoted(tensor.name));
    }
  }
}

std::string LittleEndian(uint64_t value) {
  std::string bytes(8, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(value & 0xFF);
    value >>= 8;
  }
  return bytes;
}

}  // namespace

SafetensorsLayout LayOutSafetensors(const std::vector<TensorSpec>& tensors,
                                    const std::map<std::string, std::string>& metadata,
                                    const SafetensorsStyle& style, std::string_view path) {
  const int64_t alignment = style.data_alignment;
  if (alignment < 8 || (alignment & (alignment - 1)) != 0) {
    ThrowInternal("{}: data alignment {} is not a power of two from 8", path, alignment);
  }
  RequireUniqueNames(tensors, path);

  std::string header = "{";
  const auto separate = [&header] {
    if (header.size() > 1) header += ',';
  };
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (header.back() != '{') header += ',';
      header += JsonString(key, path) + ":" + JsonString(value, path);
    }
    header += '}';
  }
  SafetensorsLayout layout;
  layout.offsets.resize(tensors.size());
  int64_t end = 0;
  for (const size_t index : FileOrder(tensors, style.order)) {
    const TensorSpec& tensor = tensors[index];
    const int64_t begin = end;
    const auto next = CheckedAdd(begin, NumBytes(tensor, path));
    if (!next) ThrowInput("{}: the tensors are larger than a file can be", path);
    end = *next;
    layout.offsets[index] = begin;
    separate();
    header += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          JsonString(tensor.name, path), NameOf(tensor.dtype),
                          fmt::join(tensor.shape.dims(), ","), begin, end);
  }
  header += '}';

  const auto unit = static_cast<size_t>(alignment);
  header.append((unit - (kSafetensorsLengthBytes + header.size()) % unit) % unit, ' ');
  if (header.size() > kMaxSafetensorsHeaderBytes) {
    ThrowInput("{}: a header of {} bytes is above the format's limit of {}; use more shards", path,
               Grouped(uint64_t{header.size()}), Grouped(kMaxSafetensorsHeaderBytes));
  }
  layout.head = LittleEndian(header.size()) + header;
  const auto data_offset = static_cast<int64_t>(layout.head.size());
  const auto num_file_bytes = CheckedAdd(data_offset, end);
  if (!num_file_bytes) ThrowInput("{}: the tensors are larger than a file can be", path);
  layout.num_file_bytes = *num_file_bytes;
  for (int64_t& offset : layout.offsets) offset += data_offset;
  return layout;
}

}  // namespace assay

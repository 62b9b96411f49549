#include "assay/checkpoint/gguf_layout.h"

#include <bit>
#include <cstring>
#include <set>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/formats/ggml_type.h"

namespace assay {
namespace {

template <typename T>
void Put(std::string& head, T value) {
  static_assert(std::endian::native == std::endian::little);
  const size_t at = head.size();
  head.resize(at + sizeof value);
  std::memcpy(head.data() + at, &value, sizeof value);
}

void PutString(std::string& head, std::string_view text) {
  Put<uint64_t>(head, text.size());
  head += text;
}

void PutEntry(std::string& head, const GgufMetadata::Entry& entry) {
  PutString(head, entry.key);
  Put(head, static_cast<int32_t>(entry.value.type()));
  if (entry.value.is_array()) {
    Put(head, static_cast<int32_t>(entry.value.element()));
    Put(head, entry.value.count());
  }
  head += AsText(entry.value.bytes());
}

// The reader's rules for one tensor. Gives its bytes.
int64_t PutInfo(std::string& head, const TensorSpec& tensor, int64_t offset,
                std::string_view path) {
  const std::string where = fmt::format("{}: tensor {}", path, Quoted(tensor.name));
  const GgmlType* type = GgmlTypeOf(tensor);
  if (type == nullptr) {
    ThrowInput("{}: {}: no GGUF file holds this element type", where, NameOf(tensor.dtype));
  }
  if (tensor.name.size() > kMaxGgufNameBytes || tensor.name.find('\0') != std::string::npos) {
    ThrowInput("{}: its name has {} bytes: GGUF holds names of up to {}, without NUL", where,
               tensor.name.size(), kMaxGgufNameBytes);
  }
  if (tensor.shape.rank() > kMaxGgufRank) {
    ThrowInput("{}: {} has {} axes: GGUF holds up to {}", where, tensor.shape.ToString(),
               tensor.shape.rank(), kMaxGgufRank);
  }
  const auto num_bytes = tensor.shape.CheckedNumBytes(tensor.dtype);
  if (!num_bytes) ThrowInput("{}: {} is too large", where, tensor.shape.ToString());
  const auto dims = tensor.shape.dims();
  PutString(head, tensor.name);
  Put(head, static_cast<uint32_t>(dims.size()));
  for (size_t axis = dims.size(); axis-- > 0;) {
    const bool row = axis + 1 == dims.size() && tensor.block_type != nullptr;
    if (row && dims[axis] % type->block_bytes != 0) {
      ThrowInternal("{}: rows of {} bytes are no blocks of {}", where, dims[axis], type->name);
    }
    Put(head, row ? dims[axis] / type->block_bytes * type->block_values : dims[axis]);
  }
  Put(head, type->id);
  Put(head, static_cast<uint64_t>(offset));
  return *num_bytes;
}

int64_t AlignmentOf(const GgufMetadata& metadata, std::string_view path) {
  const GgufValue* value = metadata.Find(kGgufAlignmentKey);
  if (value == nullptr) return static_cast<int64_t>(kDefaultGgufAlignment);
  const int64_t alignment = value->AsInteger().value_or(0);
  if (value->type() != GgufType::kU32 || !std::has_single_bit(static_cast<uint64_t>(alignment)) ||
      alignment > static_cast<int64_t>(kMaxGgufAlignment)) {
    ThrowInput("{}: {}: expected a power of two up to {} as u32, found {}", path, kGgufAlignmentKey,
               kMaxGgufAlignment, value->ToText());
  }
  return alignment;
}

}  // namespace

const GgmlType* GgmlTypeOf(const TensorSpec& tensor) noexcept {
  if (tensor.block_type != nullptr) return tensor.block_type;
  for (const GgmlType& type : GgmlTypes()) {
    if (type.dtype == tensor.dtype) return &type;
  }
  return nullptr;
}

GgufLayout LayOutGguf(const std::vector<TensorSpec>& tensors, const GgufMetadata& metadata,
                      std::string_view path) {
  const int64_t alignment = AlignmentOf(metadata, path);
  GgufLayout layout;
  std::string& head = layout.head;
  head = kGgufMagic;
  Put(head, kMaxGgufVersion);
  Put(head, static_cast<int64_t>(tensors.size()));
  Put(head, static_cast<int64_t>(metadata.entries().size()));
  for (const GgufMetadata::Entry& entry : metadata.entries()) PutEntry(head, entry);
  std::set<std::string_view> names;
  int64_t end = 0;
  for (const TensorSpec& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      ThrowInput("{}: tensor name {} is given twice", path, Quoted(tensor.name));
    }
    const int64_t num_bytes = PutInfo(head, tensor, end, path);
    layout.offsets.push_back(end);
    const auto padded = CheckedMul(CeilDiv(num_bytes, alignment), alignment);
    const auto next = padded ? CheckedAdd(end, *padded) : std::nullopt;
    if (!next) ThrowInput("{}: the tensors are larger than a file can be", path);
    end = *next;
  }
  if (!tensors.empty()) {
    const auto unit = static_cast<size_t>(alignment);
    head.resize(CeilDiv(head.size(), unit) * unit, '\0');
  }
  const auto num_file_bytes = CheckedAdd(static_cast<int64_t>(head.size()), end);
  if (!num_file_bytes) ThrowInput("{}: the tensors are larger than a file can be", path);
  layout.num_file_bytes = *num_file_bytes;
  for (int64_t& offset : layout.offsets) offset += static_cast<int64_t>(head.size());
  return layout;
}

}  // namespace assay

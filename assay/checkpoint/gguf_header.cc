#include "assay/checkpoint/gguf_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <optional>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/gguf_cursor.h"
#include "assay/formats/ggml_type.h"

namespace assay {
namespace {

constexpr std::string_view kMetadataItem = "metadata entry";
constexpr std::string_view kTensorItem = "tensor info";

// The least that an entry takes, which bounds their number by the size of the file.
constexpr uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;

struct Counts {
  uint64_t tensors = 0;
  uint64_t metadata = 0;
};

void ReadVersion(GgufCursor& cursor, GgufHeader& header) {
  const std::string_view magic = AsText(cursor.ReadBytes(kGgufMagic.size(), "magic"));
  if (magic != kGgufMagic) {
    cursor.Refuse(0, "wrong magic: expected {}, found {}", Quoted(kGgufMagic), Quoted(magic));
  }
  const uint64_t at = cursor.position();
  header.version = cursor.Read<uint32_t>("version");
  if (header.version != 0 && (header.version & 0xFFFF) == 0) {
    cursor.Refuse(at, "version 0x{:08X}: a big-endian file; only little-endian is read",
                  header.version);
  }
  if (header.version < kMinGgufVersion || header.version > kMaxGgufVersion) {
    cursor.Refuse(at, "version: expected {} or {}, found {}", kMinGgufVersion, kMaxGgufVersion,
                  header.version);
  }
}

void CheckCount(const GgufCursor& cursor, uint64_t at, std::string_view field, int64_t count,
                uint64_t min_bytes) {
  if (count < 0) cursor.Refuse(at, "{}: expected 0 or more, found {}", field, count);
  const uint64_t most = cursor.num_left() / min_bytes;
  if (static_cast<uint64_t>(count) > most) {
    cursor.Refuse(at,
                  "{}: {}, but the {} bytes that follow hold at most {}; is the file truncated?",
                  field, Grouped(count), Grouped(cursor.num_left()), Grouped(most));
  }
}

Counts ReadCounts(GgufCursor& cursor) {
  const uint64_t at = cursor.position();
  const auto tensors = cursor.Read<int64_t>("tensor count");
  const auto metadata = cursor.Read<int64_t>("metadata count");
  CheckCount(cursor, at, "tensor count", tensors, kMinTensorBytes);
  CheckCount(cursor, at + sizeof tensors, "metadata count", metadata, kMinMetadataBytes);
  return {static_cast<uint64_t>(tensors), static_cast<uint64_t>(metadata)};
}

GgufType ReadType(GgufCursor& cursor, std::string_view field) {
  const uint64_t at = cursor.position();
  const auto number = cursor.Read<int32_t>(field);
  const auto type = ParseGgufType(number);
  if (!type) cursor.Refuse(at, "{}: expected a type from 0 to 12, found {}", field, number);
  return *type;
}

GgufValue ReadArray(GgufCursor& cursor, const std::shared_ptr<const void>& owner) {
  constexpr uint64_t kMaxCount = uint64_t{1} << 30;
  const uint64_t type_at = cursor.position();
  const GgufType element = ReadType(cursor, "element type of an array");
  if (element == GgufType::kArray) {
    cursor.Refuse(type_at, "an array of arrays: nested arrays are not read, nor by ggml");
  }
  const uint64_t at = cursor.position();
  const auto count = cursor.Read<uint64_t>("length of an array");
  if (count > kMaxCount) {
    cursor.Refuse(at, "array of {} {}: above the limit of {}", Grouped(count), NameOf(element),
                  Grouped(kMaxCount));
  }
  const bool strings = element == GgufType::kString;
  const uint64_t num_bytes = count * (strings ? sizeof(uint64_t) : NumBytesOf(element));
  if (num_bytes > cursor.num_left()) {
    cursor.Refuse(at, "truncated: an array of {} {} takes {}{} bytes, but {} follow",
                  Grouped(count), NameOf(element), strings ? "at least " : "", Grouped(num_bytes),
                  Grouped(cursor.num_left()));
  }
  if (!strings) {
    return {GgufType::kArray, element, count, cursor.ReadBytes(num_bytes, "array"), owner};
  }
  GgufCursor start = cursor;
  const uint64_t begin = cursor.position();
  for (uint64_t i = 0; i < count; ++i) cursor.ReadString("string of an array");
  return {GgufType::kArray, element, count, start.ReadBytes(cursor.position() - begin, "array"),
          owner};
}

GgufValue ReadValue(GgufCursor& cursor, const std::shared_ptr<const void>& owner) {
  const GgufType type = ReadType(cursor, "value type");
  if (type == GgufType::kArray) return ReadArray(cursor, owner);
  if (type == GgufType::kString) {
    GgufCursor start = cursor;
    const std::string_view text = cursor.ReadString("string");
    return {type, type, 1, start.ReadBytes(sizeof(uint64_t) + text.size(), "string"), owner};
  }
  return {type, type, 1, cursor.ReadBytes(NumBytesOf(type), NameOf(type)), owner};
}

void ReadAlignment(const GgufCursor& cursor, uint64_t at, const GgufValue& value,
                   GgufHeader& header) {
  if (value.type() != GgufType::kU32) {
    cursor.Refuse(at, "alignment: expected a u32, found {}", NameOf(value.type()));
  }
  header.alignment = static_cast<uint64_t>(value.AsInteger().value_or(0));
  if (!std::has_single_bit(header.alignment)) {
    cursor.Refuse(at, "alignment: expected a power of two, found {}", header.alignment);
  }
  if (header.alignment > kMaxGgufAlignment) {
    cursor.Refuse(at, "alignment: {} is above the limit of {}", Grouped(header.alignment),
                  Grouped(kMaxGgufAlignment));
  }
}

// The first entry whose name an earlier one has. Sorted, not hashed: the time depends on how many
// names there are, not on which.
template <typename NameAt>
std::optional<std::pair<size_t, size_t>> FindTwin(size_t count, const NameAt& name_at) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int compared = name_at(a).compare(name_at(b));
    return compared != 0 ? compared < 0 : a < b;
  });
  std::optional<std::pair<size_t, size_t>> twin;
  for (size_t i = 1; i < count; ++i) {
    if (name_at(order[i - 1]) != name_at(order[i])) continue;
    if (!twin || order[i] < twin->second) twin = {order[i - 1], order[i]};
  }
  return twin;
}

void ReadMetadata(GgufCursor& cursor, uint64_t count, const std::shared_ptr<const void>& owner,
                  GgufHeader& header) {
  for (uint64_t i = 0; i < count; ++i) {
    cursor.Enter(kMetadataItem, i);
    const uint64_t at = cursor.position();
    const std::string_view key = cursor.ReadString("key");
    if (key.empty()) cursor.Refuse(at, "its key is empty");
    cursor.Name(key);
    const uint64_t value_at = cursor.position();
    GgufValue value = ReadValue(cursor, owner);
    if (key == kGgufAlignmentKey) ReadAlignment(cursor, value_at, value, header);
    header.metadata.Append(key, std::move(value));
  }
  const auto& entries = header.metadata.entries();
  const auto twin =
      FindTwin(entries.size(), [&](size_t i) { return std::string_view(entries[i].key); });
  if (!twin) return;
  cursor.Enter(kMetadataItem, twin->second);
  cursor.Name(entries[twin->second].key);
  cursor.Refuse(cursor.position(), "duplicate key: entry {} has it too", twin->first + 1);
}

// The file's dimensions, fastest first. A product is checked from front to back, even before a
// dimension of 0, as upstream does.
std::vector<int64_t> ReadDims(GgufCursor& cursor) {
  const uint64_t count_at = cursor.position();
  const auto rank = cursor.Read<uint32_t>("number of dimensions");
  if (rank > kMaxGgufRank) {
    cursor.Refuse(count_at, "expected at most {} dimensions, found {}", kMaxGgufRank, rank);
  }
  std::vector<int64_t> dims;
  int64_t product = 1;
  for (size_t axis = 0; axis < rank; ++axis) {
    const uint64_t at = cursor.position();
    const auto dim = cursor.Read<int64_t>("dimension");
    if (dim < 0) cursor.Refuse(at, "dimension {}: expected 0 or more, found {}", axis, dim);
    if (axis > 0 && dim > 0 && INT64_MAX / dim <= product) {
      cursor.Refuse(at, "overflow: {} × {} values do not fit 64 bits", product, dim);
    }
    product *= dim;
    dims.push_back(dim);
  }
  return dims;
}

GgufTensorInfo ReadTensorInfo(GgufCursor& cursor) {
  GgufTensorInfo info;
  const uint64_t name_at = cursor.position();
  const std::string_view name = cursor.ReadString("name");
  cursor.Name(name);
  if (name.size() > kMaxGgufNameBytes) {
    cursor.Refuse(name_at, "a name of {} bytes: expected at most {}", Grouped(name.size()),
                  kMaxGgufNameBytes);
  }
  if (name.find('\0') != std::string_view::npos) {
    cursor.Refuse(name_at, "a NUL in the name: readers would cut it there");
  }
  info.name = name;
  const uint64_t dims_at = cursor.position();
  std::vector<int64_t> dims = ReadDims(cursor);
  const uint64_t type_at = cursor.position();
  const auto id = cursor.Read<int32_t>("type");
  info.type = FindGgmlType(id);
  if (info.type == nullptr) {
    cursor.Refuse(type_at, "type {}: no tensor type has this number, or no longer", id);
  }
  const int64_t row = dims.empty() ? 1 : dims.front();
  if (row % info.type->block_values != 0) {
    cursor.Refuse(dims_at, "a row of {} values does not fill blocks of {} ({})", Grouped(row),
                  info.type->block_values, info.type->name);
  }
  std::reverse(dims.begin(), dims.end());
  info.shape = Shape(std::move(dims));
  // Also in the order of this shape, where a zero may come after what overflows.
  const auto values = info.shape.CheckedNumElements();
  const auto num_bytes =
      values ? CheckedMul(*values / info.type->block_values, info.type->block_bytes) : std::nullopt;
  if (!num_bytes) {
    cursor.Refuse(dims_at, "overflow: {} values {} take more bytes than fit 64 bits",
                  info.type->name, info.shape.ToString());
  }
  info.num_bytes = static_cast<uint64_t>(*num_bytes);
  info.offset = cursor.Read<uint64_t>("offset");
  return info;
}

void ReadTensorInfos(GgufCursor& cursor, uint64_t count, GgufHeader& header) {
  uint64_t end = 0;  // of the tensors so far, padded
  for (uint64_t i = 0; i < count; ++i) {
    cursor.Enter(kTensorItem, i);
    // A wrong number of entries shows here first.
    if (i == 0) cursor.Follows(kMetadataItem, header.metadata.entries().size());
    GgufTensorInfo info = ReadTensorInfo(cursor);
    if (info.offset != end) {
      cursor.Refuse(cursor.position() - sizeof info.offset,
                    "offset: expected {}, where the tensor before it ends, found {}", Grouped(end),
                    Grouped(info.offset));
    }
    // At most 2^63 + 2^20: the padding cannot wrap.
    const uint64_t padded = CeilDiv(info.num_bytes, header.alignment) * header.alignment;
    const auto next = CheckedAdd(end, padded);
    if (!next || *next > static_cast<uint64_t>(INT64_MAX)) {
      cursor.Refuse(cursor.position(),
                    "overflow: the tensors up to here take more than 2^63 bytes");
    }
    end = *next;
    header.tensors.push_back(std::move(info));
  }
  const auto twin = FindTwin(header.tensors.size(),
                             [&](size_t i) { return std::string_view(header.tensors[i].name); });
  if (!twin) return;
  cursor.Enter(kTensorItem, twin->second);
  cursor.Name(header.tensors[twin->second].name);
  cursor.Refuse(cursor.position(), "duplicate name: tensor {} has it too", twin->first + 1);
}

void CheckDataSection(GgufCursor& cursor, uint64_t num_file_bytes, GgufHeader& header) {
  header.data_offset = cursor.position();
  if (header.tensors.empty()) return;
  header.data_offset = CeilDiv(cursor.position(), header.alignment) * header.alignment;
  if (header.data_offset > num_file_bytes) {
    cursor.Refuse(cursor.position(),
                  "truncated: the data section starts at byte {}, but the file has {}",
                  Grouped(header.data_offset), Grouped(num_file_bytes));
  }
  const uint64_t room = num_file_bytes - header.data_offset;
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const GgufTensorInfo& info = header.tensors[i];
    if (info.num_bytes <= room && info.offset <= room - info.num_bytes) continue;
    cursor.Enter(kTensorItem, i);
    cursor.Name(info.name);
    cursor.Refuse(header.data_offset + info.offset,
                  "truncated: expected {} bytes of {} {}, but the file has {} bytes in all; is the "
                  "download complete?",
                  Grouped(info.num_bytes), info.type->name, info.shape.ToString(),
                  Grouped(num_file_bytes));
  }
}

}  // namespace

GgufHeader ReadGgufHeader(std::span<const std::byte> file, std::string_view path,
                          std::shared_ptr<const void> owner) {
  GgufCursor cursor(file, path);
  GgufHeader header;
  ReadVersion(cursor, header);
  const Counts counts = ReadCounts(cursor);
  ReadMetadata(cursor, counts.metadata, owner, header);
  ReadTensorInfos(cursor, counts.tensors, header);
  CheckDataSection(cursor, file.size(), header);
  return header;
}

}  // namespace assay

// The rules of a safetensors file around its JSON: lengths before it, ranges after it.

#include "assay/checkpoint/safetensors_header.h"

#include <algorithm>
#include <cstring>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/text.h"

namespace assay {
namespace {

uint64_t ReadLength(std::span<const std::byte> file) {
  uint64_t length = 0;
  for (size_t i = kSafetensorsLengthBytes; i-- > 0;)
    length = length << 8 | std::to_integer<uint64_t>(file[i]);
  return length;
}

// The header text, padding cut off.
std::string_view HeaderText(std::span<const std::byte> file, std::string_view path) {
  const uint64_t num_file_bytes = file.size();
  if (num_file_bytes < kSafetensorsLengthBytes) {
    ThrowInput("{}: too short: expected at least 8 bytes, found {}", path, num_file_bytes);
  }
  const uint64_t length = ReadLength(file);
  if (length == 0) ThrowInput("{}: header: its length is 0, expected at least 2 (\"{{}}\")", path);
  if (length > kMaxSafetensorsHeaderBytes) {
    ThrowInput("{}: header: its length of {} bytes is above the limit of {}; is this safetensors?",
               path, Grouped(length), Grouped(kMaxSafetensorsHeaderBytes));
  }
  if (length > num_file_bytes - kSafetensorsLengthBytes) {
    ThrowInput("{}: header: truncated: expected {} bytes, found {}; is the download complete?",
               path, Grouped(length), Grouped(num_file_bytes - kSafetensorsLengthBytes));
  }
  std::string_view text =
      AsText(file.subspan(kSafetensorsLengthBytes, static_cast<size_t>(length)));
  if (text.front() != '{') {
    ThrowInput("{}: header: expected it to start with '{{' (0x7B), found 0x{:02X}", path,
               static_cast<unsigned char>(text.front()));
  }
  if (const auto invalid = FirstInvalidUtf8(text)) {
    ThrowInput("{}: header: not valid UTF-8 at byte {}", path,
               Grouped(uint64_t{kSafetensorsLengthBytes + *invalid}));
  }
  // The JSON reader would take a NUL for the end of its input.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    ThrowInput("{}: header: NUL at byte {}; padding must be spaces, and JSON holds none", path,
               Grouped(uint64_t{kSafetensorsLengthBytes + nul}));
  }
  text = text.substr(0, text.find_last_not_of(' ') + 1);
  if (text.back() == '\n' || text.back() == '\r' || text.back() == '\t') {
    ThrowInput("{}: header: trailing 0x{:02X} after the JSON object; padding must be spaces", path,
               static_cast<unsigned char>(text.back()));
  }
  return text;
}

void CheckEntry(const SafetensorsEntry& entry, int64_t data_offset, int64_t num_data_bytes,
                std::string_view path) {
  const std::string where = fmt::format("{}: tensor {}", path, Quoted(entry.name));
  const std::string type = fmt::format("{} {}", NameOf(entry.dtype), entry.shape.ToString());
  if (entry.begin > entry.end) {
    ThrowInput("{}: data_offsets: begin {} is after end {}", where, entry.begin, entry.end);
  }
  const auto elements = entry.shape.CheckedNumElements();
  if (!elements) ThrowInput("{}: {}: the number of elements overflows 64 bits", where, type);
  const auto bits = CheckedMul(*elements, int64_t{BitsOf(entry.dtype)});
  if (!bits) ThrowInput("{}: {}: the size in bits overflows 64 bits", where, type);
  if (*bits % 8 != 0) {
    ThrowInput("{}: {}: {} bits are not a whole number of bytes", where, type, Grouped(*bits));
  }
  if (entry.end - entry.begin != *bits / 8) {
    ThrowInput("{}: {} takes {} bytes, but its data_offsets [{}, {}] cover {}", where, type,
               Grouped(*bits / 8), entry.begin, entry.end, Grouped(entry.end - entry.begin));
  }
  if (entry.end > num_data_bytes) {
    ThrowInput(
        "{}: data_offsets end past the file: at byte {} + {}, but the file has {} bytes; is the "
        "download complete?",
        where, Grouped(data_offset), Grouped(entry.end), Grouped(data_offset + num_data_bytes));
  }
}

}  // namespace

void CheckSafetensorsRanges(const SafetensorsHeader& header, int64_t num_data_bytes,
                            std::string_view path) {
  std::vector<const SafetensorsEntry*> by_offset;
  by_offset.reserve(header.entries.size());
  for (const SafetensorsEntry& entry : header.entries) {
    CheckEntry(entry, header.data_offset, num_data_bytes, path);
    by_offset.push_back(&entry);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const auto* a, const auto* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  int64_t previous_end = 0;
  const SafetensorsEntry* previous = nullptr;
  for (const SafetensorsEntry* entry : by_offset) {
    if (entry->begin > previous_end) {
      ThrowInput("{}: tensor {}: a hole of {} bytes before data_offsets begin {}", path,
                 Quoted(entry->name), Grouped(entry->begin - previous_end), entry->begin);
    }
    if (entry->begin < previous_end) {
      ThrowInput("{}: tensor {}: data_offsets [{}, {}] overlap tensor {}, which ends at {}", path,
                 Quoted(entry->name), entry->begin, entry->end, Quoted(previous->name),
                 previous_end);
    }
    previous_end = entry->end;
    previous = entry;
  }
  if (previous_end != num_data_bytes) {
    ThrowInput("{}: {} trailing bytes after the last tensor: expected a file of {} bytes, found {}",
               path, Grouped(num_data_bytes - previous_end),
               Grouped(header.data_offset + previous_end),
               Grouped(header.data_offset + num_data_bytes));
  }
}

SafetensorsHeader ReadSafetensorsHeader(std::span<const std::byte> file, std::string_view path) {
  const std::string_view text = HeaderText(file, path);
  SafetensorsHeader header = ParseSafetensorsJson(text, path);
  header.data_offset = static_cast<int64_t>(kSafetensorsLengthBytes + ReadLength(file));
  CheckSafetensorsRanges(header, static_cast<int64_t>(file.size()) - header.data_offset, path);
  return header;
}

}  // namespace assay

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/tensor/dtype.h"
#include "assay/tensor/shape.h"

namespace assay {

/// One tensor as the header states it; offsets count from the start of the data buffer.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  int64_t begin = 0;
  int64_t end = 0;
};

/// What stands before the data buffer of a safetensors file.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< sorted by name
  std::map<std::string, std::string> metadata;
  int64_t data_offset = 0;  ///< of the data buffer in the file
};

/// The longest header a reader must accept, in bytes.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;
/// Of the number before the header that tells its length.
inline constexpr size_t kSafetensorsLengthBytes = 8;

/// Reads the header of a file whose content is `file`, and checks every rule of the format against
/// the file's size. No byte of the data buffer is read.
/// Cost:   one pass over the header and a sort; memory proportional to the header.
/// Errors: input, one message per rule, starting with `path`.
/// Source: docs/formats/safetensors.md.
SafetensorsHeader ReadSafetensorsHeader(std::span<const std::byte> file, std::string_view path);

/// The JSON of the header alone: syntax, fields, types, duplicates.
/// Requires: text starts with '{'. Errors: input.
SafetensorsHeader ParseSafetensorsJson(std::string_view text, std::string_view path);

/// The rules that tie entries to each other and to the data buffer: sizes, whole bytes, no hole, no
/// overlap, nothing trailing. Errors: input.
void CheckSafetensorsRanges(const SafetensorsHeader& header, int64_t num_data_bytes,
                            std::string_view path);

}  // namespace assay

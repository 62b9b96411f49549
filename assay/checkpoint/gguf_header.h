#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/checkpoint/gguf_metadata.h"
#include "assay/tensor/shape.h"

namespace assay {

struct GgmlType;

/// One tensor as the file states it.
struct GgufTensorInfo {
  std::string name;
  const GgmlType* type = nullptr;
  Shape shape;  ///< of the values, slowest axis first: the file's dimensions from back to front
  uint64_t offset = 0;  ///< from the start of the data section
  uint64_t num_bytes = 0;
};

/// What stands before the data section of a GGUF file.
struct GgufHeader {
  uint32_t version = 3;
  uint64_t alignment = 32;
  GgufMetadata metadata;
  std::vector<GgufTensorInfo> tensors;  ///< in the order of the file, names unique
  /// Of the data section in the file; where the head ends when there are no tensors.
  uint64_t data_offset = 0;
};

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
inline constexpr uint64_t kDefaultGgufAlignment = 32;
/// Ours: upstream has no upper bound, and files use 32.
inline constexpr uint64_t kMaxGgufAlignment = uint64_t{1} << 20;
inline constexpr uint32_t kMinGgufVersion = 2;
inline constexpr uint32_t kMaxGgufVersion = 3;
inline constexpr size_t kMaxGgufRank = 4;
/// Of a tensor's name, in bytes.
inline constexpr size_t kMaxGgufNameBytes = 63;

/// Reads the head of a file whose content is `file`, and checks every rule of the format against
/// its size. No byte of the data section is read. Metadata values point into `file`, which `owner`
/// keeps alive; when it is null, the caller does.
/// Cost:   one pass over the head and two sorts; memory proportional to the number of entries,
///         which the file's size bounds.
/// Errors: input, one message per rule: file, byte, entry, expected, found.
/// Source: docs/formats/gguf.md.
GgufHeader ReadGgufHeader(std::span<const std::byte> file, std::string_view path,
                          std::shared_ptr<const void> owner = nullptr);

}  // namespace assay

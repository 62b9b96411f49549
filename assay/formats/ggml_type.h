#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "assay/tensor/dtype.h"

namespace assay {

/// A tensor type of GGUF files: a plain element type, or blocks of bytes that hold several values.
/// Source: the type table of docs/formats/gguf.md.
struct GgmlType {
  int32_t id = 0;                ///< as a tensor info stores it
  std::string_view name;         ///< "Q4_K"
  int64_t block_values = 1;      ///< values of a row that one block holds
  int64_t block_bytes = 0;       ///< bytes of one block
  std::optional<DType> dtype{};  ///< of plain types; nothing for blocks
};

/// Every type that a file may hold, by id.
std::span<const GgmlType> GgmlTypes();

/// Null for ids that were never given or were taken back.
const GgmlType* FindGgmlType(int32_t id) noexcept;

/// By name, case-sensitive. Null when there is none.
const GgmlType* FindGgmlType(std::string_view name) noexcept;

}  // namespace assay

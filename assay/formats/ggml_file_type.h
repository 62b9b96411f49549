#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace assay {

struct GgmlType;

/// What "general.file_type" of a GGUF file says: which mixture of types its writer aimed at.
/// Readers show it; the tensors say what they are by themselves. Source: llama_ftype of llama.cpp's
/// include/llama.h.
struct GgmlFileType {
  int32_t id = 0;
  std::string_view name;  ///< "Q4_K_M"
  std::string_view type;  ///< of most weights: "Q4_K"
};

/// Null for numbers that mean nothing (any more).
const GgmlFileType* FindGgmlFileType(int64_t id) noexcept;

/// The plainest mixture for weights that are all of `type`: Q4_K gives Q4_K_S. Null when no file
/// type is of it.
const GgmlFileType* FileTypeOf(const GgmlType& type) noexcept;

/// "general.quantization_version" of the blocks that Assay writes.
inline constexpr uint32_t kGgmlQuantizationVersion = 2;

}  // namespace assay

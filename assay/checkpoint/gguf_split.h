#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/checkpoint/gguf.h"

namespace assay {

/// What the name of a part says: "model-00002-of-00005.gguf".
struct GgufPartName {
  std::string prefix;  ///< with its folder, up to the '-' before the numbers
  int64_t number = 0;  ///< from 1
  int64_t count = 0;

  /// Nothing for other names, and for numbers that are not 1 ≤ number ≤ count.
  static std::optional<GgufPartName> Parse(std::string_view path);
  /// Path of part `number`, in the same folder.
  std::string PathOf(int64_t number) const;
};

/// One file of a split model, for its rules.
struct GgufPart {
  std::string_view path;  ///< for messages
  const GgufHeader* header = nullptr;
};

/// The rules that tie the parts of a model, given in order: numbers, counts, tensor names.
/// Errors: input.
void CheckGgufParts(std::span<const GgufPart> parts);

/// The files of a model of which `path` is the only file, or any part: in order, the first with the
/// metadata. A part alone is no model, so all are opened, and the rules that tie them are checked.
/// Errors: input.
std::vector<std::shared_ptr<const GgufFile>> OpenGgufModel(const std::string& path);

/// One path for every model among the GGUF files `names` of a folder: parts of one set count once,
/// by the first of them there. Sorted.
std::vector<std::string> GgufModelsAmong(const std::vector<std::string>& names);

}  // namespace assay

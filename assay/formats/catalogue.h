#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/formats/format.h"

namespace assay {

class CheckpointSource;
struct Recognition;

/// What the rest of Assay knows of a family; each family's file defines one, catalogue.cc lists it.
struct FormatFamily {
  std::string_view name;     ///< "affine"; docs/formats/<name>.md explains it
  std::string_view grammar;  ///< "affine{2,3,4,5,6,8}g{32,64,128}"
  std::string_view summary;  ///< one line
  std::string_view details;  ///< what `assay formats NAME` prints: equation, layout, who writes it
  /// Null when `name` is not one of the family's.
  FormatPtr (*parse)(std::string_view name);
  /// Canonical names, in catalogue order.
  std::vector<std::string> (*names)();
  /// Adds the weights of this family that the checkpoint holds; null for formats without files.
  void (*recognise)(const CheckpointSource& source, Recognition& found);
};

/// What all families find. A tensor of ggml blocks is ggml's alone, whatever its name suggests.
/// Errors: input, naming the tensor, when two weights claim it.
Recognition RecogniseAll(const CheckpointSource& source);

/// All families, in the order of help and docs.
std::span<const FormatFamily* const> FormatCatalogue();

/// The family a format name belongs to. Errors: usage, as Format::Parse.
const FormatFamily& FamilyOf(std::string_view format_name);

}  // namespace assay

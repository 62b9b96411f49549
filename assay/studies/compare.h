#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "assay/base/progress.h"
#include "assay/studies/border.h"
#include "assay/studies/compare_gates.h"
#include "assay/studies/tensor_difference.h"

namespace assay {

/// "model.*=*": names of A that fit the left side are looked up in B under the right one, whose
/// wildcards take, in order, what those of the left stood for.
struct CompareRename {
  std::string pattern;
  std::string replacement;

  /// Errors: usage without "=", or when the right side has more wildcards than the left.
  static CompareRename Parse(const std::string& text);
  /// The name in B; nothing when `name` does not fit.
  std::optional<std::string> Apply(const std::string& name) const;
};

struct CompareOptions {
  std::string a;  ///< file or folder that is judged
  std::string b;  ///< the reference
  /// Names in A (after renaming, in B) that count; empty: all.
  std::vector<std::string> tensors;
  std::vector<CompareRename> renames;  ///< the first that fits counts
  CompareGates gates;
  bool allow_missing = false;  ///< tensors of one side only do not fail
  bool allow_dtype = false;    ///< different element types are compared by value
  bool allow_shape = false;    ///< tensors of different shapes do not fail; they are not compared
  /// Planes of encoded weights as the files hold them, instead of the weights decoded.
  bool stored = false;
  int num_worst_rows = 3;
  ProgressSink progress;  ///< told before each tensor and at the end, in bytes of A
};

/// One name of either side.
struct ComparedTensor {
  std::string name;         ///< in A, of several as BorderPair shows them; in B when only B has it
  std::string reference;    ///< in B, when that is another one
  std::string stored_as_a;  ///< "affine4g64", "BF16"; empty when A lacks it
  std::string stored_as_b;
  bool passed = true;
  std::vector<std::string> reasons;  ///< why it failed, or was not compared
  /// Across the border to GGUF: what was undone first, one sentence each.
  std::vector<std::string> conversions;
  /// Border::Unexpected: it fails, and the figures are those without that transformation.
  std::string fits_only;
  std::optional<TensorDifference> difference;
};

struct CompareReport {
  CompareOptions options;
  std::vector<ComparedTensor> tensors;  ///< by name in A, then those that only B has
  std::optional<BorderSummary> border;  ///< when names of a GGUF file were mapped
  int64_t num_compared = 0;
  int64_t num_passed = 0;
  int64_t num_failed = 0;
  std::vector<std::string> notes;
  double seconds = 0;
};

/// Compares two tensor files or folders name by name. Encoded weights are decoded, unless
/// options.stored. Between a folder and a GGUF file, names that no rename fits are those of Border,
/// unless options.stored, and what llama.cpp's converter did is undone.
/// Errors: usage for gates that a tensor of zeros would pass, and for renames that collide; input
/// for unreadable files, and when no tensor is left to compare.
/// Cost: one pass over both sides; memory of some rows.
CompareReport RunCompare(const CompareOptions& options);

}  // namespace assay

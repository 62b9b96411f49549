#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "assay/base/progress.h"
#include "assay/studies/kv_capture.h"
#include "assay/studies/kv_record.h"

namespace assay {

/// "kv-*=ds41-window-fp8,nvfp4": captures whose name fits go through these formats.
struct KvMapping {
  std::string pattern;
  std::vector<std::string> formats;  ///< canonical names

  /// Splits at the last "=". Errors: usage without "=" or a pattern, and for unknown formats.
  static KvMapping Parse(const std::string& text);
};

/// What to ask: what do cache formats do to captured keys and values?
struct KvOptions {
  std::vector<std::string> captures;  ///< safetensors or npy files, or folders of them
  /// Every mapping that fits a name adds its formats; none at all: by the names (DefaultKvFormat).
  std::vector<KvMapping> map;
  std::vector<KvRounding> roundings = {KvRounding::kNone, KvRounding::kBF16};
  int64_t synthetic_tokens = 0;  ///< > 0: adds N(0, 1) captures of the widths of the caches
  uint64_t seed = 42;
  ProgressSink progress;  ///< told before each record and at the end, in bytes of the captures
};

/// A format under one rounding, over all the captures that went through it.
struct KvTotal {
  std::string format;
  KvRounding rounding = KvRounding::kNone;
  int64_t num_captures = 0;
  int64_t num_not_finite = 0;  ///< captures without figures, left out of the rest
  int64_t num_values = 0;
  int64_t num_bytes = 0;
  double bits_per_value = 0;
  std::optional<double> relative_l2;      ///< √(Σd² / Σx²) over all captures
  std::optional<double> f16_relative_l2;  ///< of f16 on the same values
  std::vector<size_t> worst;              ///< indices of records, worst first, at most 5
};

/// A tensor that was not measured, or a format in which it was not.
struct KvSkipped {
  std::string capture;
  std::string name;
  std::string format;  ///< empty: whatever the format
  std::string reason;
};

struct KvReport {
  KvOptions options;
  std::vector<KvRecord> records;  ///< by capture, format, rounding
  std::vector<KvTotal> totals;    ///< by format, rounding, in the order they came up
  std::vector<KvSkipped> skipped;
  std::vector<std::string> notes;
  std::vector<int64_t> tokens;  ///< ids, when a capture file has a tensor "tokens"
  int64_t num_captures = 0;     ///< measured
  int64_t num_values = 0;       ///< in those
  double seconds = 0;
};

/// The cache format that a capture's name asks for: "idx" or "index", "comp" or "main", "window"
/// or "kv", looked for in this order; nothing for other names.
std::optional<std::string> DefaultKvFormat(const std::string& name);

/// Emulates formats on captures and compares with what went in, and with f16.
/// Memory: one capture, twice. The figures do not depend on threads or instruction set.
/// Errors: usage for mappings that fit no capture, names that ask for no format when there is no
/// mapping, and widths that a format cannot hold; input for unreadable files.
KvReport RunKv(const KvOptions& options);

}  // namespace assay

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "assay/base/progress.h"
#include "assay/formats/format.h"
#include "assay/tensor/shape.h"

namespace assay {

/// A format for the weights that fit a glob.
struct FormatChoice {
  std::string pattern;  ///< empty: the model's format, for all that no pattern takes
  FormatPtr format;

  /// "affine4g64", or "*.down_proj.weight=affine6g64". Errors: usage.
  static FormatChoice Parse(const std::string& text);
};

inline constexpr int64_t kDefaultShardBytes = 5'000'000'000;

struct QuantizeOptions {
  std::string input;   ///< a file or a model folder
  std::string output;  ///< likewise; a GGUF file when its name ends in .gguf
  /// Exactly one without a pattern; of the others the first that fits counts.
  std::vector<FormatChoice> formats;
  /// Weights to encode; empty: those that the format's upstream looks for.
  std::vector<std::string> tensors;
  /// A quantised model whose signs are taken instead of drawn (TurboQuant); empty: none.
  std::string signs_from;
  std::optional<int64_t> shard_bytes = {};  ///< default: kDefaultShardBytes, or the source's shards
  ProgressSink progress = {};               ///< in bytes of the input
};

struct DequantizeOptions {
  std::string input;
  std::string output;
  std::optional<DType> dtype = {};  ///< of decoded weights: bf16, f16 or f32; default: their own
  std::optional<int64_t> shard_bytes = {};
  ProgressSink progress = {};
};

/// What became of one weight or tensor.
struct ConvertedTensor {
  std::string name;  ///< in the plain model
  Shape shape;
  std::string from;  ///< "BF16", "affine4g64"
  std::string to;
  int64_t num_values = 0;
  int64_t bytes_before = 0;
  int64_t bytes_after = 0;
  bool encoded = false;      ///< `to` is a quantised format
  bool selected = false;     ///< the user's patterns (or the defaults) asked for it
  std::string kept_because;  ///< why a selected one was not encoded
};

struct ConvertReport {
  std::string input;
  std::string output;
  std::string format;  ///< the model's format, or the dtype asked for; "" for each weight's own
  std::vector<ConvertedTensor> tensors;  ///< in the order of the files
  int64_t num_files = 0;                 ///< files of tensors written
  std::vector<std::string> copied_files;
  std::vector<std::string> notes;
  double seconds = 0;
};

/// Encodes a model's weights and writes them as the format's upstream would; everything else is
/// kept. A source that is encoded already is decoded first. GGUF keeps its metadata, but for the
/// file type and the quantisation version.
/// Output: whole, or not at all; refused before the work when something stands there, when it is
///         the input, and when it cannot be written.
/// Cost:   one tensor, and its planes, in memory; formats whose sizes depend on the values read
///         them twice. All threads.
/// Errors: usage; input, naming file, tensor, row and column of a value that cannot be encoded.
ConvertReport Quantize(const QuantizeOptions& options);

/// Decodes every encoded weight of a model and writes plain tensors under plain names; the config
/// loses what said how to decode. Output, Cost as Quantize.
/// Errors: usage; input, also when nothing is encoded.
ConvertReport Dequantize(const DequantizeOptions& options);

}  // namespace assay

#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "assay/formats/format.h"

namespace assay {

struct GgmlType;

/// How most checkpoints call the weight of a module: its path and this.
inline constexpr std::string_view kWeightSuffix = ".weight";

/// "a.b.weight" → "a.b"; other names unchanged.
std::string ModuleOf(std::string_view weight_name);

/// A tensor as a checkpoint lists it.
struct StoredTensor {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  /// For a tensor of ggml blocks, whose dtype is then U8 and whose last axis counts the bytes of a
  /// row of blocks. Null for every other tensor.
  const GgmlType* block_type = nullptr;
};

/// What a recogniser may look at: the tensor list, tensor bytes on demand, and the configs.
class CheckpointSource {
 public:
  virtual ~CheckpointSource() = default;

  /// Sorted by name.
  virtual const std::vector<StoredTensor>& Tensors() const = 0;
  /// Null when there is none.
  virtual const StoredTensor* Find(std::string_view name) const = 0;
  /// The bytes, mapped. Errors: input.
  virtual Tensor Load(std::string_view name) const = 0;
  /// A JSON side file ("config.json", "turboquant_config.json", "hf_quant_config.json",
  /// "quantize_config.json"), or for a single file the same text out of its metadata. An object;
  /// null when absent. Errors: input when it is not valid JSON.
  virtual const nlohmann::json* Config(std::string_view file_name) const = 0;
  /// A key of config.json ("quantization", "quantization_config"); for a single file the JSON text
  /// its metadata holds under that key. Null when absent.
  virtual const nlohmann::json* ConfigKey(std::string_view key) const = 0;
  /// For messages: the path as the user gave it.
  virtual std::string Path() const = 0;
};

/// Planes of one encoded weight, folded together.
struct FoundWeight {
  std::string name;  ///< what the weight is called in the plain model: "layers.0.q_proj.weight"
  FormatPtr format;
  int64_t stack = 1;  ///< matrices in it: 1, or the number of stacked experts
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::kBF16;  ///< EncodedMatrix::dtype
  bool stacked = false;        ///< true when stored with a leading stack axis, even of length 1
  /// Shape of the plain tensor when that is not [rows, cols] with the stack axis before it:
  /// formats that hold any rank keep it beside the planes.
  std::optional<Shape> plain_shape;
  std::vector<std::string> tensor_names;  ///< as stored; no other weight may use them
  std::vector<std::string> notes;         ///< "config says 4 bits, planes hold 6: read as 6"
  /// Matrix `index` of the stack, planes unchecked (the caller runs Format::Validate once).
  std::function<EncodedMatrix(int64_t index)> load;
};

/// What all families found.
struct Recognition {
  std::vector<FoundWeight> weights;
  std::vector<std::string> notes;  ///< about the checkpoint as a whole
};

/// A weight a writer encoded (or kept plain), for the config it writes.
struct WrittenWeight {
  std::string name;  ///< "layers.0.q_proj.weight"
  FormatPtr format;  ///< null when kept plain
  int64_t rows = 0;
  int64_t cols = 0;
};

/// How a family's upstream writes folders, where that shows.
struct CheckpointStyle {
  /// Tensor data of a file starts at a multiple of this; 8 gives the reference writer's bytes.
  int64_t data_alignment = 64;
  /// Every shard is rewritten under its own name, instead of sharing the tensors out anew.
  bool keeps_shards = false;
  /// The index keeps the "metadata" of the source, its total_size included.
  bool keeps_index_metadata = false;
  /// One checkpoint holds weights of several formats of this form.
  bool mixes_formats = false;
  /// There is an index even when there is one shard.
  bool always_index = false;
  /// The index tells "total_parameters".
  bool counts_parameters = false;
  /// Of config.json and the index.
  int json_indent = 2;
};

/// How a family's planes stand in a checkpoint directory that its upstream loads.
class CheckpointForm {
 public:
  virtual ~CheckpointForm() = default;

  /// Stored name of a plane: ("a.weight", "scales") → "a.scales".
  virtual std::string TensorName(std::string_view weight_name, std::string_view plane) const = 0;

  /// Shape a plane is stored under, given the plain tensor's: the plane's own, for a stack with
  /// the stack axis before it. Formats that hold any rank keep the plain tensor's shape here.
  virtual Shape StoredShape(const PlaneSpec& plane, const Shape& plain_shape) const;

  /// Globs of the weights that upstream looks for when the user names none.
  virtual std::vector<std::string> DefaultPatterns() const { return {"*.weight"}; }

  /// Adds what upstream needs to find the weights to config.json (or, for a single file, to the
  /// object whose members become metadata). `model_format` is the one asked for.
  virtual void WriteConfig(nlohmann::json& config, const Format& model_format,
                           const std::vector<WrittenWeight>& weights) const = 0;

  /// Further files of the directory: name → content.
  virtual std::map<std::string, std::string> SideFiles(
      const Format& model_format, const std::vector<WrittenWeight>& weights) const;

  virtual CheckpointStyle Style() const { return {}; }

  /// `__metadata__` entries of each shard ({"format": "mlx"}).
  virtual std::map<std::string, std::string> ShardMetadata() const { return {}; }
};

}  // namespace assay

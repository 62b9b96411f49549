#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/formats/checkpoint_form.h"
#include "assay/formats/format.h"

/// What MLX's quantised checkpoints share, whatever the mode: the config entry, the planes' names,
/// the way back. Each mode's family asks for the modules of its mode.
/// Source: mlx-lm 0.32.2, mlx_lm/utils.py; docs/formats/affine.md.
namespace assay {

/// Settings of one quantised module, as config.json spells them.
struct MlxSettings {
  std::string mode = "affine";  ///< "affine", "mxfp4", "mxfp8", "nvfp4"
  int64_t bits = 4;
  int64_t group_size = 64;
  bool global_scale = false;

  friend bool operator==(const MlxSettings&, const MlxSettings&) = default;
};

/// A format that MLX checkpoints hold. Implemented beside Format by each mode's class.
class MlxFormat {
 public:
  virtual ~MlxFormat() = default;
  virtual MlxSettings Settings() const = 0;
};

/// The "quantization" entry of config.json.
class MlxConfig {
 public:
  /// Looks at "quantization", then "quantization_config", then the latter inside "text_config"; the
  /// second and third only when they carry no "quant_method" (other tools' entries do). Nothing
  /// when none is an object with "bits", "group_size" or "mode".
  /// Errors: input, naming file and key, for members of the wrong type.
  static std::optional<MlxConfig> Read(const CheckpointSource& source);

  /// `where` is named in errors.
  MlxConfig(const nlohmann::json& quantization, const std::string& where);

  /// Settings of the checkpoint as a whole.
  const MlxSettings& top() const noexcept { return top_; }

  /// An entry of a module's own: its settings, or nothing for `false` (not quantised).
  /// Null when the module has no entry.
  const std::optional<MlxSettings>* Find(std::string_view module_path) const;

 private:
  MlxSettings top_;
  std::map<std::string, std::optional<MlxSettings>, std::less<>> modules_;
};

/// The planes of one quantised module P, found beside each other; shapes agree with each other.
struct MlxModule {
  std::string path;                            ///< "model.layers.0.self_attn.q_proj"
  const StoredTensor* weight = nullptr;        ///< P.weight U32 [stack…, rows, words]
  const StoredTensor* scales = nullptr;        ///< P.scales [stack…, rows, groups]
  const StoredTensor* biases = nullptr;        ///< P.biases as scales; null when absent
  const StoredTensor* global_scale = nullptr;  ///< P.global_scale; null when absent
  int64_t stack = 1;                           ///< product of the leading axes
  int64_t rows = 0;
  int64_t words = 0;   ///< 32-bit words of codes per row
  int64_t groups = 0;  ///< scales per row
  /// What the config says, with the mode put right by the planes where the module has no entry
  /// of its own: float scales mean affine, U8 scales one of the fp modes.
  MlxSettings settings;
};

/// The modules of `mode`, sorted by path. What looks like one but cannot be is left to `notes`.
std::vector<MlxModule> MlxModulesOf(std::string_view mode, const CheckpointSource& source,
                                    const MlxConfig& config, std::vector<std::string>& notes);

/// A weight made of the module's planes: "codes", "scales", and "biases" and "global_scale" (one
/// value, shape []) where they exist. `source` must outlive FoundWeight::load.
FoundWeight MlxWeight(const MlxModule& module, const CheckpointSource& source, FormatPtr format,
                      int64_t cols, DType dtype);

/// P.weight, P.scales, P.biases, P.global_scale; config.json "quantization" and its copy
/// "quantization_config" as mlx-lm writes them, with an entry for each weight whose format is not
/// the model's; metadata {"format": "mlx"}. Serves every format that is an MlxFormat.
const CheckpointForm* MlxCheckpointForm();

}  // namespace assay

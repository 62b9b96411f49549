#pragma once

#include <cstdint>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "assay/formats/checkpoint_form.h"

namespace assay {

/// How a config group says its weights are quantised.
struct CompressedTensorsWeights {
  int64_t num_bits = 8;
  std::string type = "int";  ///< "int" or "float"
  bool symmetric = true;
  std::string strategy;    ///< "tensor", "channel", "group", "block", "tensor_group"; "" unstated
  int64_t group_size = 0;  ///< 0 when unstated
  int64_t block_rows = 0;  ///< block_structure; 0 when unstated
  int64_t block_cols = 0;
};

/// quantization_config as compressed-tensors 0.20 writes it: one group with these settings of its
/// weights, for every weight that has a format; the others on the ignore list.
nlohmann::json CompressedTensorsQuantization(std::string_view format, nlohmann::json settings,
                                             const std::vector<WrittenWeight>& weights);

/// "config_groups": modules that share settings.
struct CompressedTensorsGroup {
  std::string name;
  std::string format;  ///< "nvfp4-pack-quantized", …; its own, or else the one at the top
  CompressedTensorsWeights weights;
};

/// quantization_config of a compressed-tensors checkpoint: which modules are quantised, and how.
/// Why:      every format of that library is recognised through it, integer ones included: a
///           recogniser asks GroupOf for each module that has planes, and reads no other key.
/// Source:   compressed-tensors 0.20.1, quantization/quant_config.py, utils/match.py.
class CompressedTensorsConfig {
 public:
  /// Nothing unless quant_method is "compressed-tensors".
  /// Errors: input, naming file and key, for members of a wrong type and patterns that are no
  /// regular expressions.
  static std::optional<CompressedTensorsConfig> Read(const CheckpointSource& source);

  /// The group that a module ("model.layers.0.mlp.up_proj") is in; null when it is on the ignore
  /// list or no target names it. A target or ignore entry is a module's name, "re:" and a regular
  /// expression that the beginning of the name must match, or a class: which module is of which
  /// class stands in no file, so a class takes every module not named otherwise, "Embedding" only
  /// those called so.
  const CompressedTensorsGroup* GroupOf(std::string_view module) const;

  /// Version of the library that wrote it, "0.20.1"; empty when unstated.
  const std::string& version() const noexcept { return version_; }

 private:
  struct Entry {
    std::string text;
    std::optional<std::regex> pattern;
  };
  struct Member {
    CompressedTensorsGroup group;
    std::vector<Entry> targets;
  };

  static Entry EntryFrom(const nlohmann::json& value, const std::string& where);
  static bool Names(const Entry& entry, std::string_view module);
  static bool IsClassOf(const Entry& entry, std::string_view module);

  std::vector<Member> groups_;
  std::vector<Entry> ignore_;
  std::string version_;
};

}  // namespace assay

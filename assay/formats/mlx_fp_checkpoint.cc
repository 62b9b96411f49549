#include "assay/formats/mlx_fp_checkpoint.h"

#include "assay/base/checked.h"
#include "assay/base/text.h"
#include "assay/formats/mlx_config.h"
#include "assay/formats/mlx_fp.h"

namespace assay {
namespace {

/// Why the planes cannot be of the mode; empty when they can.
std::string ProblemOf(const MlxModule& module, const MlxFpFormat& format) {
  const MlxSettings expected = format.Settings();
  if (module.settings.bits != expected.bits || module.settings.group_size != expected.group_size) {
    return fmt::format("config says {} bits in groups of {}; {} has {} in groups of {}",
                       module.settings.bits, module.settings.group_size, expected.mode,
                       expected.bits, expected.group_size);
  }
  if (module.scales->dtype != DType::kU8 || module.biases != nullptr) {
    return fmt::format("{} has U8 scales and no biases; found {}{}", expected.mode,
                       NameOf(module.scales->dtype), module.biases != nullptr ? ", biases" : "");
  }
  if (module.global_scale != nullptr &&
      (module.global_scale->dtype != DType::kF32 || format.mode() != MlxFpMode::kNvfp4)) {
    return fmt::format("global_scale {} in mode {}", NameOf(module.global_scale->dtype),
                       expected.mode);
  }
  if (module.words * 32 / module.groups != expected.bits * expected.group_size) {
    return fmt::format("{} words and {} scales a row are not {}", module.words, module.groups,
                       expected.mode);
  }
  return {};
}

}  // namespace

void RecogniseMlxFp(const CheckpointSource& source, Recognition& found) {
  const std::optional<MlxConfig> config = MlxConfig::Read(source);
  if (!config) return;
  for (const MlxFpMode mode : {MlxFpMode::kMxfp4, MlxFpMode::kMxfp8, MlxFpMode::kNvfp4}) {
    const std::string name(MlxFpFormat::Make(mode)->ModeName());
    for (const MlxModule& module : MlxModulesOf(name, source, *config, found.notes)) {
      const bool global = module.global_scale != nullptr && mode == MlxFpMode::kNvfp4;
      const auto format = MlxFpFormat::Make(mode, global);
      std::string problem = ProblemOf(module, *format);
      if (module.settings.global_scale && module.global_scale == nullptr) {
        problem = "config says global_scale, which is missing";
      }
      const auto cols = CheckedMul(module.groups, int64_t{format->block()});
      if (!problem.empty() || !cols) {
        found.notes.push_back(fmt::format("{}: not read: {}", Quoted(module.path), problem));
        continue;
      }
      found.weights.push_back(
          MlxWeight(module, source, format, *cols, global ? DType::kF32 : DType::kBF16));
    }
  }
}

}  // namespace assay

#include "assay/studies/convert_config.h"

#include <algorithm>
#include <array>
#include <string>

namespace assay {
namespace {

constexpr std::array<std::string_view, 2> kKeys = {"quantization", "quantization_config"};
constexpr std::array<std::string_view, 4> kFiles = {
    "turboquant_config.json", "hf_quant_config.json", "quantize_config.json", "quant_config.json"};
constexpr std::array<std::string_view, 11> kWeightSuffixes = {
    ".safetensors", ".bin", ".pt",   ".pth",     ".gguf", ".ggml",
    ".h5",          ".npz", ".onnx", ".msgpack", ".ckpt"};

}  // namespace

bool TellsOfQuantisation(std::string_view name) {
  return std::ranges::find(kKeys, name) != kKeys.end() ||
         std::ranges::find(kFiles, name) != kFiles.end();
}

nlohmann::json WithoutQuantisation(nlohmann::json config) {
  for (const std::string_view key : kKeys) {
    config.erase(std::string(key));
    for (const char* part : {"text_config", "llm_config"}) {
      if (const auto found = config.find(part); found != config.end() && found->is_object()) {
        found->erase(std::string(key));
      }
    }
  }
  return config;
}

bool HoldsWeights(std::string_view file_name) {
  return std::ranges::any_of(kWeightSuffixes,
                             [&](std::string_view suffix) { return file_name.ends_with(suffix); });
}

}  // namespace assay

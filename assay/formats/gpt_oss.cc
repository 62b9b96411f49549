#include "assay/formats/gpt_oss.h"

#include "assay/base/checked.h"
#include "assay/base/text.h"
#include "assay/formats/microscaling.h"
#include "assay/formats/plane_folding.h"

namespace assay {
namespace {

constexpr int64_t kBlockBytes = 16;

/// What the two spellings call the planes of one weight.
struct Spelling {
  std::string_view blocks;
  std::string_view scales;
};
constexpr Spelling kHuggingFace = {"_blocks", "_scales"};
constexpr Spelling kOriginal = {".blocks", ".scales"};

const Spelling* SpellingOf(const CheckpointSource& source) {
  const nlohmann::json* quantization = source.ConfigKey("quantization_config");
  if (quantization != nullptr) {
    const bool mxfp4 = quantization->is_object() && quantization->contains("quant_method") &&
                       quantization->at("quant_method") == "mxfp4";
    return mxfp4 ? &kHuggingFace : nullptr;
  }
  const nlohmann::json* config = source.Config("config.json");
  const bool original = config != nullptr && config->is_object() &&
                        config->contains("num_experts") && config->contains("experts_per_token");
  return original ? &kOriginal : nullptr;
}

}  // namespace

void RecogniseGptOss(const CheckpointSource& source, Recognition& found) {
  const Spelling* spelling = SpellingOf(source);
  if (spelling == nullptr) return;
  for (const StoredTensor& blocks : source.Tensors()) {
    if (!blocks.name.ends_with(spelling->blocks)) continue;
    FoldedPlanes folded;
    folded.name = blocks.name.substr(0, blocks.name.size() - spelling->blocks.size());
    const StoredTensor* scales = source.Find(folded.name + std::string(spelling->scales));
    const Shape& shape = blocks.shape;
    const size_t rank = shape.rank();
    if (scales == nullptr) continue;
    // [experts, rows, blocks, 16], or without experts.
    const auto expected = [&] {
      if (rank != 3 && rank != 4) return false;
      const std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end() - 1);
      return shape[rank - 1] == kBlockBytes && scales->shape == Shape(dims) &&
             blocks.dtype == DType::kU8 && scales->dtype == DType::kU8;
    };
    const auto cols = rank < 2 ? std::nullopt : CheckedMul(shape[rank - 2], 2 * kBlockBytes);
    if (!expected() || !cols) {
      found.notes.push_back(
          fmt::format("{}: not read: expected U8 blocks [..., 16] and scales [...], found {} {} "
                      "and {} {}",
                      Quoted(folded.name), NameOf(blocks.dtype), shape.ToString(),
                      NameOf(scales->dtype), scales->shape.ToString()));
      continue;
    }
    folded.format = MicroscalingFormat::Make(BlockElement::kE2M1);
    folded.stacked = rank == 4;
    folded.stack = folded.stacked ? shape[0] : 1;
    folded.rows = shape[rank - 3];
    folded.cols = *cols;
    folded.planes = {{"codes", &blocks}, {"scales", scales}};
    found.weights.push_back(FoldPlanes(source, std::move(folded)));
  }
}

}  // namespace assay

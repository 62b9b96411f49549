#include "assay/formats/catalogue.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "assay/base/error.h"
#include "assay/base/nearest.h"
#include "assay/base/text.h"
#include "assay/formats/affine.h"
#include "assay/formats/awq.h"
#include "assay/formats/bitsandbytes.h"
#include "assay/formats/checkpoint_form.h"
#include "assay/formats/deepseek_cache.h"
#include "assay/formats/fp8_block.h"
#include "assay/formats/ggml.h"
#include "assay/formats/gptq.h"
#include "assay/formats/hqq.h"
#include "assay/formats/int_packed.h"
#include "assay/formats/microscaling.h"
#include "assay/formats/mlx_fp.h"
#include "assay/formats/modelopt_int4.h"
#include "assay/formats/nvfp4.h"
#include "assay/formats/packed12.h"
#include "assay/formats/plain.h"
#include "assay/formats/turboquant.h"

namespace assay {
namespace {

// One line a family: the only place outside its own files that knows it exists.
// clang-format off
constexpr std::array kFamilies = {
    &kPlainFamily,
    &kAffineFamily,
    &kMicroscalingFamily,
    &kNvfp4Family,
    &kMlxFpFamily,
    &kFp8BlockFamily,
    &kIntPackedFamily,
    &kModelOptInt4Family,
    &kGptqFamily,
    &kAwqFamily,
    &kHqqFamily,
    &kBitsAndBytesFamily,
    &kGgmlFamily,
    &kTurboQuantFamily,
    &kDeepSeekCacheFamily,
    &kPacked12Family,
};
// clang-format on

[[noreturn]] void ThrowUnknownFormat(std::string_view name) {
  std::vector<std::string> known;
  for (const FormatFamily* family : kFamilies) {
    for (std::string& format : family->names()) known.push_back(std::move(format));
  }
  constexpr size_t kSuggestions = 3;
  ThrowUsage("unknown format \"{}\"; nearest: {} (all: assay formats)", name,
             fmt::join(NearestNames(name, known, kSuggestions), ", "));
}

}  // namespace

Recognition RecogniseAll(const CheckpointSource& source) {
  Recognition found;
  for (const FormatFamily* family : FormatCatalogue()) {
    if (family->recognise != nullptr) family->recognise(source, found);
  }
  std::erase_if(found.weights, [&](const FoundWeight& weight) {
    if (dynamic_cast<const GgmlFormat*>(weight.format.get()) != nullptr) return false;
    const auto holds_blocks = [&](const std::string& name) {
      const StoredTensor* tensor = source.Find(name);
      return tensor != nullptr && tensor->block_type != nullptr;
    };
    const auto blocks = std::ranges::find_if(weight.tensor_names, holds_blocks);
    if (blocks == weight.tensor_names.end()) return false;
    found.notes.push_back(fmt::format("{}: not read as {}: {} holds blocks of ggml",
                                      Quoted(weight.name), weight.format->Name(), Quoted(*blocks)));
    return true;
  });
  std::map<std::string_view, const FoundWeight*> claims;
  for (const FoundWeight& weight : found.weights) {
    for (const std::string& tensor : weight.tensor_names) {
      const auto [claim, is_new] = claims.emplace(tensor, &weight);
      if (is_new || claim->second == &weight) continue;
      const FoundWeight& other = *claim->second;
      ThrowInput("{}: tensor {} is claimed by weight {} ({}) and by weight {} ({})", source.Path(),
                 Quoted(tensor), Quoted(other.name), other.format->Name(), Quoted(weight.name),
                 weight.format->Name());
    }
  }
  return found;
}

std::span<const FormatFamily* const> FormatCatalogue() { return kFamilies; }

const FormatFamily& FamilyOf(std::string_view format_name) {
  for (const FormatFamily* family : kFamilies) {
    if (family->parse(format_name)) return *family;
  }
  ThrowUnknownFormat(format_name);
}

FormatPtr Format::Parse(std::string_view name) {
  for (const FormatFamily* family : kFamilies) {
    if (FormatPtr format = family->parse(name)) return format;
  }
  ThrowUnknownFormat(name);
}

}  // namespace assay

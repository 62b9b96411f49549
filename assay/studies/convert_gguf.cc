#include "assay/studies/convert_gguf.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "assay/base/error.h"
#include "assay/base/glob.h"
#include "assay/checkpoint/gguf.h"
#include "assay/checkpoint/gguf_layout.h"
#include "assay/formats/ggml_file_type.h"
#include "assay/formats/ggml_type.h"

namespace assay {
namespace {

constexpr std::string_view kVersionKey = "general.quantization_version";
constexpr std::array<std::string_view, 3> kSplitKeys = {"split.no", "split.count",
                                                        "split.tensors.count"};

// Weights that llama.cpp's own quantiser leaves as they are.
constexpr std::array<std::string_view, 17> kFloatsOnly = {"*_norm.weight",
                                                          "*ffn_gate_inp.weight",
                                                          "*altup*",
                                                          "*laurel*",
                                                          "*per_layer_model_proj*",
                                                          "position_embd.weight",
                                                          "token_types.weight",
                                                          "*ssm_conv1d.weight",
                                                          "*shortconv.conv.weight",
                                                          "*time_mix_first.weight",
                                                          "*time_mix_w?.weight",
                                                          "*time_mix_v?.weight",
                                                          "*time_mix_a?.weight",
                                                          "*time_mix_g?.weight",
                                                          "*time_mix_lerp_fused.weight",
                                                          "*time_mix_decay_w?.weight",
                                                          "*attn_rel_b.weight"};

const GgufFile* AsGguf(const Container& file) {
  return file.kind() == "gguf" ? dynamic_cast<const GgufFile*>(&file) : nullptr;
}

// The type that most values of the matrices have; null without any.
const GgmlType* MainType(const std::vector<TensorSpec>& tensors) {
  std::map<int32_t, int64_t> num_values;
  for (const TensorSpec& tensor : tensors) {
    const GgmlType* type = GgmlTypeOf(tensor);
    if (type == nullptr || tensor.shape.rank() < 2) continue;
    const int64_t num_bytes = tensor.shape.CheckedNumBytes(tensor.dtype).value_or(0);
    num_values[type->id] += num_bytes / type->block_bytes * type->block_values;
  }
  const auto most =
      std::ranges::max_element(num_values, {}, &std::pair<const int32_t, int64_t>::second);
  return most == num_values.end() ? nullptr : FindGgmlType(most->first);
}

}  // namespace

bool IsGgufPath(std::string_view path) { return path.ends_with(".gguf"); }

const GgmlType* GgmlTypeOfFormat(const Format& format) {
  std::string name = format.Name();
  constexpr std::string_view kPrefix = "ggml-";
  const bool blocks = name.starts_with(kPrefix);
  if (blocks) name.erase(0, kPrefix.size());
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const GgmlType* type = FindGgmlType(name);
  return type != nullptr && blocks == !type->dtype ? type : nullptr;
}

void RequireContainer(const std::vector<FormatChoice>& choices, bool gguf) {
  for (const FormatChoice& choice : choices) {
    const GgmlType* type = GgmlTypeOfFormat(*choice.format);
    const std::string name = choice.format->Name();
    if (gguf && type == nullptr) {
      ThrowUsage(
          "{}: GGUF files hold ggml-…, f32, f16 and bf16; give the output a name that does not end "
          "in .gguf",
          name);
    }
    if (!gguf && type != nullptr && !type->dtype) {
      ThrowUsage("{}: only GGUF files hold it; give the output a name that ends in .gguf", name);
    }
  }
}

std::optional<std::string> WhyKeptInGguf(std::string_view name) {
  for (const std::string_view pattern : kFloatsOnly) {
    if (GlobMatch(pattern, name)) {
      return fmt::format("llama.cpp reads {} as floats; --tensor takes it all the same", pattern);
    }
  }
  return std::nullopt;
}

std::vector<TensorSpec> GgufTensors(const Model& model, const ConvertPlan& plan) {
  std::map<std::string_view, size_t> order;
  for (const ContainerPtr& container : model.Files()) {
    const GgufFile* file = AsGguf(*container);
    if (file == nullptr) continue;
    for (const GgufTensorInfo& info : file->header().tensors)
      order.emplace(info.name, order.size());
  }
  std::vector<TensorSpec> tensors;
  for (const ConvertStep& step : plan.steps) {
    tensors.insert(tensors.end(), step.outputs.begin(), step.outputs.end());
  }
  const auto position = [&](const TensorSpec& tensor) {
    const auto found = order.find(tensor.name);
    return found == order.end() ? order.size() : found->second;
  };
  std::ranges::stable_sort(tensors, {}, position);
  return tensors;
}

GgufMetadata GgufMetadataFor(const Model& model, const std::vector<TensorSpec>& tensors) {
  GgufMetadata metadata;
  const GgufFile* source = model.Files().empty() ? nullptr : AsGguf(*model.Files().front());
  if (source != nullptr) metadata = source->header().metadata;
  for (const std::string_view key : kSplitKeys) metadata.Erase(key);
  const GgmlType* main = MainType(tensors);
  const GgmlFileType* file_type = main == nullptr ? nullptr : FileTypeOf(*main);
  if (file_type != nullptr) {
    metadata.Set(kGgufFileTypeKey, GgufValue::Of(static_cast<uint32_t>(file_type->id)));
  } else {
    metadata.Erase(kGgufFileTypeKey);  // readers then guess from the tensors
  }
  const bool any_blocks = std::ranges::any_of(
      tensors, [](const TensorSpec& tensor) { return tensor.block_type != nullptr; });
  if (any_blocks) metadata.Set(kVersionKey, GgufValue::Of(kGgmlQuantizationVersion));
  return metadata;
}

std::map<std::string, std::string> PortableMetadata(const Container& container) {
  const GgufFile* file = AsGguf(container);
  if (file == nullptr) return container.Metadata();
  constexpr size_t kMaxBytes = 1024;
  std::map<std::string, std::string> metadata = container.Metadata();
  for (const GgufMetadata::Entry& entry : file->header().metadata.entries()) {
    const bool of_the_file = entry.key == kGgufFileTypeKey || entry.key == kVersionKey ||
                             entry.key == kGgufAlignmentKey || entry.key.starts_with("split.");
    if (of_the_file || entry.value.is_array() || entry.value.bytes().size() > kMaxBytes) {
      metadata.erase(entry.key);
    }
  }
  return metadata;
}

}  // namespace assay

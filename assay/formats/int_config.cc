#include "assay/formats/int_config.h"

#include <algorithm>

#include "assay/base/error.h"

namespace assay {
namespace {

bool Says(const nlohmann::json& config, std::string_view method) {
  for (const char* key : {"quant_method", "method"}) {
    const auto member = config.find(key);
    if (member != config.end() && member->is_string()) {
      return member->get_ref<const std::string&>() == method;
    }
  }
  return false;
}

bool SaysNothing(const nlohmann::json& config) {
  return !config.contains("quant_method") && !config.contains("method");
}

}  // namespace

const nlohmann::json* IntConfig(const CheckpointSource& source, std::string_view method,
                                std::string_view side_file) {
  const nlohmann::json* config = source.ConfigKey("quantization_config");
  if (config != nullptr && config->is_object() && Says(*config, method)) return config;
  if (config != nullptr) return nullptr;
  const nlohmann::json* side = source.Config(side_file);
  if (side == nullptr || !side->is_object()) return nullptr;
  return Says(*side, method) || SaysNothing(*side) ? side : nullptr;
}

int64_t IntMember(const CheckpointSource& source, const nlohmann::json& config, const char* key,
                  int64_t fallback) {
  const auto member = config.find(key);
  if (member == config.end() || member->is_null()) return fallback;
  if (!member->is_number_integer()) {
    ThrowInput("{}: config: {}: expected an integer, found {}", source.Path(), key,
               member->dump().substr(0, 80));
  }
  return member->get<int64_t>();
}

std::string StringMember(const CheckpointSource& source, const nlohmann::json& config,
                         const char* key, std::string_view fallback) {
  const auto member = config.find(key);
  if (member == config.end() || member->is_null()) return std::string(fallback);
  if (!member->is_string()) {
    ThrowInput("{}: config: {}: expected a string, found {}", source.Path(), key,
               member->dump().substr(0, 80));
  }
  return member->get<std::string>();
}

std::optional<DType> TorchDType(std::string_view text) noexcept {
  constexpr std::string_view kModule = "torch.";
  if (text.starts_with(kModule)) text.remove_prefix(kModule.size());
  if (text == "float32") return DType::kF32;
  if (text == "float16") return DType::kF16;
  if (text == "bfloat16") return DType::kBF16;
  return std::nullopt;
}

std::string_view BaseOf(std::string_view name, std::string_view suffix) noexcept {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : std::string_view();
}

FoundWeight StoredWeight(const CheckpointSource& source, std::string name, FormatPtr format,
                         int64_t rows, int64_t cols, DType dtype,
                         std::vector<std::pair<std::string, std::string>> planes) {
  FoundWeight weight;
  weight.name = std::move(name);
  weight.format = format;
  weight.rows = rows;
  weight.cols = cols;
  weight.dtype = dtype;
  for (const auto& [plane, stored] : planes) weight.tensor_names.push_back(stored);
  weight.load = [&source, format = std::move(format), rows, cols, dtype,
                 planes = std::move(planes)](int64_t /*index*/) {
    EncodedMatrix encoded{format, rows, cols, dtype, {}};
    for (const auto& [plane, stored] : planes) {
      encoded.planes.push_back({plane, source.Load(stored)});
    }
    return encoded;
  };
  return weight;
}

void RequireStored(const CheckpointSource& source, const StoredTensor& stored,
                   const PlaneSpec& spec) {
  if (stored.dtype == spec.dtype && stored.shape == spec.shape) return;
  ThrowInput("{}: tensor \"{}\": expected {} {}, found {} {}", source.Path(), stored.name,
             NameOf(spec.dtype), spec.shape.ToString(), NameOf(stored.dtype),
             stored.shape.ToString());
}

}  // namespace assay

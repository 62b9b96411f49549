#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "assay/formats/checkpoint_form.h"

/// Reading the flat configs of the integer families.
namespace assay {

/// The quantization_config whose quant_method (or "method") is `method`, else the side file
/// `side_file` if it says so or says nothing. Null when neither.
const nlohmann::json* IntConfig(const CheckpointSource& source, std::string_view method,
                                std::string_view side_file);

/// An integer member, or `fallback` when absent or null. Errors: input, naming the key.
int64_t IntMember(const CheckpointSource& source, const nlohmann::json& config, const char* key,
                  int64_t fallback);

/// A string member, or `fallback` when absent or null. Errors: input, naming the key.
std::string StringMember(const CheckpointSource& source, const nlohmann::json& config,
                         const char* key, std::string_view fallback);

/// "bfloat16" or "torch.bfloat16", and so for float16 and float32; nothing for other texts.
/// Some upstreams evaluate such a text as code; here it is only compared.
std::optional<DType> TorchDType(std::string_view text) noexcept;

/// Base of "P.qweight" and the like: `name` without `suffix`; empty when it does not end so.
std::string_view BaseOf(std::string_view name, std::string_view suffix) noexcept;

/// A weight of one matrix whose planes are stored tensors in the format's own shapes.
/// `planes` pairs plane names with stored names; `source` must outlive FoundWeight::load.
FoundWeight StoredWeight(const CheckpointSource& source, std::string name, FormatPtr format,
                         int64_t rows, int64_t cols, DType dtype,
                         std::vector<std::pair<std::string, std::string>> planes);

/// Errors: input, naming the tensor, when dtype or shape is not `spec`'s.
void RequireStored(const CheckpointSource& source, const StoredTensor& stored,
                   const PlaneSpec& spec);

}  // namespace assay

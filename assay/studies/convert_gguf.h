#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/checkpoint/gguf_metadata.h"
#include "assay/checkpoint/model.h"
#include "assay/studies/convert_plan.h"

namespace assay {

struct GgmlType;

/// True when an output of this name is a GGUF file.
bool IsGgufPath(std::string_view path);

/// The tensor type that holds a format in a GGUF file: blocks, or a plain type. Null for all
/// others.
const GgmlType* GgmlTypeOfFormat(const Format& format);

/// Refuses formats that do not stand in the output's container. Errors: usage.
void RequireContainer(const std::vector<FormatChoice>& choices, bool gguf);

/// Why a quantiser should leave a weight alone that nobody asked for by name: llama.cpp reads some
/// as floats only. Nothing for the rest.
std::optional<std::string> WhyKeptInGguf(std::string_view name);

/// What a plan writes, in the order of the source's files where those are GGUF.
std::vector<TensorSpec> GgufTensors(const Model& model, const ConvertPlan& plan);

/// The source's metadata, its order kept, without what told of a split, and with the file type and
/// quantisation version of `tensors`. A source that is no GGUF file has none.
GgufMetadata GgufMetadataFor(const Model& model, const std::vector<TensorSpec>& tensors);

/// What a file of another container can carry of a GGUF file's metadata: single values, without
/// those that describe the file itself.
std::map<std::string, std::string> PortableMetadata(const Container& file);

}  // namespace assay

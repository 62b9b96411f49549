#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace assay {

/// A key of config.json or of a file's metadata, or a side file, that tells how weights are
/// encoded: what a plain or newly encoded model must not carry over.
bool TellsOfQuantisation(std::string_view name);

/// config.json without such keys, its text part's included.
nlohmann::json WithoutQuantisation(nlohmann::json config);

/// True for a file name of a weight container, safetensors or another: copying it would put an
/// unconverted model beside the new one.
bool HoldsWeights(std::string_view file_name);

}  // namespace assay

#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace assay {

/// "not valid JSON at byte 12: unexpected '}'" from what nlohmann's parser says, on one line.
std::string JsonFault(size_t position, std::string_view parser_message);

/// Parses JSON text that must be an object: a config file, or such text out of metadata.
/// Refuses what Python's writer never makes and two readers may take differently: text that is not
/// UTF-8, duplicate keys, nesting deeper than 64, anything after the object.
/// Errors: input, starting with `where`.
nlohmann::json ParseJsonObject(std::string_view text, std::string_view where);

}  // namespace assay

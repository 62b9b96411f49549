#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "assay/base/error.h"

namespace assay {

/// Runs `body`; an Error that does not name the file gets it in front.
/// Why: formats know the weight and the value that is wrong, not the file it came from.
template <typename Body>
decltype(auto) NamingFile(const std::string& path, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error& error) {
    if (std::string_view(error.what()).find(path) != std::string_view::npos) throw;
    throw Error(error.kind(), fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace assay

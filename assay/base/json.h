#pragma once

// Precompiled into every source file: the members of nlohmann::json are compiled once, in json.cc,
// which takes a quarter off the build. Including <nlohmann/json.hpp> alone works as well.
#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<>;

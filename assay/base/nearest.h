#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace assay {

/// The `count` names nearest to `name` by Levenshtein distance, nearest first, ties in given order:
/// for messages about a name that does not exist.
std::vector<std::string> NearestNames(std::string_view name, const std::vector<std::string>& names,
                                      size_t count);

}  // namespace assay

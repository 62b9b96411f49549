#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

/// True when the whole of `text` fits the pattern: `*` stands for any run of characters, dots
/// included and none included, `?` for exactly one; everything else for itself.
/// Cost: O(pattern · text), never exponential.
bool GlobMatch(std::string_view pattern, std::string_view text) noexcept;

/// True when any of the patterns fits.
bool GlobMatchAny(const std::vector<std::string>& patterns, std::string_view text) noexcept;

/// What each `*` and `?` of the pattern stood for, in order, each `*` as short as possible;
/// nothing when the text does not fit.
std::optional<std::vector<std::string>> GlobCapture(std::string_view pattern,
                                                    std::string_view text);

}  // namespace assay

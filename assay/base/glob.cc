#include "assay/base/glob.h"

#include <algorithm>

namespace assay {

bool GlobMatch(std::string_view pattern, std::string_view text) noexcept {
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;  // the last '*' seen, to fall back to
  size_t resume = 0;                     // where its run ended
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool GlobMatchAny(const std::vector<std::string>& patterns, std::string_view text) noexcept {
  return std::ranges::any_of(patterns,
                             [&](const std::string& pattern) { return GlobMatch(pattern, text); });
}

std::optional<std::vector<std::string>> GlobCapture(std::string_view pattern,
                                                    std::string_view text) {
  std::vector<std::string> captured;
  size_t t = 0;
  if (!GlobMatch(pattern, text)) return std::nullopt;
  for (size_t p = 0; p < pattern.size(); ++p) {
    if (pattern[p] == '*') {
      // The shortest run after which the rest still fits; there is one, since the whole fits.
      size_t end = t;
      while (!GlobMatch(pattern.substr(p + 1), text.substr(end))) ++end;
      captured.emplace_back(text.substr(t, end - t));
      t = end;
    } else {
      if (pattern[p] == '?') captured.emplace_back(text.substr(t, 1));
      ++t;
    }
  }
  return captured;
}

}  // namespace assay

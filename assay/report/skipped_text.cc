#include "assay/report/skipped_text.h"

#include <fmt/format.h>

#include "assay/report/table.h"

namespace assay {

void SkippedText::Add(const std::string& format, const std::string& reason,
                      const std::string& name) {
  Group& group = groups_[{format, reason}];
  if (group.count++ == 0) group.example = name;
}

std::string SkippedText::Render() const {
  std::string text;
  for (const auto& [key, group] : groups_) {
    const auto& [format, reason] = key;
    text += fmt::format("not measured{}{}: {}{}: {}\n", format.empty() ? "" : " as ", format,
                        Printable(group.example),
                        group.count > 1 ? fmt::format(" and {} more", group.count - 1) : "",
                        Printable(reason));
  }
  return text;
}

}  // namespace assay

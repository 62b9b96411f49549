#pragma once

#include <map>
#include <string>
#include <utility>

namespace assay {

/// "not measured as F: name and 3 more: reason" lines; the same reason for many names is one line.
class SkippedText {
 public:
  /// `format` is empty when no format would do.
  void Add(const std::string& format, const std::string& reason, const std::string& name);

  /// Empty when nothing was added. Safe to print.
  std::string Render() const;

 private:
  struct Group {
    int count = 0;
    std::string example;
  };
  std::map<std::pair<std::string, std::string>, Group> groups_;
};

}  // namespace assay

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace assay::test {

/// A folder of its own for one test, removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Absolute path of `name` in it.
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  /// Writes a file and gives its path.
  std::string Write(std::string_view name, std::string_view content) const;
  /// Names of everything in it, sorted; the same for any folder.
  std::vector<std::string> Names() const { return NamesIn(path_); }
  static std::vector<std::string> NamesIn(const std::string& folder);

 private:
  std::string path_;
};

/// The content of any file.
std::string ReadFile(const std::string& path);

}  // namespace assay::test

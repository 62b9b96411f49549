#include "tests/support/temp_folder.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "assay/base/error.h"

namespace assay::test {

namespace fs = std::filesystem;

TempFolder::TempFolder() {
  path_ = (fs::temp_directory_path() / "assay-test-XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr) ThrowInput("{}: cannot be made", path_);
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TempFolder::Write(std::string_view name, std::string_view content) const {
  const std::string path = *this / name;
  std::ofstream file(path, std::ios::binary);
  file << content;
  if (!file.flush()) ThrowInput("{}: cannot be written", path);
  return path;
}

std::vector<std::string> TempFolder::NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) ThrowInput("{}: cannot be read", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace assay::test

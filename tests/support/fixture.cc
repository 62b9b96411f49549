#include "tests/support/fixture.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "assay/base/error.h"
#include "tests/support/paths.h"

namespace assay::test {

std::string ReadTestData(const std::string& relative_path) {
  std::ifstream file(TestDataPath(relative_path), std::ios::binary);
  if (!file) ThrowInput("tests/data/{}: cannot be read", relative_path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Fixture::Fixture(const std::string& relative_path)
    : file_(SafetensorsFile::Open(TestDataPath(relative_path))) {}

std::vector<std::string> Fixture::Names() const {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : file_->Tensors()) names.push_back(tensor.name);
  return names;
}

std::string Fixture::Metadata(std::string_view key) const {
  const auto found = file_->Metadata().find(std::string(key));
  return found == file_->Metadata().end() ? std::string() : found->second;
}

std::vector<std::string> FixtureFiles(const std::string& directory, std::string_view prefix) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(TestDataPath(directory))) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".safetensors")) {
      files.push_back(directory + "/" + name);
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace assay::test

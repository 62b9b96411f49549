#include "tests/support/fixture.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "assay/base/error.h"

namespace assay::test {

std::string ReadTestData(const std::string& relative_path) {
  std::ifstream file(std::filesystem::path(ASSAY_TEST_DATA) / relative_path, std::ios::binary);
  if (!file) ThrowInput("tests/data/{}: cannot be read", relative_path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Fixture::Fixture(const std::string& relative_path) : path_(relative_path) {
  const auto content = std::make_shared<const std::string>(ReadTestData(relative_path));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, content->data(), sizeof(header_bytes));
  const auto header = nlohmann::json::parse(content->substr(8, header_bytes));
  const auto data = std::as_bytes(std::span(*content)).subspan(8 + header_bytes);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      metadata_ = entry.get<std::map<std::string, std::string>>();
      continue;
    }
    const auto offsets = entry.at("data_offsets").get<std::vector<size_t>>();
    tensors_[name] =
        Tensor::Share(content, ParseDType(entry.at("dtype").get<std::string>()).value(),
                      Shape(entry.at("shape").get<std::vector<int64_t>>()),
                      data.subspan(offsets[0], offsets[1] - offsets[0]));
  }
}

Tensor Fixture::Get(std::string_view name) const {
  const auto found = tensors_.find(std::string(name));
  if (found == tensors_.end()) ThrowInput("{}: no tensor \"{}\"", path_, name);
  return found->second;
}

std::vector<std::string> Fixture::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

std::string Fixture::Metadata(std::string_view key) const {
  const auto found = metadata_.find(std::string(key));
  return found == metadata_.end() ? std::string() : found->second;
}

std::vector<std::string> FixtureFiles(const std::string& directory, std::string_view prefix) {
  std::vector<std::string> files;
  const std::filesystem::path root(ASSAY_TEST_DATA);
  for (const auto& entry : std::filesystem::directory_iterator(root / directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".safetensors")) {
      files.push_back(directory + "/" + name);
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace assay::test

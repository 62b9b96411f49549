#include "tests/support/memory_checkpoint.h"

#include <algorithm>

#include "assay/base/error.h"

namespace assay::test {

void MemoryCheckpoint::Add(const std::string& name, Tensor tensor, const GgmlType* block_type) {
  std::erase_if(list_, [&](const StoredTensor& stored) { return stored.name == name; });
  const auto after = std::find_if(list_.begin(), list_.end(),
                                  [&](const StoredTensor& stored) { return stored.name > name; });
  list_.insert(after, StoredTensor{name, tensor.dtype(), tensor.shape(), block_type});
  tensors_.insert_or_assign(name, std::move(tensor));
}

void MemoryCheckpoint::AddConfig(const std::string& file_name, nlohmann::json config) {
  configs_.insert_or_assign(file_name, std::move(config));
}

const StoredTensor* MemoryCheckpoint::Find(std::string_view name) const {
  for (const StoredTensor& tensor : list_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

Tensor MemoryCheckpoint::Load(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) ThrowInput("memory: no tensor \"{}\"", name);
  return found->second;
}

const nlohmann::json* MemoryCheckpoint::Config(std::string_view file_name) const {
  const auto found = configs_.find(file_name);
  return found == configs_.end() ? nullptr : &found->second;
}

const nlohmann::json* MemoryCheckpoint::ConfigKey(std::string_view key) const {
  const nlohmann::json* config = Config("config.json");
  if (config == nullptr) return nullptr;
  const auto found = config->find(key);
  return found == config->end() ? nullptr : &*found;
}

}  // namespace assay::test

#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/checkpoint/model_files.h"
#include "assay/formats/checkpoint_form.h"

namespace assay {

/// The opened files of a model as one list of tensors, and its configs, read on demand.
/// Recognisers keep references to it, so it never moves.
class ModelSource final : public CheckpointSource {
 public:
  explicit ModelSource(ModelFiles files) : files_(std::move(files)) {}
  ModelSource(const ModelSource&) = delete;
  ModelSource& operator=(const ModelSource&) = delete;

  const std::vector<StoredTensor>& Tensors() const override { return files_.tensors; }
  const StoredTensor* Find(std::string_view name) const override;
  Tensor Load(std::string_view name) const override;
  const nlohmann::json* Config(std::string_view file_name) const override;
  const nlohmann::json* ConfigKey(std::string_view key) const override;
  std::string Path() const override { return files_.path; }

  const ModelFiles& files() const noexcept { return files_; }
  /// The file a tensor is read from. Errors: input when there is no such tensor.
  const Container& FileOf(std::string_view name) const;

 private:
  std::optional<size_t> IndexOf(std::string_view name) const;
  /// The JSON text behind a key, parsed once; null when `read` finds none.
  const nlohmann::json* Cached(const std::string& key,
                               const std::function<std::optional<nlohmann::json>()>& read) const;
  std::optional<nlohmann::json> ReadConfigFile(const std::string& file_name) const;
  std::optional<nlohmann::json> ReadMetadata(const std::string& key) const;

  ModelFiles files_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::optional<nlohmann::json>> configs_;
};

}  // namespace assay

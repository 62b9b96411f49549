#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "assay/checkpoint/container.h"
#include "assay/checkpoint/weight.h"
#include "assay/formats/checkpoint_form.h"

namespace assay {

class ModelSource;

/// A model opened from a file or a folder: what is stored (Tensors) and what is meant (Weights).
/// Opening maps the files and reads their headers only. Copies are cheap and share everything.
/// Threads: every method may be called from several threads at once.
class Model final : public CheckpointSource {
 public:
  /// A *.safetensors or *.npy file, an index file, or a folder with an index or safetensors files.
  /// Errors: input, for any fault of index or headers.
  static Model Open(const std::string& path);

  const std::vector<StoredTensor>& Tensors() const override;
  const StoredTensor* Find(std::string_view name) const override;
  Tensor Load(std::string_view name) const override;
  const nlohmann::json* Config(std::string_view file_name) const override;
  const nlohmann::json* ConfigKey(std::string_view key) const override;
  std::string Path() const override;

  /// Encoded weights that the families of FormatCatalogue recognise, and every other 2-D tensor
  /// (or 3-D, as a stack) of f32, f16 or bf16 as a plain weight. Sorted by name. Worked out at the
  /// first call. Errors: input; internal when two families claim one tensor.
  const std::vector<Weight>& Weights() const;
  /// Null when there is none.
  const Weight* FindWeight(std::string_view name) const;

  /// What a reader should know of the files, one line each: stray files, a wrong total_size, ….
  const std::vector<std::string>& Notes() const;
  /// What the recognisers say of the checkpoint as a whole. Calls Weights.
  const std::vector<std::string>& WeightNotes() const;

  /// The files it consists of, in reading order.
  const std::vector<ContainerPtr>& Files() const;
  /// The one that holds a tensor. Errors: input when there is no such tensor.
  const Container& FileOf(std::string_view tensor) const;
  /// The model's folder; empty when a single file was opened.
  const std::string& Directory() const;

  /// Call after mapped tensors were used and before results count.
  /// Errors: input when a file was cut while it was mapped.
  void Verify() const;

 private:
  struct State;
  explicit Model(std::shared_ptr<State> state) : state_(std::move(state)) {}
  void Recognise() const;

  std::shared_ptr<State> state_;
};

}  // namespace assay

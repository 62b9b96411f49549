#include "assay/checkpoint/model.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/model_source.h"
#include "assay/formats/catalogue.h"
#include "assay/formats/plain.h"

namespace assay {

struct Model::State {
  std::shared_ptr<const ModelSource> source;
  std::once_flag recognised;
  std::vector<Weight> weights;
  std::vector<std::string> weight_notes;
};

namespace {

bool IsPlainWeight(const StoredTensor& tensor) {
  const size_t rank = tensor.shape.rank();
  return IsWeightFloat(tensor.dtype) && (rank == 2 || rank == 3);
}

FoundWeight PlainWeight(const ModelSource& source, const StoredTensor& tensor) {
  FoundWeight weight;
  weight.name = tensor.name;
  weight.format = PlainFormat(tensor.dtype);
  weight.stacked = tensor.shape.rank() == 3;
  weight.stack = weight.stacked ? tensor.shape[0] : 1;
  weight.rows = tensor.shape[tensor.shape.rank() - 2];
  weight.cols = tensor.shape[tensor.shape.rank() - 1];
  weight.dtype = tensor.dtype;
  weight.tensor_names = {tensor.name};
  weight.load = [&source, name = tensor.name, format = weight.format, rows = weight.rows,
                 cols = weight.cols, stacked = weight.stacked](int64_t index) {
    Tensor values = source.Load(name);
    if (stacked) values = values.Slice(index);
    return EncodedMatrix{format, rows, cols, values.dtype(), {{"values", values}}};
  };
  return weight;
}

}  // namespace

Model Model::Open(const std::string& path) {
  auto state = std::make_shared<State>();
  state->source = std::make_shared<const ModelSource>(OpenModelFiles(path));
  return Model(std::move(state));
}

const std::vector<StoredTensor>& Model::Tensors() const { return state_->source->Tensors(); }
const StoredTensor* Model::Find(std::string_view name) const { return state_->source->Find(name); }
Tensor Model::Load(std::string_view name) const { return state_->source->Load(name); }
const nlohmann::json* Model::Config(std::string_view file_name) const {
  return state_->source->Config(file_name);
}
const nlohmann::json* Model::ConfigKey(std::string_view key) const {
  return state_->source->ConfigKey(key);
}
std::string Model::Path() const { return state_->source->Path(); }

void Model::Recognise() const {
  std::call_once(state_->recognised, [this] {
    const ModelSource& source = *state_->source;
    Recognition found = RecogniseAll(source);
    std::set<std::string_view> claimed;
    for (const FoundWeight& weight : found.weights) {
      claimed.insert(weight.tensor_names.begin(), weight.tensor_names.end());
    }
    std::vector<Weight> weights;
    for (const StoredTensor& tensor : source.Tensors()) {
      if (claimed.contains(tensor.name) || !IsPlainWeight(tensor)) continue;
      weights.emplace_back(state_->source, PlainWeight(source, tensor), true);
    }
    // Copied, not moved: the claimed names are theirs.
    for (const FoundWeight& weight : found.weights) {
      weights.emplace_back(state_->source, weight, false);
    }
    std::stable_sort(weights.begin(), weights.end(),
                     [](const Weight& a, const Weight& b) { return a.name() < b.name(); });
    const auto twin =
        std::adjacent_find(weights.begin(), weights.end(),
                           [](const Weight& a, const Weight& b) { return a.name() == b.name(); });
    if (twin != weights.end()) {
      ThrowInput("{}: two weights are called {}: one {}, one {}", source.Path(),
                 Quoted(twin->name()), twin->format()->Name(), (twin + 1)->format()->Name());
    }
    state_->weights = std::move(weights);
    state_->weight_notes = std::move(found.notes);
  });
}

const std::vector<Weight>& Model::Weights() const {
  Recognise();
  return state_->weights;
}

const Weight* Model::FindWeight(std::string_view name) const {
  const std::vector<Weight>& weights = Weights();
  const auto found = std::lower_bound(
      weights.begin(), weights.end(), name,
      [](const Weight& weight, std::string_view wanted) { return weight.name() < wanted; });
  return found != weights.end() && found->name() == name ? &*found : nullptr;
}

const std::vector<std::string>& Model::Notes() const { return state_->source->files().notes; }

const std::vector<std::string>& Model::WeightNotes() const {
  Recognise();
  return state_->weight_notes;
}

const std::vector<ContainerPtr>& Model::Files() const { return state_->source->files().files; }

const Container& Model::FileOf(std::string_view tensor) const {
  return state_->source->FileOf(tensor);
}

const std::string& Model::Directory() const { return state_->source->files().directory; }

void Model::Verify() const {
  for (const ContainerPtr& file : Files()) file->Verify();
}

}  // namespace assay

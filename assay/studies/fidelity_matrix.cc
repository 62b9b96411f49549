#include "assay/studies/fidelity_matrix.h"

#include <algorithm>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/base/text.h"
#include "assay/checkpoint/container.h"
#include "assay/numeric/element.h"
#include "assay/numeric/random.h"
#include "assay/tensor/matrix_view.h"

namespace assay {
namespace {

FidelityActivations Rounded(std::vector<float> values, int64_t tokens, int64_t k) {
  std::vector<uint16_t> words(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    words[i] = FloatToBF16(values[i]);
    values[i] = BF16ToFloat(words[i]);
  }
  return {PackedActivations(values, tokens, k), std::move(words)};
}

class Synthetic final : public ActivationSource {
 public:
  Synthetic(int64_t tokens, uint64_t seed) : tokens_(tokens), seed_(seed) {}

  const FidelityActivations* ForWidth(int64_t k) override {
    if (!last_ || last_->packed.k() != k) {
      std::vector<float> values(static_cast<size_t>(tokens_ * k));
      NormalGenerator(seed_).Fill(values);
      last_ = std::make_unique<FidelityActivations>(Rounded(std::move(values), tokens_, k));
    }
    return last_.get();
  }
  int64_t num_tokens() const override { return tokens_; }

 private:
  int64_t tokens_;
  uint64_t seed_;
  std::unique_ptr<FidelityActivations> last_;
};

class Loaded final : public ActivationSource {
 public:
  explicit Loaded(FidelityActivations activations) : activations_(std::move(activations)) {}

  const FidelityActivations* ForWidth(int64_t k) override {
    return activations_.packed.k() == k ? &activations_ : nullptr;
  }
  int64_t num_tokens() const override { return activations_.packed.m(); }

 private:
  FidelityActivations activations_;
};

// Rows that follow each other are read in one call.
void ReadRows(const RowReader& reader, std::span<const int64_t> rows, size_t cols,
              std::span<float> out) {
  for (size_t i = 0; i < rows.size();) {
    size_t count = 1;
    while (i + count < rows.size() && rows[i + count] == rows[i] + static_cast<int64_t>(count)) {
      ++count;
    }
    reader(rows[i], static_cast<int64_t>(count), out.subspan(i * cols, count * cols));
    i += count;
  }
}

}  // namespace

std::unique_ptr<ActivationSource> SyntheticActivations(int64_t tokens, uint64_t seed) {
  return std::make_unique<Synthetic>(tokens, seed);
}

std::unique_ptr<ActivationSource> LoadedActivations(const std::string& path) {
  const ContainerPtr file = OpenContainer(path);
  const StoredTensor* chosen = nullptr;
  for (const StoredTensor& tensor : file->Tensors()) {
    if (!IsWeightFloat(tensor.dtype) || tensor.shape.rank() < 2) continue;
    if (chosen != nullptr) {
      ThrowInput("{}: expected one activation matrix, found {} and {}", path, Quoted(chosen->name),
                 Quoted(tensor.name));
    }
    chosen = &tensor;
  }
  if (chosen == nullptr) {
    ThrowInput("{}: no activations: expected an F32, F16 or BF16 tensor [tokens, K]", path);
  }
  const int64_t k = chosen->shape[chosen->shape.rank() - 1];
  const int64_t elements = chosen->shape.NumElements();
  if (elements == 0) ThrowInput("{}: {}: no activations in it", path, Quoted(chosen->name));
  const int64_t tokens = elements / k;
  const Tensor tensor = file->Get(chosen->name);
  std::vector<float> values(static_cast<size_t>(elements));
  MatrixView(tensor.view(), tokens, k).ReadRows(0, tokens, values);
  file->Verify();
  return std::make_unique<Loaded>(Rounded(std::move(values), tokens, k));
}

std::vector<int64_t> EvenRows(int64_t rows, int64_t count) {
  if (count <= 0 || count > rows) count = rows;
  std::vector<int64_t> indices(static_cast<size_t>(count));
  // ⌊i · rows / count⌋ without the product: quotient and remainder apart.
  const int64_t step = count > 0 ? rows / count : 0;
  const int64_t rest = count > 0 ? rows % count : 0;
  for (int64_t i = 0; i < count; ++i) {
    indices[static_cast<size_t>(i)] = i * step + i * rest / count;
  }
  return indices;
}

MatrixComparison::MatrixComparison(std::span<const int64_t> rows, int64_t cols, RowReader source,
                                   const FidelityActivations* activations)
    : rows_(rows), cols_(cols), source_(std::move(source)), activations_(activations) {
  if (activations_ == nullptr) return;
  constexpr size_t kMostKept = (size_t{64} << 20) / sizeof(float);
  const auto tokens = static_cast<size_t>(activations_->packed.m());
  keeps_products_ = tokens == 0 || rows_.size() <= kMostKept / tokens;
  if (keeps_products_) products_.resize(rows_.size() * tokens);
}

MatrixErrors MatrixComparison::Compare(const RowReader& decoded) {
  constexpr int64_t kBlockRows = 48;  // ReproducibleMatmul's six rows, eight times
  const auto num_rows = static_cast<int64_t>(rows_.size());
  const auto cols = static_cast<size_t>(cols_);
  const size_t tokens = activations_ == nullptr ? 0 : static_cast<size_t>(activations_->packed.m());
  const auto num_blocks = static_cast<size_t>((num_rows + kBlockRows - 1) / kBlockRows);
  std::vector<ErrorSums> weight(num_blocks);
  std::vector<ErrorSums> matmul(num_blocks);
  ParallelFor(0, num_rows, kBlockRows, [&](int64_t first, int64_t last) {
    const auto count = static_cast<size_t>(last - first);
    const auto block = static_cast<size_t>(first / kBlockRows);
    std::vector<float> original(count * cols);
    std::vector<float> approximate(count * cols);
    const std::span<const int64_t> rows = rows_.subspan(static_cast<size_t>(first), count);
    ReadRows(source_, rows, cols, original);
    ReadRows(decoded, rows, cols, approximate);
    weight[block].Add(approximate, original);
    if (tokens == 0) return;
    std::vector<float> own(keeps_products_ ? 0 : count * tokens);
    const std::span<float> reference =
        keeps_products_
            ? std::span(products_).subspan(static_cast<size_t>(first) * tokens, count * tokens)
            : std::span(own);
    if (!has_products_ || !keeps_products_) {
      ReproducibleMatmul(original, last - first, activations_->packed, reference);
    }
    std::vector<float> product(count * tokens);
    ReproducibleMatmul(approximate, last - first, activations_->packed, product);
    matmul[block].Add(product, reference);
  });
  has_products_ = true;
  MatrixErrors errors;
  ErrorSums all_weight;
  for (const ErrorSums& sums : weight) all_weight.Merge(sums);
  errors.weight = all_weight.Stats();
  if (tokens > 0) {
    ErrorSums all_matmul;
    for (const ErrorSums& sums : matmul) all_matmul.Merge(sums);
    errors.matmul = all_matmul.Stats();
  }
  return errors;
}

}  // namespace assay

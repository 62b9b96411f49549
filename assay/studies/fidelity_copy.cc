#include "assay/studies/fidelity_copy.h"

#include <fmt/format.h>

#include <utility>

#include "assay/studies/border_rows.h"

namespace assay {

std::optional<std::string> CopyMatrix::WhyNot(const Weight& source) const {
  if (pair != nullptr && pair->Has(BorderConversion::kJoinedRows)) {
    return "its rows stand in one tensor with others on one side; assay compare joins them";
  }
  if (weight == nullptr) return "the copy has no such weight";
  const bool stacked = pair != nullptr && pair->Has(BorderConversion::kStackedExperts);
  if (weight->rows() == source.rows() && weight->cols() == source.cols() &&
      index < weight->stack() && (stacked || weight->stack() == source.stack())) {
    return std::nullopt;
  }
  return fmt::format("the copy's shape is {}, not {}", weight->PlainShape().ToString(),
                     source.PlainShape().ToString());
}

CopyMatrix FindCopy(const Model& copy, const Border* border, const Weight& source, int64_t index) {
  if (border == nullptr) return {copy.FindWeight(source.name()), index, nullptr};
  const auto [pair, place] = border->Find(source.name());
  if (pair == nullptr) return {};
  const bool stacked = pair->Has(BorderConversion::kStackedExperts);
  if (!border->gguf_is_a()) {
    const int64_t expert = stacked ? static_cast<int64_t>(place) : index;
    return {copy.FindWeight(pair->gguf.front().name), expert, pair};
  }
  if (!stacked) return {copy.FindWeight(pair->folder.front()), index, pair};
  const auto expert = static_cast<size_t>(index);
  if (expert >= pair->folder.size()) return {nullptr, 0, pair};
  return {copy.FindWeight(pair->folder[expert]), 0, pair};
}

RowReader InOrderOfSource(const Border& border, const BorderPair& pair, const Weight& source,
                          RowReader decoded) {
  const int64_t heads = pair.gguf.front().heads;
  if (heads <= 0) return decoded;
  return [unpermutes = border.gguf_is_a(), rows = source.rows(),
          cols = static_cast<size_t>(source.cols()), heads,
          decoded = std::move(decoded)](int64_t first, int64_t count, std::span<float> out) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t other =
          unpermutes ? UnpermutedRow(first + i, rows, heads) : PermutedRow(first + i, rows, heads);
      decoded(other, 1, out.subspan(static_cast<size_t>(i) * cols, cols));
    }
  };
}

std::string FitsOnly(const Border& border, const BorderPair& pair, const MatrixView& source,
                     const RowReader& decoded) {
  BorderMatrix folder{source.rows(), source.cols(),
                      [&source](int64_t first, int64_t count, std::span<float> out) {
                        source.ReadRows(first, count, out);
                      }};
  BorderMatrix file{source.rows(), source.cols(), decoded};
  if (border.gguf_is_a()) std::swap(folder, file);
  const auto found = FindTransformation(folder, file, pair.Expected());
  return found ? border.Unexpected(pair, *found) : std::string();
}

}  // namespace assay

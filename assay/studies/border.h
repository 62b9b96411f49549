#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/checkpoint/gguf_names.h"
#include "assay/studies/border_rows.h"

namespace assay {

class Model;

/// What llama.cpp's converter did to a tensor, undone before it is compared.
enum class BorderConversion {
  kPermutedHeads,   ///< rows of query and key reordered in each head
  kNormPlusOne,     ///< 1 added
  kStackedExperts,  ///< one tensor for each expert in the folder, one for all in the file
  kJoinedRows,      ///< rows of several tensors in one
  kTiedEmbedding,   ///< one side has the output head, the other uses the token embedding
};

/// "permuted_heads", "norm_plus_one", …
std::string_view NameOf(BorderConversion conversion) noexcept;

/// One tensor of a GGUF file.
struct BorderPart {
  std::string name;
  int64_t heads = 0;  ///< its rows lie permuted in so many heads; 0: as in the folder
};

/// Tensors on both sides of the border that hold the same values.
struct BorderPair {
  std::vector<std::string> folder;  ///< more than one: experts in order, or parts of the rows
  std::vector<BorderPart> gguf;     ///< more than one: parts of the rows
  std::string folder_name;          ///< of all of them: "…experts.*.gate_proj.weight"
  std::string gguf_name;
  bool norm_plus_one = false;
  std::vector<BorderConversion> conversions;

  bool Has(BorderConversion conversion) const;
  /// One sentence for each conversion: "rows permuted back from 8 heads".
  std::vector<std::string> Sentences() const;
  /// What the architecture asks for, of a pair of single tensors.
  BorderTransformation Expected() const;
};

/// For a report: what was done to compare across the border.
struct BorderSummary {
  std::string architecture;  ///< of the file; empty when it names none
  int64_t num_pairs = 0;
  std::map<BorderConversion, int64_t> conversions;  ///< pairs that each was undone for

  void Add(const BorderPair& pair);
};

/// Between a Hugging Face folder (or safetensors file) and a GGUF file: which tensors are the same,
/// and what was done to them.
class Border {
 public:
  /// Nothing unless exactly one side is GGUF and less than half its tensors have the name of one
  /// of the other side's.
  static std::optional<Border> Between(const Model& a, const Model& b);

  bool gguf_is_a() const noexcept { return gguf_is_a_; }
  const std::string& architecture() const noexcept { return architecture_; }
  /// By the folder's names. A tensor stands in one pair; a tied embedding in two.
  const std::vector<BorderPair>& pairs() const noexcept { return pairs_; }
  /// Conversions that could not be undone, and why.
  const std::vector<std::string>& notes() const noexcept { return notes_; }

  /// The pair of a tensor of A, and its place among those of its side; of a tied embedding the one
  /// with the other side's embedding. Null when it has none.
  struct Place {
    const BorderPair* pair = nullptr;
    size_t index = 0;
  };
  Place Find(std::string_view name_in_a) const;

  /// fits only with its rows permuted in 8 heads; expected for architecture "qwen2": unchanged.
  std::string Unexpected(const BorderPair& pair, const BorderTransformation& found) const;

 private:
  Border() = default;

  bool gguf_is_a_ = false;
  std::string architecture_;
  std::vector<BorderPair> pairs_;
  std::vector<std::string> notes_;
  std::map<std::string, std::pair<size_t, size_t>, std::less<>> places_;  // in pairs_, in the pair
};

}  // namespace assay

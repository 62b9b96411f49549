#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

/// Where llama.cpp's converter puts a tensor of a Hugging Face folder.
struct GgufNaming {
  /// What a GGUF file may call it; which of several depends on the architecture: a
  /// post_attention_layernorm is a post_attention_norm where there is one, else the ffn_norm.
  std::vector<std::string> names;
  /// Tensors that hold its rows, one after another, in files that have all of them.
  std::vector<std::string> parts;
  /// Of a tensor that may stand, with others, in one: that one's name. Empty: none.
  std::string whole;
  /// Number of an expert, whose matrix is that entry of the stack in `names`.
  std::optional<int64_t> expert;
  /// Its name with "*" for the expert's number: the same for all of a stack.
  std::string stack;
  /// What files from before the stacks call this one expert.
  std::string single_expert;
  /// Holds query or key projections with the row order of Hugging Face's rotary embedding.
  bool rotary = false;
  /// Norm whose weight some architectures store as its distance from 1.
  bool norm = false;
  int64_t layer = -1;  ///< −1: of the model as a whole
};

/// Nothing for a name that is not in the table: vision towers, rotary tables, other models.
/// Cost: one pass over the table.
/// Source: gguf-py of llama.cpp (tensor_mapping.py, constants.py); docs/formats/gguf.md.
std::optional<GgufNaming> GgufNamingOf(std::string_view folder_name);

/// What llama.cpp's converter does to values, by `general.architecture`.
struct GgufArchitecture {
  /// Rows of q_proj and k_proj: from the halves of each head to interleaved pairs.
  bool permutes_heads = false;
  /// Every "…norm.weight" is stored with 1 added, except that of a linear attention.
  bool adds_one_to_norms = false;
};

GgufArchitecture GgufArchitectureOf(std::string_view architecture);

}  // namespace assay

#include "assay/checkpoint/gguf_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include <fmt/format.h>

namespace assay {
namespace {

struct Name {
  std::string_view folder;  ///< without "model." and the like, without ".weight" or ".bias"
  std::string_view gguf;
  /// Suffix that a GGUF file gives to a tensor whose name in the folder has none.
  std::string_view suffix = {};
};

constexpr Name kModelNames[] = {
    {"embed_tokens", "token_embd"},
    {"tok_embeddings", "token_embd"},
    {"norm", "output_norm"},
    {"final_layernorm", "output_norm"},
    {"lm_head", "output"},
    {"output", "output"},
    {"embeddings.word_embeddings", "token_embd"},
    {"embeddings.tok_embeddings", "token_embd"},
    {"embeddings.norm", "token_embd_norm"},
    {"embeddings.position_embeddings", "position_embd"},
    {"embeddings.token_type_embeddings", "token_types"},
    {"embeddings.LayerNorm", "token_embd_norm"},
};

/// Behind "layers.N." and "blk.N.". Names that stand twice: the first that the file has.
constexpr Name kLayerNames[] = {
    {"input_layernorm", "attn_norm"},
    {"attention_norm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.dense", "attn_output"},
    {"self_attn.out_proj", "attn_output"},
    {"attention.wq", "attn_q"},
    {"attention.wk", "attn_k"},
    {"attention.wv", "attn_v"},
    {"attention.wo", "attn_output"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.query_key_value", "attn_qkv"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.q_layernorm", "attn_q_norm"},
    {"self_attn.k_layernorm", "attn_k_norm"},
    {"self_attn.query_layernorm", "attn_q_norm"},
    {"self_attn.key_layernorm", "attn_k_norm"},
    {"attention.query_key_value", "attn_qkv"},
    {"attention.query_layernorm", "attn_q_norm"},
    {"attention.key_layernorm", "attn_k_norm"},
    {"attention.dense", "attn_output"},
    {"self_attn.sinks", "attn_sinks", ".weight"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"post_self_attn_layernorm", "post_attention_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"post_attention_layernorm", "ffn_norm_exps"},
    {"post_attention_layernorm", "ffn_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"pre_mlp_layernorm", "ffn_norm"},
    {"residual_layernorm", "ffn_norm"},
    {"ffn_norm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"post_mlp_layernorm", "post_ffw_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.fc1", "ffn_up"},
    {"mlp.fc2", "ffn_down"},
    {"feed_forward.w1", "ffn_gate"},
    {"feed_forward.w2", "ffn_down"},
    {"feed_forward.w3", "ffn_up"},
    {"feed_forward.gate_proj", "ffn_gate"},
    {"feed_forward.up_proj", "ffn_up"},
    {"feed_forward.down_proj", "ffn_down"},
    {"residual_mlp.w1", "ffn_gate"},
    {"residual_mlp.w2", "ffn_down"},
    {"residual_mlp.w3", "ffn_up"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.gate.wg", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"feed_forward.router", "ffn_gate_inp"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b", ".bias"},
    {"mlp.gate.expert_bias", "exp_probs_b", ".bias"},
    {"block_sparse_moe.e_score_correction_bias", "exp_probs_b", ".bias"},
    {"mlp.experts.*.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.*.up_proj", "ffn_up_exps"},
    {"mlp.experts.*.down_proj", "ffn_down_exps"},
    {"block_sparse_moe.experts.*.w1", "ffn_gate_exps"},
    {"block_sparse_moe.experts.*.w2", "ffn_down_exps"},
    {"block_sparse_moe.experts.*.w3", "ffn_up_exps"},
    {"mlp.switch_mlp.gate_proj", "ffn_gate_exps"},  // MLX
    {"mlp.switch_mlp.up_proj", "ffn_up_exps"},
    {"mlp.switch_mlp.down_proj", "ffn_down_exps"},
    {"mlp.experts.gate_proj", "ffn_gate_exps", ".weight"},
    {"mlp.experts.up_proj", "ffn_up_exps", ".weight"},
    {"mlp.experts.down_proj", "ffn_down_exps", ".weight"},
    {"mlp.experts.gate_up_proj", "ffn_gate_up_exps", ".weight"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"mlp.shared_mlp.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_mlp.up_proj", "ffn_up_shexp"},
    {"mlp.shared_mlp.down_proj", "ffn_down_shexp"},
    {"block_sparse_moe.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"block_sparse_moe.shared_experts.up_proj", "ffn_up_shexp"},
    {"block_sparse_moe.shared_experts.down_proj", "ffn_down_shexp"},
    {"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"feed_forward.shared_expert.up_proj", "ffn_up_shexp"},
    {"feed_forward.shared_expert.down_proj", "ffn_down_shexp"},
    {"attn_norm", "attn_norm"},
    {"attn.Wqkv", "attn_qkv"},
    {"attn.Wo", "attn_output"},
    {"mlp_norm", "ffn_norm"},
    {"mlp.Wi", "ffn_up"},
    {"mlp.Wo", "ffn_down"},
    {"attention.self.query", "attn_q"},
    {"attention.self.key", "attn_k"},
    {"attention.self.value", "attn_v"},
    {"attention.output.dense", "attn_output"},
    {"attention.output.LayerNorm", "attn_output_norm"},
    {"intermediate.dense", "ffn_up"},
    {"output.dense", "ffn_down"},
    {"output.LayerNorm", "layer_output_norm"},
};

/// One tensor of the folder, several of the file, in the order of their rows.
struct Parts {
  std::string_view folder;
  std::array<std::string_view, 3> gguf;
};

constexpr Parts kParts[] = {
    {"self_attn.W_pack", {"attn_q", "attn_k", "attn_v"}},
    {"self_attn.qkv_proj", {"attn_q", "attn_k", "attn_v"}},
    {"mlp.gate_up_proj", {"ffn_gate", "ffn_up"}},
    {"mlp.experts.gate_up_proj", {"ffn_gate_exps", "ffn_up_exps"}},
};

/// Several of the folder, one of the file.
constexpr Name kWholes[] = {
    {"self_attn.q_proj", "attn_qkv"},
    {"self_attn.k_proj", "attn_qkv"},
    {"self_attn.v_proj", "attn_qkv"},
};

/// Before the names of the language model, longest first: bare, or inside a multimodal one.
constexpr std::string_view kPrefixes[] = {
    "model.language_model.",
    "language_model.model.",
    "model.text_model.",
    "language_model.",
    "model.",
    "bert.",
};

bool Cut(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// The number that `text` starts with when a dot follows; both are cut off.
std::optional<int64_t> CutNumber(std::string_view& text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  // "007" would give one name to two tensors.
  const bool plain = rest == text.data() + 1 || !text.starts_with('0');
  if (error != std::errc() || rest == end || *rest != '.' || number < 0 || !plain) return {};
  text.remove_prefix(static_cast<size_t>(rest - text.data()) + 1);
  return number;
}

struct Layered {
  int64_t layer = -1;
  std::string_view name;
};

Layered SplitLayer(std::string_view name) {
  for (const std::string_view prefix : {"layers.", "encoder.layer."}) {
    std::string_view rest = name;
    if (!Cut(rest, prefix)) continue;
    if (const auto layer = CutNumber(rest)) return {*layer, rest};
  }
  return {-1, name};
}

/// ".weight" or ".bias", cut off; empty when there is neither.
std::string_view CutSuffix(std::string_view& name) {
  for (const std::string_view suffix : {".weight", ".bias"}) {
    if (!name.ends_with(suffix)) continue;
    name.remove_suffix(suffix.size());
    return suffix;
  }
  return {};
}

std::string InFile(int64_t layer, std::string_view name, std::string_view suffix) {
  return layer < 0 ? fmt::format("{}{}", name, suffix)
                   : fmt::format("blk.{}.{}{}", layer, name, suffix);
}

}  // namespace

std::optional<GgufNaming> GgufNamingOf(std::string_view folder_name) {
  std::string_view rest = folder_name;
  for (const std::string_view prefix : kPrefixes) {
    if (Cut(rest, prefix)) break;
  }
  GgufNaming naming;
  const Layered layered = SplitLayer(rest);
  naming.layer = layered.layer;
  std::string_view part = layered.name;
  const std::string_view suffix = CutSuffix(part);
  std::string key(part);
  constexpr std::string_view kExperts = "experts.";
  if (const size_t experts = part.find(kExperts); experts != std::string_view::npos) {
    std::string_view after = part.substr(experts + kExperts.size());
    if (const auto expert = CutNumber(after)) {
      naming.expert = expert;
      key = fmt::format("{}*.{}", part.substr(0, experts + kExperts.size()), after);
      const auto head = folder_name.size() - suffix.size() - part.size();
      naming.stack = fmt::format("{}{}{}", folder_name.substr(0, head), key, suffix);
    }
  }
  const std::span<const Name> table =
      naming.layer < 0 ? std::span<const Name>(kModelNames) : std::span<const Name>(kLayerNames);
  std::string_view file_suffix = suffix;
  for (const Name& name : table) {
    if (name.folder != key) continue;
    if (suffix.empty()) file_suffix = name.suffix;
    if (file_suffix.empty()) continue;
    naming.names.push_back(InFile(naming.layer, name.gguf, file_suffix));
    if (naming.expert) {
      const std::string_view one = name.gguf.substr(0, name.gguf.rfind("_exps"));
      naming.single_expert =
          InFile(naming.layer, fmt::format("{}.{}", one, *naming.expert), file_suffix);
    }
  }
  if (naming.layer >= 0) {
    for (const Parts& parts : kParts) {
      if (parts.folder != key) continue;
      if (file_suffix.empty()) file_suffix = ".weight";
      for (const std::string_view gguf : parts.gguf) {
        if (!gguf.empty()) naming.parts.push_back(InFile(naming.layer, gguf, file_suffix));
      }
    }
    for (const Name& whole : kWholes) {
      if (whole.folder == key) naming.whole = InFile(naming.layer, whole.gguf, file_suffix);
    }
  }
  if (naming.names.empty() && naming.parts.empty()) return std::nullopt;
  naming.rotary =
      key == "self_attn.q_proj" || key == "self_attn.k_proj" || key == "self_attn.W_pack";
  naming.norm = folder_name.ends_with("norm.weight");
  return naming;
}

GgufArchitecture GgufArchitectureOf(std::string_view architecture) {
  constexpr std::string_view kPermuting[] = {
      "arcee", "baichuan", "deci",     "granite", "granitehybrid", "granitemoe",
      "llama", "minicpm",  "mistral3", "olmo",    "smollm3",       "xverse",
  };
  constexpr std::string_view kAddingOne[] = {
      "gemma",    "gemma-embedding", "gemma2",    "gemma3",
      "nemotron", "qwen35",          "qwen35moe", "qwen3next",
  };
  return {std::ranges::find(kPermuting, architecture) != std::end(kPermuting),
          std::ranges::find(kAddingOne, architecture) != std::end(kAddingOne)};
}

}  // namespace assay

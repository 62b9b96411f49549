#include "assay/checkpoint/gguf_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> NamesOf(std::string_view folder_name) {
  const auto naming = GgufNamingOf(folder_name);
  return naming ? naming->names : std::vector<std::string>();
}

TEST(GgufNames, TheNamesOfALlama) {
  EXPECT_THAT(NamesOf("model.embed_tokens.weight"), ElementsAre("token_embd.weight"));
  EXPECT_THAT(NamesOf("model.norm.weight"), ElementsAre("output_norm.weight"));
  EXPECT_THAT(NamesOf("lm_head.weight"), ElementsAre("output.weight"));
  EXPECT_THAT(NamesOf("model.layers.17.self_attn.q_proj.weight"),
              ElementsAre("blk.17.attn_q.weight"));
  EXPECT_THAT(NamesOf("model.layers.0.self_attn.k_proj.bias"), ElementsAre("blk.0.attn_k.bias"));
  EXPECT_THAT(NamesOf("model.layers.0.mlp.down_proj.weight"), ElementsAre("blk.0.ffn_down.weight"));
  EXPECT_THAT(NamesOf("model.layers.0.input_layernorm.weight"),
              ElementsAre("blk.0.attn_norm.weight"));
  EXPECT_THAT(NamesOf("model.layers.0.post_attention_layernorm.weight"),
              ElementsAre("blk.0.post_attention_norm.weight", "blk.0.ffn_norm_exps.weight",
                          "blk.0.ffn_norm.weight"));
}

TEST(GgufNames, LanguageModelsInsideOthersAndOtherFamilies) {
  for (const char* prefix :
       {"", "model.", "language_model.", "model.language_model.", "language_model.model."}) {
    EXPECT_THAT(NamesOf(std::string(prefix) + "layers.3.self_attn.o_proj.weight"),
                ElementsAre("blk.3.attn_output.weight"));
  }
  EXPECT_THAT(NamesOf("layers.3.attention.wq.weight"), ElementsAre("blk.3.attn_q.weight"));
  EXPECT_THAT(NamesOf("bert.encoder.layer.5.attention.self.query.bias"),
              ElementsAre("blk.5.attn_q.bias"));
  EXPECT_THAT(NamesOf("model.layers.1.self_attn.sinks"), ElementsAre("blk.1.attn_sinks.weight"));
  EXPECT_THAT(NamesOf("model.layers.4.mlp.gate.e_score_correction_bias"),
              ElementsAre("blk.4.exp_probs_b.bias"));
}

TEST(GgufNames, Experts) {
  const auto naming = GgufNamingOf("model.layers.2.block_sparse_moe.experts.11.w3.weight");
  ASSERT_TRUE(naming);
  EXPECT_THAT(naming->names, ElementsAre("blk.2.ffn_up_exps.weight"));
  EXPECT_EQ(naming->expert, 11);
  EXPECT_EQ(naming->stack, "model.layers.2.block_sparse_moe.experts.*.w3.weight");
  EXPECT_EQ(naming->single_expert, "blk.2.ffn_up.11.weight");
  EXPECT_THAT(NamesOf("model.layers.2.mlp.experts.0.down_proj.weight"),
              ElementsAre("blk.2.ffn_down_exps.weight"));
  EXPECT_THAT(NamesOf("model.layers.2.mlp.shared_experts.up_proj.weight"),
              ElementsAre("blk.2.ffn_up_shexp.weight"));
}

TEST(GgufNames, JoinedRows) {
  const auto qkv = GgufNamingOf("model.layers.0.self_attn.W_pack.weight");
  ASSERT_TRUE(qkv);
  EXPECT_THAT(qkv->names, IsEmpty());
  EXPECT_THAT(qkv->parts,
              ElementsAre("blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"));
  EXPECT_TRUE(qkv->rotary);
  const auto q = GgufNamingOf("model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(q->whole, "blk.0.attn_qkv.weight");
  EXPECT_TRUE(q->rotary);
  const auto gate_up = GgufNamingOf("model.layers.0.mlp.experts.gate_up_proj");
  ASSERT_TRUE(gate_up);
  EXPECT_THAT(gate_up->names, ElementsAre("blk.0.ffn_gate_up_exps.weight"));
  EXPECT_THAT(gate_up->parts,
              ElementsAre("blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"));
}

TEST(GgufNames, WhatIsInNoTableHasNoName) {
  for (const char* name :
       {"", "model.", "model.layers.", "model.layers.0", "model.layers.0.", "layers.0.weight",
        "model.layers.00.mlp.up_proj.weight", "model.layers.01.mlp.up_proj.weight",
        "model.layers.-1.mlp.up_proj.weight", "model.layers.x.mlp.up_proj.weight",
        "model.layers.99999999999999999999.mlp.up_proj.weight",
        "model.layers.0.mlp.experts.007.up_proj.weight",
        "model.layers.0.mlp.experts.-1.up_proj.weight", "model.layers.0.self_attn.q_proj",
        "model.vision_tower.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight",
        "model.layers.0.self_attn.q_proj.weight.scales", "weight", ".weight"}) {
    EXPECT_FALSE(GgufNamingOf(name)) << name;
  }
}

TEST(GgufNames, ArchitecturesThatConvert) {
  EXPECT_TRUE(GgufArchitectureOf("llama").permutes_heads);
  EXPECT_FALSE(GgufArchitectureOf("llama").adds_one_to_norms);
  EXPECT_TRUE(GgufArchitectureOf("gemma3").adds_one_to_norms);
  for (const char* name : {"qwen2", "qwen3moe", "llama4", "gemma4", "gemma3n", ""}) {
    EXPECT_FALSE(GgufArchitectureOf(name).permutes_heads) << name;
    EXPECT_FALSE(GgufArchitectureOf(name).adds_one_to_norms) << name;
  }
}

}  // namespace
}  // namespace assay

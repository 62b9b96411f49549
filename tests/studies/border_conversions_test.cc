// What llama.cpp's converter does to values, undone: norms, stacks of experts, joined rows, tied
// heads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/checkpoint/gguf_writer.h"
#include "assay/checkpoint/model.h"
#include "assay/checkpoint/writer.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/random.h"
#include "assay/tensor/convert.h"
#include "tests/support/fixture.h"
#include "tests/support/twins.h"

namespace assay {
namespace {

using test::AddEnds;
using test::ExpectAllEqual;
using test::Find;
using test::kHidden;
using test::Named;
using test::Permuted;
using test::Random;
using test::RowsJoined;
using test::Shifted;
using test::Stacked;
using test::Twins;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Border, NormsOfGemmaHaveOneAdded) {
  Twins twins;
  twins.Architecture("gemma2");
  const auto norm = [&](const std::string& in_folder, const std::string& in_file, float shift) {
    const SmallTensor tensor = Random("model." + in_folder, {kHidden});
    twins.Add(tensor, Named(Shifted(tensor, shift), in_file));
  };
  twins.AddSame("model.embed_tokens.weight", "token_embd.weight", {20, kHidden});
  norm("norm.weight", "output_norm.weight", 1);
  norm("layers.0.input_layernorm.weight", "blk.0.attn_norm.weight", 1);
  norm("layers.0.post_attention_layernorm.weight", "blk.0.post_attention_norm.weight", 1);
  norm("layers.0.pre_feedforward_layernorm.weight", "blk.0.ffn_norm.weight", 1);
  norm("layers.0.post_feedforward_layernorm.weight", "blk.0.post_ffw_norm.weight", 1);
  for (const bool folder_first : {true, false}) {
    const CompareReport report = twins.Compare(folder_first);
    ExpectAllEqual(report, 6);
    EXPECT_EQ(report.border->conversions.at(BorderConversion::kNormPlusOne), 5);
  }
  // An architecture that does not.
  twins.Architecture("llama");
  const CompareReport wrong = twins.Compare();
  EXPECT_EQ(wrong.num_failed, 5);
  EXPECT_EQ(Find(wrong, "model.norm.weight").fits_only,
            "fits only with 1 added; expected for architecture \"llama\": unchanged");
  // One that should have been.
  twins.Architecture("gemma2");
  norm("layers.1.input_layernorm.weight", "blk.1.attn_norm.weight", 0);
  const CompareReport missing = twins.Compare();
  EXPECT_EQ(missing.num_failed, 1);
  EXPECT_EQ(Find(missing, "model.layers.1.input_layernorm.weight").fits_only,
            "fits only unchanged; expected for architecture \"gemma2\": with 1 added");
}

// The converter leaves f16 as it is while it adds, and makes f32 of bf16 before.
TEST(Border, NormsInHalfPrecisionAreAddedToAsTheConverterDoes) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const test::TempFolder folder;
    const std::string plain = folder / "model.safetensors";
    const std::string file = folder / "model.gguf";
    std::vector<float> values(4096);
    NormalGenerator(20261201).Fill(values);
    std::vector<std::byte> stored(values.size() * 2);
    Round(ElementOf(dtype), values, stored);
    auto writer = SafetensorsWriter::ToFile(plain, {{"model.norm.weight", dtype, Shape{4096}}});
    writer->Write("model.norm.weight", stored);
    writer->Commit();
    Widen(ElementOf(dtype), stored, values);
    for (float& value : values) value += 1;
    if (dtype == DType::kF16) {
      Round(ElementOf(dtype), values, stored);
      Widen(ElementOf(dtype), stored, values);
    }
    GgufMetadata metadata;
    metadata.Append("general.architecture", GgufValue::Of("gemma3"));
    GgufWriter gguf(file, {{"output_norm.weight", DType::kF32, Shape{4096}}}, metadata);
    gguf.Write("output_norm.weight", std::as_bytes(std::span(values)));
    gguf.Commit();
    CompareOptions options;
    options.a = plain;
    options.b = file;
    options.gates.equal = true;
    ExpectAllEqual(RunCompare(options), 1);
  }
}

// Weights that the folder holds encoded are decoded, whatever they are encoded in.
TEST(Border, AnEncodedFolderEqualsAFileOfItsDecodedValues) {
  const test::TempFolder folder;
  const std::string file = folder / "model.gguf";
  const Model model = Model::Open(test::TestDataPath("mlx/model-affine-mixed"));
  std::vector<TensorSpec> specs;
  std::vector<Tensor> decoded;
  for (const Weight& weight : model.Weights()) {
    const auto naming = GgufNamingOf(weight.name());
    if (!naming || naming->names.empty() || weight.stacked()) continue;
    Tensor values = Tensor::Allocate(DType::kF32, weight.PlainShape());
    weight.ReadRows(0, 0, weight.rows(), values.mutable_as<float>());
    specs.push_back({naming->names.front(), DType::kF32, weight.PlainShape()});
    decoded.push_back(values);
  }
  ASSERT_GE(specs.size(), 10u);
  GgufMetadata metadata;
  metadata.Append("general.architecture", GgufValue::Of("qwen2"));
  GgufWriter writer(file, specs, metadata);
  for (size_t i = 0; i < specs.size(); ++i) writer.Write(specs[i].name, decoded[i].bytes());
  writer.Commit();
  CompareOptions options;
  options.a = test::TestDataPath("mlx/model-affine-mixed");
  options.b = file;
  options.allow_missing = true;
  options.allow_dtype = true;
  options.gates.equal = true;
  const CompareReport report = RunCompare(options);
  EXPECT_EQ(report.num_failed, 0);
  EXPECT_EQ(report.num_compared, static_cast<int64_t>(specs.size()));
  EXPECT_EQ(report.border->num_pairs, report.num_compared);
}

TEST(Border, ExpertsAreStackedInTheirOrder) {
  Twins twins;
  twins.Architecture("qwen3moe");
  std::vector<SmallTensor> experts;
  for (int expert = 0; expert < 12; ++expert) {
    experts.push_back(Random(fmt::format("model.layers.0.mlp.experts.{}.gate_proj.weight", expert),
                             {16, kHidden}));
    twins.AddToFolder(experts.back());
  }
  twins.AddToFile(Stacked(experts, "blk.0.ffn_gate_exps.weight"));
  AddEnds(twins);
  const std::string shown = "model.layers.0.mlp.experts.*.gate_proj.weight";
  for (const bool folder_first : {true, false}) {
    const CompareReport report = twins.Compare(folder_first);
    ExpectAllEqual(report, 4);
    const ComparedTensor& stack = Find(report, folder_first ? shown : "blk.0.ffn_gate_exps.weight");
    EXPECT_EQ(stack.difference->shape, (Shape{12, 16, kHidden}));
    EXPECT_THAT(stack.conversions, ElementsAre("12 experts stacked"));
    const FidelityReport fidelity = twins.Fidelity(folder_first);
    EXPECT_EQ(fidelity.results.size(), 14u);
    for (const FidelityResult& result : fidelity.results) {
      EXPECT_EQ(result.weight.relative_rmse, 0.0) << result.tensor;
    }
    EXPECT_EQ(fidelity.border->conversions.at(BorderConversion::kStackedExperts), 1);
  }
}

TEST(Border, AGapAmongTheExpertsLeavesThemAlone) {
  Twins twins;
  twins.Architecture("qwen3moe");
  std::vector<SmallTensor> experts;
  for (const int64_t expert : {int64_t{0}, int64_t{2}, int64_t{4611686018427387904}}) {
    experts.push_back(
        Random(fmt::format("model.layers.0.mlp.experts.{}.up_proj.weight", expert), {16, kHidden}));
    twins.AddToFolder(experts.back());
  }
  twins.AddToFile(Stacked(experts, "blk.0.ffn_up_exps.weight"));
  AddEnds(twins);
  const CompareReport report = twins.Compare();
  EXPECT_EQ(report.num_failed, 4);
  EXPECT_THAT(report.notes, Contains(HasSubstr("3 experts, but their numbers go up to")));
  EXPECT_THAT(Find(report, "blk.0.ffn_up_exps.weight").reasons, ElementsAre("only in B"));
}

TEST(Border, ExpertsOfDifferentShapesAreLeftAlone) {
  Twins twins;
  twins.AddToFolder(Random("model.layers.0.mlp.experts.0.up_proj.weight", {16, kHidden}));
  twins.AddToFolder(Random("model.layers.0.mlp.experts.1.up_proj.weight", {8, kHidden}));
  twins.AddToFile(Random("blk.0.ffn_up_exps.weight", {2, 16, kHidden}));
  AddEnds(twins);
  const CompareReport report = twins.Compare();
  EXPECT_EQ(report.num_failed, 3);
  EXPECT_THAT(report.notes, Contains(HasSubstr("do not go together")));
}

TEST(Border, OldFilesHoldEachExpertAlone) {
  Twins twins;
  for (int expert = 0; expert < 2; ++expert) {
    twins.AddSame(fmt::format("model.layers.0.block_sparse_moe.experts.{}.w2.weight", expert),
                  fmt::format("blk.0.ffn_down.{}.weight", expert), {kHidden, 16});
  }
  AddEnds(twins);
  ExpectAllEqual(twins.Compare(), 5);
}

TEST(Border, RowsOfSeveralTensorsAreJoined) {
  Twins twins;
  twins.Architecture("baichuan");
  twins.Number("baichuan.attention.head_count", 4);
  twins.Number("baichuan.attention.head_count_kv", 4);
  const SmallTensor q = Random("blk.0.attn_q.weight", {32, kHidden});
  const SmallTensor k = Random("blk.0.attn_k.weight", {32, kHidden});
  const SmallTensor v = Random("blk.0.attn_v.weight", {32, kHidden});
  twins.AddToFolder(RowsJoined({q, k, v}, "model.layers.0.self_attn.W_pack.weight"));
  twins.AddToFile(Permuted(q, 4));
  twins.AddToFile(Permuted(k, 4));
  twins.AddToFile(v);
  AddEnds(twins);
  for (const bool folder_first : {true, false}) {
    const CompareReport report = twins.Compare(folder_first);
    ExpectAllEqual(report, 4);
    EXPECT_EQ(report.border->conversions.at(BorderConversion::kJoinedRows), 1);
  }
  const FidelityReport fidelity = twins.Fidelity();
  ASSERT_EQ(fidelity.skipped.size(), 1u);
  EXPECT_THAT(fidelity.skipped[0].reason, HasSubstr("assay compare joins them"));
}

TEST(Border, QueryKeyAndValueMayBeOneTensorInTheFile) {
  Twins twins;
  twins.Architecture("qwen2");
  std::vector<SmallTensor> parts;
  std::vector<SmallTensor> biases;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    const int64_t rows = name[0] == 'q' ? 32 : 16;
    const std::string base = fmt::format("model.layers.0.self_attn.{}", name);
    parts.push_back(Random(base + ".weight", {rows, kHidden}));
    biases.push_back(Random(base + ".bias", {rows}));
    twins.AddToFolder(parts.back());
    twins.AddToFolder(biases.back());
  }
  twins.AddToFile(RowsJoined(parts, "blk.0.attn_qkv.weight"));
  twins.AddToFile(RowsJoined(biases, "blk.0.attn_qkv.bias"));
  AddEnds(twins);
  for (const bool folder_first : {true, false}) ExpectAllEqual(twins.Compare(folder_first), 5);
}

TEST(Border, GateAndUpOfStackedExpertsAreJoinedInEachOfThem) {
  Twins twins;
  twins.Architecture("qwen3moe");
  std::vector<SmallTensor> gates, ups, both;
  for (int expert = 0; expert < 3; ++expert) {
    gates.push_back(Random("gate", {16, kHidden}));
    ups.push_back(Random("up", {16, kHidden}));
    both.push_back(RowsJoined({gates.back(), ups.back()}, ""));
  }
  twins.AddToFolder(Stacked(both, "model.layers.0.mlp.experts.gate_up_proj"));
  twins.AddToFile(Stacked(gates, "blk.0.ffn_gate_exps.weight"));
  twins.AddToFile(Stacked(ups, "blk.0.ffn_up_exps.weight"));
  AddEnds(twins);
  for (const bool folder_first : {true, false}) ExpectAllEqual(twins.Compare(folder_first), 4);
}

TEST(Border, ATiedHeadIsComparedWithTheEmbedding) {
  for (const bool head_in_folder : {true, false}) {
    Twins twins;
    const SmallTensor embedding = Random("model.embed_tokens.weight", {20, kHidden});
    twins.Add(embedding, Named(embedding, "token_embd.weight"));
    if (head_in_folder) {
      twins.AddToFolder(Named(embedding, "lm_head.weight"));
    } else {
      twins.AddToFile(Named(embedding, "output.weight"));
    }
    for (const bool folder_first : {true, false}) {
      const CompareReport report = twins.Compare(folder_first);
      ExpectAllEqual(report, 2);
      EXPECT_EQ(report.border->conversions.at(BorderConversion::kTiedEmbedding), 1);
    }
  }
  // No head on either side: nothing to say.
  Twins neither;
  AddEnds(neither, false);
  EXPECT_THAT(neither.Compare().border->conversions, IsEmpty());
}

}  // namespace
}  // namespace assay

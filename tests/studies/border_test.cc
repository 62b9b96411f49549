// A folder and the GGUF file that llama.cpp's converter would make of it, against each other.

#include "assay/studies/border.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/gguf_writer.h"
#include "assay/checkpoint/model.h"
#include "assay/checkpoint/writer.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/random.h"
#include "assay/studies/compare.h"
#include "assay/studies/fidelity.h"
#include "assay/tensor/convert.h"
#include "tests/support/fixture.h"
#include "tests/support/temp_folder.h"
#include "tests/support/write_safetensors.h"

namespace assay {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kHidden = 32;

SmallTensor Random(const std::string& name, const std::vector<int64_t>& shape) {
  static uint64_t seed = 0;
  SmallTensor tensor{name, shape, {}};
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  tensor.values.resize(static_cast<size_t>(count));
  NormalGenerator(20261201 + seed++).Fill(tensor.values);
  return tensor;
}

SmallTensor Named(SmallTensor tensor, const std::string& name) {
  tensor.name = name;
  return tensor;
}

/// As the converter says it: [heads, 2, half, …] with the two middle axes changed over.
SmallTensor Permuted(const SmallTensor& tensor, int64_t heads) {
  SmallTensor permuted = tensor;
  const auto rows = static_cast<size_t>(tensor.shape[0]);
  const size_t cols = tensor.values.size() / rows;
  const size_t half = rows / static_cast<size_t>(heads) / 2;
  size_t to = 0;
  for (size_t head = 0; head < static_cast<size_t>(heads); ++head) {
    for (size_t i = 0; i < half; ++i) {
      for (size_t j = 0; j < 2; ++j) {
        const size_t from = (head * 2 + j) * half + i;
        for (size_t k = 0; k < cols; ++k) {
          permuted.values[to++] = tensor.values[from * cols + k];
        }
      }
    }
  }
  return permuted;
}

SmallTensor Shifted(SmallTensor tensor, float shift) {
  for (float& value : tensor.values) value += shift;
  return tensor;
}

SmallTensor Stacked(const std::vector<SmallTensor>& tensors, const std::string& name) {
  SmallTensor stack{name, tensors[0].shape, {}};
  stack.shape.insert(stack.shape.begin(), static_cast<int64_t>(tensors.size()));
  for (const SmallTensor& tensor : tensors) {
    stack.values.insert(stack.values.end(), tensor.values.begin(), tensor.values.end());
  }
  return stack;
}

SmallTensor RowsJoined(const std::vector<SmallTensor>& tensors, const std::string& name) {
  SmallTensor joined = Stacked(tensors, name);
  joined.shape.erase(joined.shape.begin());
  joined.shape[0] = 0;
  for (const SmallTensor& tensor : tensors) joined.shape[0] += tensor.shape[0];
  return joined;
}

/// One model twice.
class Twins {
 public:
  Twins() {
    metadata_.Append("general.architecture", GgufValue::Of("llama"));
    folder_.Write("folder.txt", "");
  }

  void Architecture(std::string_view name) {
    metadata_.Set("general.architecture", GgufValue::Of(name));
  }
  void Number(std::string_view key, uint32_t value) { metadata_.Set(key, GgufValue::Of(value)); }
  void Value(std::string_view key, GgufValue value) { metadata_.Set(key, std::move(value)); }
  void Config(const std::string& text) { config_ = text; }
  void Add(const SmallTensor& in_folder, const SmallTensor& in_file) {
    AddToFolder(in_folder);
    AddToFile(in_file);
  }
  void AddToFolder(const SmallTensor& tensor) { in_folder_.push_back(tensor); }
  void AddToFile(const SmallTensor& tensor) { in_file_.push_back(tensor); }

  /// Adds the same values under two names.
  void AddSame(const std::string& in_folder, const std::string& in_file,
               const std::vector<int64_t>& shape) {
    const SmallTensor tensor = Random(in_folder, shape);
    Add(tensor, Named(tensor, in_file));
  }

  std::string Folder() const {
    WriteSafetensors(folder_ / "model.safetensors", in_folder_);
    folder_.Write("config.json", config_);
    return folder_.path();
  }
  std::string File() const {
    std::vector<TensorSpec> specs;
    for (const SmallTensor& tensor : in_file_) {
      specs.push_back({tensor.name, DType::kF32, Shape(tensor.shape)});
    }
    GgufWriter writer(file_folder_ / "model.gguf", specs, metadata_);
    for (const SmallTensor& tensor : in_file_) {
      writer.Write(tensor.name, std::as_bytes(std::span(tensor.values)));
    }
    writer.Commit();
    return file_folder_ / "model.gguf";
  }

  CompareReport Compare(bool folder_first = true) const {
    CompareOptions options;
    options.a = folder_first ? Folder() : File();
    options.b = folder_first ? File() : Folder();
    options.gates.equal = true;
    return RunCompare(options);
  }
  FidelityReport Fidelity(bool folder_first = true) const {
    FidelityOptions options;
    options.model = folder_first ? Folder() : File();
    options.against = folder_first ? File() : Folder();
    options.tokens = 4;
    options.repeats = 0;
    return RunFidelity(options);
  }

 private:
  test::TempFolder folder_;
  test::TempFolder file_folder_;
  GgufMetadata metadata_;
  std::string config_ = "{}";
  std::vector<SmallTensor> in_folder_;
  std::vector<SmallTensor> in_file_;
};

const ComparedTensor& Find(const CompareReport& report, std::string_view name) {
  for (const ComparedTensor& tensor : report.tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::out_of_range(std::string(name));
}

/// 4 heads of 8 rows for the query, 2 for the key.
void AddLlamaLayer(Twins& twins, int layer, int64_t query_heads = 4, int64_t key_heads = 2) {
  const std::string in_folder = fmt::format("model.layers.{}.", layer);
  const std::string in_file = fmt::format("blk.{}.", layer);
  const auto add_permuted = [&](const char* name, const char* short_name,
                                const std::vector<int64_t>& shape, int64_t heads) {
    const SmallTensor tensor = Random(in_folder + name, shape);
    twins.Add(tensor, Named(heads > 0 ? Permuted(tensor, heads) : tensor, in_file + short_name));
  };
  add_permuted("self_attn.q_proj.weight", "attn_q.weight", {32, kHidden}, query_heads);
  add_permuted("self_attn.q_proj.bias", "attn_q.bias", {32}, query_heads);
  add_permuted("self_attn.k_proj.weight", "attn_k.weight", {16, kHidden}, key_heads);
  twins.AddSame(in_folder + "self_attn.v_proj.weight", in_file + "attn_v.weight", {16, kHidden});
  twins.AddSame(in_folder + "self_attn.o_proj.weight", in_file + "attn_output.weight",
                {kHidden, 32});
  twins.AddSame(in_folder + "mlp.gate_proj.weight", in_file + "ffn_gate.weight", {48, kHidden});
  twins.AddSame(in_folder + "mlp.up_proj.weight", in_file + "ffn_up.weight", {48, kHidden});
  twins.AddSame(in_folder + "mlp.down_proj.weight", in_file + "ffn_down.weight", {kHidden, 48});
  twins.AddSame(in_folder + "input_layernorm.weight", in_file + "attn_norm.weight", {kHidden});
  twins.AddSame(in_folder + "post_attention_layernorm.weight", in_file + "ffn_norm.weight",
                {kHidden});
}

void AddEnds(Twins& twins, bool head = true) {
  twins.AddSame("model.embed_tokens.weight", "token_embd.weight", {20, kHidden});
  twins.AddSame("model.norm.weight", "output_norm.weight", {kHidden});
  if (head) twins.AddSame("lm_head.weight", "output.weight", {20, kHidden});
}

void SetLlamaHeads(Twins& twins) {
  twins.Number("llama.attention.head_count", 4);
  twins.Number("llama.attention.head_count_kv", 2);
}

void ExpectAllEqual(const CompareReport& report, size_t num_tensors) {
  EXPECT_EQ(report.tensors.size(), num_tensors);
  for (const ComparedTensor& tensor : report.tensors) {
    EXPECT_TRUE(tensor.passed) << tensor.name << ": " << testing::PrintToString(tensor.reasons);
    EXPECT_EQ(tensor.fits_only, "");
  }
}

TEST(Border, RowsOfHeadsThereAndBack) {
  for (const int64_t heads : {1, 2, 3, 8}) {
    const int64_t rows = heads * 10;
    std::set<int64_t> seen;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t other = PermutedRow(row, rows, heads);
      EXPECT_EQ(UnpermutedRow(other, rows, heads), row);
      EXPECT_EQ(other / 10, row / 10);
      seen.insert(other);
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(rows));
  }
  // The second half of a head goes to the odd rows.
  EXPECT_EQ(PermutedRow(8 + 5, 16, 2), 8 + 3);
  for (const int64_t heads : {int64_t{0}, int64_t{-1}, int64_t{3}, int64_t{32}, INT64_MAX}) {
    EXPECT_FALSE(HeadsFit(32, heads)) << heads;
  }
  EXPECT_FALSE(HeadsFit(0, 1));
}

TEST(Border, ALlamaEqualsItsGgufFile) {
  Twins twins;
  SetLlamaHeads(twins);
  AddLlamaLayer(twins, 0);
  AddLlamaLayer(twins, 11);
  AddEnds(twins);
  for (const bool folder_first : {true, false}) {
    SCOPED_TRACE(folder_first);
    const CompareReport report = twins.Compare(folder_first);
    ExpectAllEqual(report, 23);
    EXPECT_EQ(report.border->architecture, "llama");
    EXPECT_EQ(report.border->num_pairs, 23);
    EXPECT_EQ(report.border->conversions,
              (std::map<BorderConversion, int64_t>{{BorderConversion::kPermutedHeads, 6}}));
    const ComparedTensor& key = Find(
        report, folder_first ? "model.layers.11.self_attn.k_proj.weight" : "blk.11.attn_k.weight");
    EXPECT_EQ(key.reference,
              folder_first ? "blk.11.attn_k.weight" : "model.layers.11.self_attn.k_proj.weight");
    EXPECT_THAT(key.conversions, ElementsAre("rows permuted back from 2 heads"));
  }
}

TEST(Border, FidelityReadsTheCopyInTheOrderOfTheSource) {
  Twins twins;
  SetLlamaHeads(twins);
  AddLlamaLayer(twins, 0);
  AddEnds(twins);
  for (const bool folder_first : {true, false}) {
    const FidelityReport report = twins.Fidelity(folder_first);
    ASSERT_EQ(report.results.size(), 9u);
    for (const FidelityResult& result : report.results) {
      EXPECT_EQ(result.weight.relative_rmse, 0.0) << result.tensor;
      EXPECT_EQ(result.matmul->relative_rmse, 0.0) << result.tensor;
      EXPECT_EQ(result.fits_only, "");
    }
    EXPECT_EQ(report.border->conversions.at(BorderConversion::kPermutedHeads), 2);
    EXPECT_THAT(report.skipped, IsEmpty());
  }
}

TEST(Border, HeadsComeFromTheConfigWhereTheFileSaysNothing) {
  Twins twins;
  twins.Config(R"({"text_config": {"num_attention_heads": 4, "num_key_value_heads": 2}})");
  AddLlamaLayer(twins, 0);
  AddEnds(twins);
  ExpectAllEqual(twins.Compare(), 13);
}

TEST(Border, HeadsMayDifferFromLayerToLayer) {
  Twins twins;
  twins.Architecture("deci");
  const std::vector<uint32_t> heads = {2, 4};
  const std::vector<uint32_t> key_heads = {1, 2};
  const auto array = [](const std::vector<uint32_t>& values) {
    return GgufValue(GgufType::kArray, GgufType::kU32, values.size(),
                     std::as_bytes(std::span(values)), nullptr);
  };
  twins.Value("deci.attention.head_count", array(heads));
  twins.Value("deci.attention.head_count_kv", array(key_heads));
  AddLlamaLayer(twins, 0, 2, 1);
  AddLlamaLayer(twins, 1, 4, 2);
  AddEnds(twins);
  ExpectAllEqual(twins.Compare(), 23);
  // A layer that the arrays do not reach.
  AddLlamaLayer(twins, 2, 4, 2);
  const CompareReport report = twins.Compare();
  EXPECT_THAT(report.notes, Contains(HasSubstr("blk.2.attn_q.weight")));
  EXPECT_FALSE(Find(report, "model.layers.2.self_attn.q_proj.weight").passed);
}

TEST(Border, HostileHeadCountsAreNamedAndNothingIsPermuted) {
  for (const uint32_t heads : {0U, 3U, 5U, 32U, 33U, 0x80000000U, 0xFFFFFFFFU}) {
    SCOPED_TRACE(heads);
    Twins twins;
    twins.Number("llama.attention.head_count", heads);
    twins.Number("llama.attention.head_count_kv", 2);
    AddLlamaLayer(twins, 0, 0, 2);
    AddEnds(twins);
    const CompareReport report = twins.Compare();
    EXPECT_THAT(report.notes,
                Contains(HasSubstr(fmt::format(
                    "\"blk.0.attn_q.weight\": 32 rows are no whole heads for {} heads", heads))));
    ExpectAllEqual(report, 13);
  }
  Twins none;
  AddLlamaLayer(none, 0, 0, 0);
  AddEnds(none);
  const CompareReport report = none.Compare();
  EXPECT_THAT(report.notes, Contains(HasSubstr("neither metadata nor config.json")));
  ExpectAllEqual(report, 13);
}

TEST(Border, APermutationThatTheArchitectureDoesNotHaveIsNamed) {
  Twins twins;
  twins.Architecture("qwen2");
  AddLlamaLayer(twins, 0, 4, 0);
  AddEnds(twins);
  for (const bool folder_first : {true, false}) {
    const CompareReport report = twins.Compare(folder_first);
    EXPECT_EQ(report.num_failed, 2);
    const ComparedTensor& query = Find(
        report, folder_first ? "model.layers.0.self_attn.q_proj.weight" : "blk.0.attn_q.weight");
    EXPECT_EQ(query.fits_only,
              "fits only with its rows permuted in 4 heads; expected for architecture \"qwen2\": "
              "unchanged");
    EXPECT_THAT(query.reasons, Contains(query.fits_only));
    EXPECT_THAT(query.conversions, IsEmpty());
    EXPECT_GT(query.difference->stats.relative_rmse, 1.0);
    const ComparedTensor& bias =
        Find(report, folder_first ? "model.layers.0.self_attn.q_proj.bias" : "blk.0.attn_q.bias");
    EXPECT_THAT(bias.fits_only, HasSubstr("permuted in 4 heads"));
    const FidelityReport fidelity = twins.Fidelity(folder_first);
    for (const FidelityResult& result : fidelity.results) {
      const bool wrong = result.tensor == query.name;
      EXPECT_EQ(result.fits_only, wrong ? query.fits_only : "") << result.tensor;
    }
  }
}

TEST(Border, AMissingOrWrongPermutationIsNamed) {
  const auto fits_only = [](int64_t query_heads, bool twice) {
    Twins twins;
    SetLlamaHeads(twins);
    const SmallTensor query = Random("model.layers.0.self_attn.q_proj.weight", {32, kHidden});
    SmallTensor in_file = query_heads > 0 ? Permuted(query, query_heads) : query;
    // Permuted two times more, a head of 8 rows is permuted the wrong way round.
    if (twice) in_file = Permuted(in_file, query_heads);
    twins.Add(query, Named(in_file, "blk.0.attn_q.weight"));
    AddEnds(twins);
    const CompareReport report = twins.Compare();
    EXPECT_EQ(report.num_failed, 1);
    return Find(report, query.name).fits_only;
  };
  const std::string asked =
      "; expected for architecture \"llama\": with its rows permuted in 4 heads";
  EXPECT_EQ(fits_only(0, false), "fits only unchanged" + asked);
  EXPECT_EQ(fits_only(2, false), "fits only with its rows permuted in 2 heads" + asked);
  // [8] of a head: applying the permutation twice is its inverse.
  EXPECT_EQ(fits_only(4, true),
            "fits only with its rows permuted the wrong way round in 4 heads" + asked);
}

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

TEST(Border, ATransposedMatrixIsNamed) {
  for (const int64_t rows : {int64_t{32}, int64_t{48}}) {
    Twins twins;
    twins.Architecture("qwen2");
    const SmallTensor up = Random("model.layers.0.mlp.up_proj.weight", {rows, kHidden});
    SmallTensor transposed{"blk.0.ffn_up.weight", {kHidden, rows}, up.values};
    for (size_t i = 0; i < up.values.size(); ++i) {
      const auto cols = static_cast<size_t>(kHidden);
      transposed.values[i % cols * static_cast<size_t>(rows) + i / cols] = up.values[i];
    }
    twins.Add(up, transposed);
    AddEnds(twins);
    const CompareReport report = twins.Compare();
    EXPECT_EQ(report.num_failed, 1);
    EXPECT_EQ(Find(report, up.name).fits_only,
              "fits only transposed; expected for architecture \"qwen2\": unchanged");
  }
}

TEST(Border, NamesWithoutPartnerAreMissing) {
  Twins twins;
  AddEnds(twins);
  twins.AddToFolder(Random("model.vision_tower.patch.weight", {4, 4}));
  twins.AddToFile(Random("rope_freqs.weight", {4}));
  const CompareReport report = twins.Compare();
  EXPECT_EQ(report.num_failed, 2);
  EXPECT_THAT(Find(report, "model.vision_tower.patch.weight").reasons, ElementsAre("only in A"));
  EXPECT_THAT(Find(report, "rope_freqs.weight").reasons, ElementsAre("only in B"));
}

// Shapes of either side are a file's claim: whatever they are, nothing worse than a difference.
TEST(Border, AnyShapesOnEitherSide) {
  SplitMix64 random(20261201);
  const auto below = [&](uint64_t bound) { return random.Next() % bound; };
  const auto shape = [&] {
    std::vector<int64_t> dims(below(5));
    for (int64_t& dim : dims) dim = static_cast<int64_t>(below(4) * 2 + below(8) / 7);
    return dims;
  };
  const std::vector<std::pair<std::string, std::string>> names = {
      {"self_attn.q_proj.weight", "attn_q.weight"},
      {"self_attn.k_proj.bias", "attn_k.bias"},
      {"self_attn.W_pack.weight", "attn_v.weight"},
      {"mlp.gate_up_proj.weight", "attn_qkv.weight"},
      {"self_attn.v_proj.weight", "ffn_gate.weight"},
      {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight"},
      {"mlp.experts.0.up_proj.weight", "ffn_up_exps.weight"},
      {"mlp.experts.1.up_proj.weight", "ffn_up.weight"},
      {"input_layernorm.weight", "attn_norm.weight"},
  };
  int num_compared = 0;
  for (int round = 0; round < 120; ++round) {
    SCOPED_TRACE(round);
    Twins twins;
    const char* const architecture = round % 3 == 0 ? "llama" : round % 3 == 1 ? "gemma" : "qwen2";
    twins.Architecture(architecture);
    twins.Number(std::string(architecture) + ".attention.head_count",
                 static_cast<uint32_t>(below(4)));
    for (const auto& [in_folder, in_file] : names) {
      const std::vector<int64_t> dims = shape();
      if (below(5) > 0) twins.AddToFolder(Random("model.layers.0." + in_folder, dims));
      if (below(5) > 0) {
        twins.AddToFile(Random("blk.0." + in_file, below(2) == 0 ? dims : shape()));
      }
    }
    for (const bool folder_first : {true, false}) {
      try {
        num_compared += static_cast<int>(twins.Compare(folder_first).num_compared);
        twins.Fidelity(folder_first);
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), ErrorKind::kInternal) << error.what();
      }
    }
  }
  EXPECT_GT(num_compared, 100);
}

TEST(Border, RenamesComeFirst) {
  Twins twins;
  AddEnds(twins);
  const SmallTensor odd = Random("model.layers.0.mlp.up_proj.weight", {8, kHidden});
  twins.Add(odd, Named(odd, "blk.0.odd.weight"));
  twins.AddToFile(Random("blk.0.ffn_up.weight", {8, kHidden}));
  CompareOptions options;
  options.a = twins.Folder();
  options.b = twins.File();
  options.allow_missing = true;
  options.gates.equal = true;
  options.renames = {CompareRename::Parse("model.*.mlp.up_proj.weight=blk.0.odd.weight")};
  const CompareReport report = RunCompare(options);
  EXPECT_EQ(report.num_failed, 0);
  EXPECT_EQ(report.num_compared, 4);
  EXPECT_EQ(Find(report, odd.name).reference, "blk.0.odd.weight");
  EXPECT_EQ(report.border->num_pairs, 3);
}

TEST(Border, ThereIsNoneWhereNamesAgreeOrBothAreOfOneKind) {
  Twins twins;
  const SmallTensor tensor = Random("token_embd.weight", {20, kHidden});
  twins.Add(tensor, tensor);
  EXPECT_FALSE(twins.Compare().border);
  CompareOptions options;
  options.a = options.b = twins.File();
  EXPECT_FALSE(RunCompare(options).border);
  options.a = options.b = twins.Folder();
  EXPECT_FALSE(RunCompare(options).border);
}

TEST(Border, AnArchitectureOfAnyLengthIsNoHarm) {
  Twins twins;
  twins.Architecture(std::string(100000, '\xFF'));
  AddEnds(twins);
  const CompareReport report = twins.Compare();
  ExpectAllEqual(report, 3);
  EXPECT_EQ(report.border->architecture, "");
}

}  // namespace
}  // namespace assay

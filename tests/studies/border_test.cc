// A folder and the GGUF file that llama.cpp's converter would make of it, against each other.

#include "assay/studies/border.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "assay/base/error.h"
#include "assay/numeric/random.h"
#include "tests/support/twins.h"

namespace assay {
namespace {

using test::AddEnds;
using test::AddLlamaLayer;
using test::ExpectAllEqual;
using test::Find;
using test::kHidden;
using test::Named;
using test::Permuted;
using test::Random;
using test::SetLlamaHeads;
using test::Twins;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

#include "assay/formats/mlx_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "assay/base/error.h"
#include "assay/formats/affine.h"
#include "assay/formats/catalogue.h"
#include "tests/support/fixture.h"
#include "tests/support/memory_checkpoint.h"

namespace assay {
namespace {

using nlohmann::json;
using test::Fixture;
using test::MemoryCheckpoint;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kMixed = "mlx/model-affine-mixed";

MemoryCheckpoint MixedModel() {
  MemoryCheckpoint checkpoint;
  for (const std::string& file : test::FixtureFiles(kMixed, "model")) {
    const Fixture shard(file);
    for (const std::string& name : shard.Names()) checkpoint.Add(name, shard.Get(name));
  }
  checkpoint.AddConfig("config.json",
                       json::parse(test::ReadTestData(std::string(kMixed) + "/config.json")));
  return checkpoint;
}

/// Planes of one module "m": `words` of codes and `groups` scales a row, 2 rows.
MemoryCheckpoint OneModule(int64_t words, int64_t groups, const json& config,
                           DType scales = DType::kBF16) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add("m.weight", Tensor::Allocate(DType::kU32, Shape{2, words}));
  checkpoint.Add("m.scales", Tensor::Allocate(scales, Shape{2, groups}));
  checkpoint.Add("m.biases", Tensor::Allocate(scales, Shape{2, groups}));
  if (!config.is_null()) checkpoint.AddConfig("config.json", config);
  return checkpoint;
}

json Quantization(int bits, int group_size) {
  return {{"quantization", {{"group_size", group_size}, {"bits", bits}, {"mode", "affine"}}}};
}

Recognition Recognise(const CheckpointSource& checkpoint) {
  Recognition found;
  kAffineFamily.recognise(checkpoint, found);
  return found;
}

TEST(MlxConfig, MixedModelFoldsToTheFormatsItWasWrittenIn) {
  const MemoryCheckpoint checkpoint = MixedModel();
  const Recognition found = Recognise(checkpoint);
  EXPECT_THAT(found.notes, IsEmpty());
  std::map<std::string, std::string> formats;
  for (const FoundWeight& weight : found.weights) formats[weight.name] = weight.format->Name();
  EXPECT_EQ(formats.at("model.layers.0.self_attn.v_proj.weight"), "affine6g64");
  EXPECT_EQ(formats.at("lm_head.weight"), "affine6g64");
  EXPECT_EQ(formats.at("model.layers.1.mlp.down_proj.weight"), "affine8g32");
  EXPECT_EQ(formats.at("model.embed_tokens.weight"), "affine4g64");
  EXPECT_FALSE(formats.contains("model.layers.0.self_attn.o_proj.weight"));
  EXPECT_FALSE(formats.contains("model.layers.1.mlp.gate_proj.weight"));
  EXPECT_EQ(formats.size(), Fixture(std::string(kMixed) + "/decoded.safetensors").Names().size());
}

TEST(MlxConfig, MixedModelDecodesToTheBitsOfMlx) {
  const MemoryCheckpoint checkpoint = MixedModel();
  const Fixture decoded(std::string(kMixed) + "/decoded.safetensors");
  int64_t num_values = 0;
  for (const FoundWeight& weight : Recognise(checkpoint).weights) {
    const EncodedMatrix encoded = weight.load(0);
    weight.format->Validate(encoded, weight.name);
    const Tensor expected = decoded.Get(weight.name.substr(0, weight.name.size() - 7));
    ASSERT_EQ(expected.shape(), (Shape{weight.rows, weight.cols}));
    ASSERT_EQ(expected.dtype(), weight.dtype);
    std::vector<std::byte> bytes(expected.bytes().size());
    weight.format->DecodeRowsTo(encoded, 0, weight.rows, weight.dtype, bytes);
    EXPECT_EQ(std::memcmp(bytes.data(), expected.bytes().data(), bytes.size()), 0) << weight.name;
    num_values += weight.rows * weight.cols;
  }
  RecordProperty("vectors", std::to_string(num_values));
}

TEST(MlxConfig, StackedExpertsAreOneWeightOfManyMatrices) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add("e.weight", Tensor::Allocate(DType::kU32, Shape{3, 5, 16}));
  checkpoint.Add("e.scales", Tensor::Allocate(DType::kF16, Shape{3, 5, 2}));
  checkpoint.Add("e.biases", Tensor::Allocate(DType::kF16, Shape{3, 5, 2}));
  checkpoint.AddConfig("config.json", Quantization(4, 64));
  const Recognition found = Recognise(checkpoint);
  ASSERT_EQ(found.weights.size(), 1u);
  const FoundWeight& weight = found.weights[0];
  EXPECT_TRUE(weight.stacked);
  EXPECT_EQ(weight.stack, 3);
  EXPECT_EQ(weight.rows, 5);
  EXPECT_EQ(weight.cols, 128);
  EXPECT_EQ(weight.dtype, DType::kF16);
  EXPECT_THAT(weight.tensor_names, ElementsAre("e.weight", "e.scales", "e.biases"));
  weight.format->Validate(weight.load(2), weight.name);
}

TEST(MlxConfig, PlanesThatContradictTheConfigAreReadAsHeldWhenOneReadingExists) {
  // 96 bits of codes a scale: only 3 bits in groups of 32.
  const Recognition found = Recognise(OneModule(6, 2, Quantization(4, 32)));
  ASSERT_EQ(found.weights.size(), 1u);
  EXPECT_EQ(found.weights[0].format->Name(), "affine3g32");
  EXPECT_THAT(found.weights[0].notes, ElementsAre("config says 4 bits, planes hold 3: read as 3"));
}

TEST(MlxConfig, AWidthOfTheModelDecidesBetweenReadings) {
  // 384 bits a scale: 6 · 64 or 3 · 128; two scales a row make 128 or 256 columns.
  json config = Quantization(4, 64);
  config["hidden_size"] = 128;
  const Recognition found = Recognise(OneModule(24, 2, config));
  ASSERT_EQ(found.weights.size(), 1u);
  EXPECT_EQ(found.weights[0].format->Name(), "affine6g64");
  EXPECT_THAT(found.weights[0].notes, ElementsAre("config says 4 bits, planes hold 6: read as 6"));
}

TEST(MlxConfig, AmbiguousPlanesAreNotedNotGuessed) {
  const Recognition found = Recognise(OneModule(24, 2, Quantization(4, 64)));
  EXPECT_THAT(found.weights, IsEmpty());
  EXPECT_THAT(found.notes,
              ElementsAre("m: not read: config says 4 bits in groups of 64, planes hold 3 bits in "
                          "groups of 128 or 6 bits in groups of 64"));
}

TEST(MlxConfig, PlanesWithoutAConfigAreNotedNotGuessed) {
  const Recognition found = Recognise(OneModule(16, 2, nullptr));
  EXPECT_THAT(found.weights, IsEmpty());
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("1 weights look like MLX affine planes")));
}

TEST(MlxConfig, AnEntryWithoutModeIsAffineInAModelOfAnotherMode) {
  json config = {{"quantization", {{"group_size", 16}, {"bits", 4}, {"mode", "nvfp4"}}}};
  config["quantization"]["m"] = {{"group_size", 64}, {"bits", 8}};
  EXPECT_EQ(Recognise(OneModule(32, 2, config)).weights.at(0).format->Name(), "affine8g64");
}

TEST(MlxConfig, AnEntryFalseLeavesPlanesAlone) {
  json config = Quantization(4, 64);
  config["quantization"]["m"] = false;
  const Recognition found = Recognise(OneModule(16, 2, config));
  EXPECT_THAT(found.weights, IsEmpty());
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("config says not quantised")));
}

TEST(MlxConfig, TextConfigServesWhenTheTopLevelHasNothing) {
  const json config = {
      {"text_config", {{"quantization_config", {{"group_size", 32}, {"bits", 5}}}}}};
  EXPECT_EQ(Recognise(OneModule(10, 2, config)).weights.at(0).format->Name(), "affine5g32");
}

TEST(MlxConfig, ConfigsOfOtherToolsAreLeftAlone) {
  const json config = {
      {"quantization_config", {{"group_size", 64}, {"bits", 4}, {"quant_method", "gptq"}}}};
  EXPECT_THAT(Recognise(OneModule(16, 2, config)).weights, IsEmpty());
}

TEST(MlxConfig, MalformedSettingsAreErrorsThatNameTheKey) {
  json config = Quantization(4, 64);
  config["quantization"]["bits"] = "four";
  try {
    Recognise(OneModule(16, 2, config));
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_STREQ(error.what(),
                 "memory: config.json: \"quantization\": \"bits\": expected a positive integer, "
                 "found \"four\"");
  }
}

TEST(MlxConfig, PlanesThatDoNotFitEachOtherAreNoted) {
  MemoryCheckpoint checkpoint = OneModule(16, 2, Quantization(4, 64));
  checkpoint.Add("m.scales", Tensor::Allocate(DType::kBF16, Shape{3, 2}));
  const Recognition found = Recognise(checkpoint);
  EXPECT_THAT(found.weights, IsEmpty());
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("do not fit each other")));
}

TEST(MlxConfig, WritesWhatMlxLmWritesAndReadsItBack) {
  const CheckpointForm& form = *AffineFormat::Make(4, 64)->Form();
  EXPECT_EQ(form.TensorName("a.weight", "codes"), "a.weight");
  EXPECT_EQ(form.TensorName("a.weight", "scales"), "a.scales");
  EXPECT_EQ(form.TensorName("a.weight", "biases"), "a.biases");
  EXPECT_EQ(form.ShardMetadata().at("format"), "mlx");

  json config = {{"model_type", "llama"}};
  form.WriteConfig(config, *AffineFormat::Make(4, 64),
                   {{"a.weight", AffineFormat::Make(4, 64), 8, 128},
                    {"b.weight", AffineFormat::Make(6, 32), 8, 128},
                    {"c.weight", nullptr, 8, 100}});
  EXPECT_EQ(config["quantization"], config["quantization_config"]);
  const json expected = {{"group_size", 64},
                         {"bits", 4},
                         {"mode", "affine"},
                         {"b", {{"group_size", 32}, {"bits", 6}, {"mode", "affine"}}}};
  EXPECT_EQ(config["quantization"], expected);

  const MlxConfig read(config["quantization"], "test");
  EXPECT_EQ(read.top(), (MlxSettings{"affine", 4, 64, false}));
  EXPECT_EQ(**read.Find("b"), (MlxSettings{"affine", 6, 32, false}));
  EXPECT_EQ(read.Find("a"), nullptr);
}

}  // namespace
}  // namespace assay

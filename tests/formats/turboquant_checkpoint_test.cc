#include "assay/formats/turboquant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "assay/base/error.h"
#include "assay/checkpoint/model.h"
#include "assay/formats/checkpoint_form.h"
#include "tests/support/errors.h"
#include "tests/support/fixture.h"
#include "tests/support/memory_checkpoint.h"
#include "tests/support/paths.h"
#include "tests/support/turboquant_checks.h"

namespace assay {
namespace {

using test::CheckpointOf;
using test::Copy;
using test::DecodeFloats;
using test::DecodeWords;
using test::ExpectSameBits;
using test::Fixture;
using test::MatrixOf;
using test::MessageOf;
using ::testing::HasSubstr;

std::string DataPath(const std::string& relative) {
  return test::TestDataPath("turboquant/" + relative);
}

class TurboQuantModel : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Upstream, TurboQuantModel, testing::Values("tq4g128", "tq3g32"));

TEST_P(TurboQuantModel, EveryWeightOfTheDirectoryDecodesAsExpected) {
  const std::string name = GetParam();
  const Model model = Model::Open(DataPath("model-" + name));
  const Fixture expected("turboquant/model-" + name + ".expected.safetensors");
  int decoded = 0;
  for (const Weight& weight : model.Weights()) {
    const std::string base = weight.name().substr(0, weight.name().rfind('.'));
    if (!expected.Has(base + ".decoded_bf16")) {
      EXPECT_TRUE(weight.plain()) << weight.name();
      continue;
    }
    SCOPED_TRACE(weight.name());
    ++decoded;
    EXPECT_EQ(weight.format()->Name(), name);
    const EncodedMatrix encoded = weight.Encoded();
    EXPECT_EQ(DecodeWords(encoded), Copy(expected.Get(base + ".decoded_bf16").bytes()));
    if (expected.Has(base + ".decoded_f32")) {
      ExpectSameBits(DecodeFloats(encoded, DecodeRounding::kNone),
                     expected.Get(base + ".decoded_f32"));
    }
  }
  EXPECT_EQ(decoded, name == "tq3g32" ? 7 : 6);
}

TEST_P(TurboQuantModel, EncodingTheSourceGivesUpstreamsPlanesAndConfig) {
  const std::string name = GetParam();
  const FormatPtr format = Format::Parse(name);
  const CheckpointForm& form = *format->Form();
  const Model source = Model::Open(DataPath("model-src"));
  const Model target = Model::Open(DataPath("model-" + name));
  int planes = 0;
  for (const Weight& weight : target.Weights()) {
    if (weight.plain()) continue;
    SCOPED_TRACE(weight.name());
    const Tensor plain = source.Load(weight.name());
    const EncodedMatrix encoded = format->Encode(MatrixOf(plain), {.tensor_name = weight.name()});
    for (const Plane& plane : encoded.planes) {
      const Tensor stored = target.Load(form.TensorName(weight.name(), plane.name));
      EXPECT_EQ(plane.tensor.dtype(), stored.dtype());
      EXPECT_EQ(plane.tensor.shape(), stored.shape());
      EXPECT_EQ(Copy(plane.tensor.bytes()), Copy(stored.bytes()));
      ++planes;
    }
  }
  EXPECT_EQ(planes, name == "tq3g32" ? 21 : 18);
  EXPECT_EQ(form.SideFiles(*format, {}).at("turboquant_config.json"),
            test::ReadTestData("turboquant/model-" + name + "/turboquant_config.json"));
  nlohmann::json config = {{"model_type", "qwen3"}};
  form.WriteConfig(config, *format, {});
  EXPECT_EQ(config, (nlohmann::json{{"model_type", "qwen3"}}));
}

TEST(TurboQuant, IndexThatListsPlanesOfAPlainWeightIsReadWithANote) {
  const Model model = Model::Open(DataPath("model-tq4g128"));
  const Weight* o_proj = model.FindWeight("model.layers.0.self_attn.o_proj.weight");
  ASSERT_NE(o_proj, nullptr);
  EXPECT_TRUE(o_proj->plain());
  EXPECT_EQ(o_proj->format()->Name(), "bf16");
  for (const char* plane : {"tq_packed", "tq_scales", "tq_signs"}) {
    EXPECT_THAT(
        model.Notes(),
        ::testing::Contains(HasSubstr(fmt::format("model.layers.0.self_attn.o_proj.{}", plane))));
  }
  EXPECT_THAT(model.Notes(), ::testing::Contains(HasSubstr("total_size")));
  EXPECT_THAT(Model::Open(DataPath("model-tq3g32")).Notes(),
              ::testing::Not(::testing::Contains(HasSubstr("tq_packed"))));
}

TEST(TurboQuant, ConfigIsReadInEverySpellingWithTheLoadersDefaults) {
  const Fixture fixture("turboquant/refuse-decode.safetensors");
  const auto format_of = [&](const char* file, nlohmann::json config) {
    test::MemoryCheckpoint checkpoint;
    checkpoint.Add("a.tq_packed", fixture.Get("good.tq_packed"));
    checkpoint.AddConfig(file, std::move(config));
    Recognition found;
    kTurboQuantFamily.recognise(checkpoint, found);
    return found.weights.empty() ? std::string("none") : found.weights[0].format->Name();
  };
  const nlohmann::json bits2 = {{"quant_type", "tq"}, {"bits", 2}, {"group_size", 64}};
  EXPECT_EQ(format_of("turboquant_config.json", bits2), "tq2g64");
  EXPECT_EQ(format_of("turboquant_config.json", nlohmann::json::object()), "tq3g128");
  EXPECT_EQ(format_of("config.json", {{"quantization_config", bits2}}), "tq2g64");
  EXPECT_EQ(format_of("config.json", {{"quantization_config", {{"quant_type", "turboquant"}}}}),
            "tq3g128");
  EXPECT_EQ(format_of("config.json", {{"quantization_config", {{"quant_type", "other"}}}}), "none");
  EXPECT_EQ(format_of("config.json", {{"quantization_config", 7}}), "none");
  for (const nlohmann::json& bad : {nlohmann::json{{"bits", "4"}},
                                    {{"bits", 4.5}},
                                    {{"bits", -1}},
                                    {{"group_size", 16}},
                                    {{"group_size", uint64_t{1} << 63}},
                                    {{"quant_type", "rotary"}}}) {
    EXPECT_THROW(format_of("turboquant_config.json", bad), Error) << bad;
  }
}

TEST(TurboQuant, TheJsonFileWinsOverConfigJson) {
  const Fixture fixture("turboquant/refuse-decode.safetensors");
  test::MemoryCheckpoint checkpoint =
      CheckpointOf(fixture, "good", {{"bits", 3}, {"group_size", 32}});
  checkpoint.AddConfig("config.json",
                       {{"quantization_config", {{"quant_type", "turboquant"}, {"bits", 2}}}});
  Recognition found;
  kTurboQuantFamily.recognise(checkpoint, found);
  ASSERT_EQ(found.weights.size(), 1u);
  EXPECT_EQ(found.weights[0].format->Name(), "tq3g32");
}

TEST(TurboQuant, PlanesWithoutAConfigOrOfAnotherKindAreNoted) {
  test::MemoryCheckpoint checkpoint;
  checkpoint.Add("a.tq_packed", Tensor::Allocate(DType::kU8, {2, 16}));
  Recognition found;
  kTurboQuantFamily.recognise(checkpoint, found);
  EXPECT_TRUE(found.weights.empty());
  EXPECT_THAT(found.notes, ::testing::ElementsAre(HasSubstr("a.tq_packed: not read")));

  checkpoint.AddConfig("turboquant_config.json", {{"bits", 4}, {"group_size", 32}});
  checkpoint.Add("b.tq_packed", Tensor::Allocate(DType::kF32, {2, 16}));
  checkpoint.Add("a.weight", Tensor::Allocate(DType::kBF16, {2, 32}));
  found = {};
  kTurboQuantFamily.recognise(checkpoint, found);
  EXPECT_THAT(found.notes, ::testing::ElementsAre(HasSubstr("b.tq_packed: not read")));
  ASSERT_EQ(found.weights.size(), 1u);
  EXPECT_THAT(found.weights[0].tensor_names, ::testing::ElementsAre("a.tq_packed", "a.weight"));
  EXPECT_THAT(found.weights[0].notes, ::testing::ElementsAre(HasSubstr("plain tensor")));
  EXPECT_THAT(MessageOf([&] { found.weights[0].load(0); }), HasSubstr("a.tq_scales\" is missing"));
}

}  // namespace
}  // namespace assay

#include "assay/formats/fp8_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/checkpoint/model.h"
#include "assay/numeric/element.h"
#include "tests/support/bits.h"
#include "tests/support/every_target.h"
#include "tests/support/fixture.h"
#include "tests/support/memory_checkpoint.h"

namespace assay {
namespace {

using test::Fixture;
using test::MemoryCheckpoint;
using testing::HasSubstr;

EncodedMatrix EncodeMatrix(const std::string& format, const Tensor& values,
                           DType dtype = DType::kF32) {
  const Tensor typed = values.As(dtype, values.shape());
  return Format::Parse(format)->Encode(MatrixView(typed.view(), typed.shape()[0], typed.shape()[1]),
                                       {.tensor_name = "w"});
}

class Fp8Checkpoints : public testing::TestWithParam<const char*> {};

TEST_P(Fp8Checkpoints, DecodeToTheBitsOfUpstream) {
  const std::string folder = std::string("fp8_block/") + GetParam();
  const Model model = Model::Open(test::TestDataPath(folder));
  const Fixture expected(folder + "/expected.safetensors");
  for (const std::string& name : expected.Names()) {
    const Weight* weight = model.FindWeight(name);
    ASSERT_NE(weight, nullptr) << name;
    const EncodedMatrix encoded = weight->Encoded(0);
    EXPECT_EQ(test::DifferentValues(DType::kBF16, test::DecodeAll(encoded, DType::kBF16),
                                    expected.Get(name).bytes()),
              0)
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(DeepSeek, Fp8Checkpoints, testing::Values("v3", "v4", "v41"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(Fp8Block, RowsOfTheBlockLadderDecodeToPowersOfTwo) {
  const Model model = Model::Open(test::TestDataPath("fp8_block/v3"));
  const EncodedMatrix encoded =
      model.FindWeight("model.layers.0.self_attn.q_a_proj.weight")->Encoded(0);
  std::vector<float> values(static_cast<size_t>(encoded.rows * encoded.cols));
  encoded.format->DecodeRows(encoded, 0, encoded.rows, values);
  for (int64_t row = 0; row < encoded.rows; ++row) {
    ASSERT_EQ(values[static_cast<size_t>(row * encoded.cols)],
              std::ldexp(1.0F, static_cast<int>(row / 128)));
  }
}

struct EncoderCase {
  const char* format;
  const char* input;
  DType dtype;
  const char* codes;
  const char* scales;

  friend void PrintTo(const EncoderCase& test_case, std::ostream* out) { *out << test_case.format; }
};

class Fp8Encoders : public testing::TestWithParam<EncoderCase> {};

TEST_P(Fp8Encoders, GiveTheBytesOfUpstream) {
  const EncoderCase& test_case = GetParam();
  const Fixture vectors("fp8_block/encode.safetensors");
  test::OnEveryTarget([&] {
    const EncodedMatrix encoded =
        EncodeMatrix(test_case.format, vectors.Get(test_case.input), test_case.dtype);
    EXPECT_EQ(
        test::DifferentElements(encoded.Get("codes").bytes(), vectors.Get(test_case.codes).bytes()),
        0);
    EXPECT_EQ(test::DifferentElements(encoded.Get("scales").bytes(),
                                      vectors.Get(test_case.scales).bytes()),
              0);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Upstream, Fp8Encoders,
    testing::Values(EncoderCase{"fp8-block128", "edge.x", DType::kF32, "edge.ct.weight",
                                "edge.ct.weight_scale"},
                    EncoderCase{"fp8-block128:ue8m0", "b128.bf16.x", DType::kBF16,
                                "b128.bf16.hf_ue8m0.weight", "b128.bf16.hf_ue8m0.scale_inv"},
                    EncoderCase{"fp8-block32:ue8m0", "b32.f32.x", DType::kF32,
                                "b32.f32.hf_ue8m0.weight", "b32.f32.hf_ue8m0.scale_inv"}));

TEST(Fp8Block, NamesParseToTheFormatTheyPrint) {
  for (const char* name :
       {"fp8-block128", "fp8-block64x256", "fp8-block32:ue8m0", "fp8-tensor", "fp8-channel:bf16"}) {
    EXPECT_EQ(Format::Parse(name)->Name(), name);
  }
  for (const char* name :
       {"fp8-block", "fp8-block0", "fp8-block128x128", "fp8-block1x", "fp8-block01", "fp8-blockx4",
        "fp8-row", "fp8-block99999999999999999999"}) {
    EXPECT_EQ(Fp8BlockFormat::FromName(name), nullptr) << name;
  }
}

TEST(Fp8Block, ErrorStaysWithinHalfAStepForEveryShapeAndThreadCount) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  for (const char* name : {"fp8-block128", "fp8-block32", "fp8-block5x7", "fp8-channel",
                           "fp8-tensor", "fp8-block32:ue8m0", "fp8-block128:bf16"}) {
    Tensor values = Tensor::Allocate(DType::kF32, Shape{33, 190});
    for (float& value : values.mutable_as<float>()) value = normal(engine);
    const int threads = NumThreads();
    SetNumThreads(1);
    const EncodedMatrix once = EncodeMatrix(name, values);
    SetNumThreads(3);
    const EncodedMatrix encoded = EncodeMatrix(name, values);
    SetNumThreads(threads);
    for (size_t plane = 0; plane < 2; ++plane) {
      EXPECT_EQ(test::DifferentElements(once.planes[plane].tensor.bytes(),
                                        encoded.planes[plane].tensor.bytes()),
                0);
    }
    std::vector<float> decoded(33 * 190);
    encoded.format->DecodeRows(encoded, 0, 33, decoded);
    const std::span<const float> source = values.mutable_as<float>();
    for (size_t i = 0; i < decoded.size(); ++i) {
      // Half a step is 2^-4 of a normal value; 0.01 covers the subnormal codes of a block whose
      // largest value is below 8. Scales rounded to bf16 add 2^-8.
      ASSERT_LE(std::abs(decoded[i] - source[i]), std::abs(source[i]) / 14 + 0.01F) << name;
    }
  }
}

TEST(Fp8Block, ZeroAndTinyBlocksDecodeToWhatTheyHold) {
  Tensor values = Tensor::Allocate(DType::kF32, Shape{2, 128});
  values.mutable_as<float>()[3] = -0.0F;
  values.mutable_as<float>()[130] = std::numeric_limits<float>::denorm_min();
  for (const char* name : {"fp8-channel", "fp8-channel:ue8m0"}) {
    const EncodedMatrix encoded = EncodeMatrix(name, values);
    std::vector<float> decoded(256);
    encoded.format->DecodeRows(encoded, 0, 2, decoded);
    EXPECT_TRUE(std::signbit(decoded[3])) << name;
    for (const float value : decoded) EXPECT_EQ(value, 0.0F) << name;
  }
}

TEST(Fp8Block, NonFiniteValuesAreRefusedWithTheirPlace) {
  Tensor values = Tensor::Allocate(DType::kF32, Shape{4, 200});
  values.mutable_as<float>()[2 * 200 + 150] = std::numeric_limits<float>::quiet_NaN();
  try {
    EncodeMatrix("fp8-block128", values);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(), HasSubstr("row 2, column 150"));
  }
}

MemoryCheckpoint OneWeight(Shape weight, Shape scale, const nlohmann::json& config,
                           DType scale_dtype = DType::kF32) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add("m.weight", Tensor::Allocate(DType::kF8E4M3, std::move(weight)));
  checkpoint.Add("m.weight_scale_inv", Tensor::Allocate(scale_dtype, std::move(scale)));
  checkpoint.AddConfig("config.json", config);
  return checkpoint;
}

nlohmann::json Config(const nlohmann::json& block) {
  return {{"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", block}}}};
}

std::string RefusalOf(const MemoryCheckpoint& checkpoint) {
  Recognition found;
  try {
    RecogniseFp8Block(checkpoint, found);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Fp8Block, AScaleMatrixOfAnotherShapeIsAnErrorThatNamesTheTensor) {
  const nlohmann::json config = Config({128, 128});
  EXPECT_THAT(RefusalOf(OneWeight({200, 300}, {2, 2}, config)), HasSubstr("m.weight_scale_inv"));
  EXPECT_THAT(RefusalOf(OneWeight({200, 300}, {1, 3}, config)), HasSubstr("[2, 3]"));
  EXPECT_EQ(RefusalOf(OneWeight({200, 300}, {2, 3}, config)), "");
}

TEST(Fp8Block, AnImpossibleBlockSizeIsAnError) {
  for (const nlohmann::json& block :
       {nlohmann::json{0, 128}, nlohmann::json{128}, nlohmann::json("128"), nlohmann::json{-1, 128},
        nlohmann::json{1.5, 2}, nlohmann::json{uint64_t{1} << 40, 1}}) {
    EXPECT_THAT(RefusalOf(OneWeight({8, 8}, {1, 1}, Config(block))),
                HasSubstr("weight_block_size"));
  }
}

TEST(Fp8Block, WithoutABlockSizeScalesArePerTensorOrPerRow) {
  const nlohmann::json config = Config(nullptr);
  for (const auto& [scale, name] : {std::pair{Shape{}, "fp8-tensor"},
                                    {Shape{1}, "fp8-tensor"},
                                    {Shape{8, 1}, "fp8-channel"},
                                    {Shape{8}, "fp8-channel"}}) {
    const MemoryCheckpoint checkpoint = OneWeight({8, 16}, scale, config);
    Recognition found;
    RecogniseFp8Block(checkpoint, found);
    ASSERT_EQ(found.weights.size(), 1U);
    EXPECT_EQ(found.weights[0].format->Name(), name);
    const EncodedMatrix encoded = found.weights[0].load(0);
    EXPECT_NO_THROW(encoded.format->Validate(encoded, "m"));
  }
}

TEST(Fp8Block, WrittenConfigIsReadBack) {
  MemoryCheckpoint checkpoint = OneWeight({200, 300}, {2, 3}, nlohmann::json::object());
  nlohmann::json config;
  const FormatPtr format = Format::Parse("fp8-block128");
  format->Form()->WriteConfig(config, *format,
                              {{"m.weight", format, 200, 300}, {"n.weight", nullptr, 8, 8}});
  EXPECT_EQ(config["quantization_config"]["modules_to_not_convert"], nlohmann::json::array({"n"}));
  checkpoint.AddConfig("config.json", config);
  Recognition found;
  RecogniseFp8Block(checkpoint, found);
  ASSERT_EQ(found.weights.size(), 1U);
  EXPECT_EQ(found.weights[0].format->Name(), "fp8-block128");
  EXPECT_EQ(format->Form()->TensorName("m.weight", "scales"), "m.weight_scale_inv");
}

}  // namespace
}  // namespace assay

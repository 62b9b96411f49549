#include "assay/formats/compressed_tensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "assay/formats/compressed_tensors_config.h"
#include "assay/formats/microscaling.h"
#include "assay/formats/mlx_fp.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/memory_checkpoint.h"

namespace assay {
namespace {

using nlohmann::json;
using test::MemoryCheckpoint;
using test::MessageOf;

json Group(const std::string& format, json targets) {
  return {{"format", format},
          {"targets", std::move(targets)},
          {"weights", {{"num_bits", 4}, {"type", "float"}, {"strategy", "group"}}}};
}

MemoryCheckpoint With(json quantization) {
  MemoryCheckpoint checkpoint;
  quantization["quant_method"] = "compressed-tensors";
  checkpoint.AddConfig("config.json", {{"quantization_config", std::move(quantization)}});
  return checkpoint;
}

TEST(CompressedTensorsConfig, NamesComeBeforePatternsBeforeClasses) {
  const auto config = CompressedTensorsConfig::Read(
      With({{"format", "mixed-precision"},
            {"ignore", {"lm_head", "re:.*mlp\\.gate$"}},
            {"config_groups",
             {{"group_0", Group("a", {"Linear"})},
              {"group_1", Group("b", {"re:model.layers.\\d+.self_attn.(q|k)_proj"})},
              {"group_2", Group("c", {"model.layers.0.mlp.up_proj"})}}}}));
  ASSERT_TRUE(config);
  const auto format_of = [&](const char* module) -> std::string {
    const CompressedTensorsGroup* group = config->GroupOf(module);
    return group == nullptr ? "none" : group->format;
  };
  EXPECT_EQ(format_of("model.layers.0.mlp.up_proj"), "c");
  EXPECT_EQ(format_of("model.layers.11.self_attn.k_proj"), "b");
  EXPECT_EQ(format_of("model.layers.11.self_attn.v_proj"), "a");
  EXPECT_EQ(format_of("model.layers.3.mlp.gate"), "none");
  EXPECT_EQ(format_of("model.layers.3.mlp.gate_proj"), "a");
  EXPECT_EQ(format_of("lm_head"), "none");
  EXPECT_EQ(format_of("model.embed_tokens"), "none");
}

TEST(CompressedTensorsConfig, OtherMethodsAreNotItsOwn) {
  MemoryCheckpoint checkpoint;
  EXPECT_FALSE(CompressedTensorsConfig::Read(checkpoint));
  checkpoint.AddConfig("config.json", {{"quantization_config", {{"quant_method", "gptq"}}}});
  EXPECT_FALSE(CompressedTensorsConfig::Read(checkpoint));
}

TEST(CompressedTensorsConfig, WrongMembersAreNamed) {
  const auto message = [](json quantization) {
    return MessageOf([&] { CompressedTensorsConfig::Read(With(std::move(quantization))); });
  };
  EXPECT_NE(message({{"ignore", "lm_head"}}).find("\"ignore\""), std::string::npos);
  EXPECT_NE(message({{"ignore", {7}}}).find("strings"), std::string::npos);
  EXPECT_NE(message({{"ignore", {"re:("}}}).find("regular expression"), std::string::npos);
  const std::string long_pattern = fmt::format("re:{:a<5000}", "");
  EXPECT_NE(message({{"ignore", {long_pattern}}}).find("5000"), std::string::npos);
  EXPECT_NE(message({{"config_groups", 3}}).find("config_groups"), std::string::npos);
  EXPECT_NE(
      message({{"config_groups", {{"g", {{"weights", {{"num_bits", "4"}}}}}}}}).find("num_bits"),
      std::string::npos);
  EXPECT_NE(
      message({{"config_groups", {{"g", {{"weights", {{"group_size", -7}}}}}}}}).find("group_size"),
      std::string::npos);
  EXPECT_NE(message({{"format", 1}}).find("\"format\""), std::string::npos);
}

TEST(CompressedTensorsConfig, ABadPatternCostsNoExponentialTime) {
  const auto config = CompressedTensorsConfig::Read(
      With({{"ignore", {"re:(a+)+$"}}, {"config_groups", {{"g", Group("a", {"Linear"})}}}}));
  EXPECT_NE(config->GroupOf(std::string(200, 'a') + "b"), nullptr);
}

MemoryCheckpoint Nvfp4(const Shape& codes, DType scales, bool global) {
  MemoryCheckpoint checkpoint =
      With({{"config_groups", {{"g", Group("nvfp4-pack-quantized", {"Linear"})}}}});
  checkpoint.Add("a.weight_packed", Tensor::Allocate(DType::kU8, codes));
  checkpoint.Add("a.weight_scale", Tensor::Allocate(scales, {2, 2}));
  if (global) checkpoint.Add("a.weight_global_scale", Tensor::Allocate(DType::kF32, {1}));
  return checkpoint;
}

TEST(CompressedTensors, PlanesThatDoNotFitAreNotedOrRefused) {
  const auto recognise = [](const MemoryCheckpoint& checkpoint) {
    Recognition found;
    RecogniseCompressedTensors(checkpoint, found);
    return found;
  };
  EXPECT_EQ(recognise(Nvfp4({2, 16}, DType::kF8E4M3, true)).weights.size(), 1u);
  EXPECT_EQ(recognise(Nvfp4({2, 16}, DType::kF8E4M3, false)).notes.size(), 1u);
  EXPECT_EQ(recognise(Nvfp4({2, 15}, DType::kF8E4M3, true)).notes.size(), 1u);
  EXPECT_EQ(recognise(Nvfp4({3, 2, 16}, DType::kF8E4M3, true)).notes.size(), 1u);
  // Recognised by shape of the codes; the scales are found wrong when the planes are looked at.
  for (const MemoryCheckpoint& checkpoint :
       {Nvfp4({2, 32}, DType::kF8E4M3, true), Nvfp4({2, 16}, DType::kF32, true)}) {
    const Recognition found = recognise(checkpoint);
    ASSERT_EQ(found.weights.size(), 1u);
    const EncodedMatrix encoded = found.weights[0].load(0);
    EXPECT_NE(MessageOf([&] { encoded.format->Validate(encoded, "a"); }).find("scales"),
              std::string::npos);
  }
}

TEST(CheckpointForms, WhatAFormWritesItsRecogniserReads) {
  constexpr int64_t kRows = 6;
  constexpr int64_t kCols = 96;
  Tensor x = Tensor::Allocate(DType::kBF16, {kRows, kCols});
  uint16_t word = 0x3C01;
  for (uint16_t& value : x.mutable_as<uint16_t>()) {
    word = static_cast<uint16_t>(word * 13 + 7);
    value = static_cast<uint16_t>((word & 0x8000) | 0x3C00 | (word & 0x3FF));
  }
  for (const std::string name :
       {"mxfp4", "mxfp4:rceil", "mxfp4:compressed-tensors", "mxfp6e2m3", "mxfp8:even", "nvfp4:ct",
        "nvfp4", "mxfp4:modelopt", "mxfp8:modelopt", "mlx-mxfp4", "mlx-mxfp8", "mlx-nvfp4",
        "mlx-nvfp4:global"}) {
    SCOPED_TRACE(name);
    const FormatPtr format = Format::Parse(name);
    const CheckpointForm* form = format->Form();
    ASSERT_NE(form, nullptr);
    for (const int64_t stack : {1, 3}) {
      const Shape plain = stack == 1 ? Shape{kRows, kCols} : Shape{stack, kRows, kCols};
      const EncodedMatrix encoded =
          format->Encode(MatrixView(x.view(), kRows, kCols), {.tensor_name = "a.weight"});
      MemoryCheckpoint checkpoint;
      for (size_t p = 0; p < encoded.planes.size(); ++p) {
        const Plane& plane = encoded.planes[p];
        const PlaneSpec spec{plane.name, plane.tensor.dtype(), plane.tensor.shape()};
        Tensor stored = Tensor::Allocate(spec.dtype, form->StoredShape(spec, plain));
        for (int64_t m = 0; m < stack; ++m) {
          std::ranges::copy(plane.tensor.bytes(),
                            stored.mutable_bytes().begin() + m * plane.tensor.num_bytes());
        }
        checkpoint.Add(form->TensorName("a.weight", plane.name), stored);
      }
      json config = json::object();
      const std::vector<WrittenWeight> weights = {{"a.weight", format, kRows, kCols},
                                                  {"lm_head.weight", nullptr, 4, 4}};
      form->WriteConfig(config, *format, weights);
      checkpoint.AddConfig("config.json", config);
      for (const auto& [file, content] : form->SideFiles(*format, weights)) {
        checkpoint.AddConfig(file, json::parse(content));
      }
      Recognition found;
      kMicroscalingFamily.recognise(checkpoint, found);
      kMlxFpFamily.recognise(checkpoint, found);
      ASSERT_EQ(found.weights.size(), 1u);
      EXPECT_TRUE(found.notes.empty());
      EXPECT_EQ(found.weights[0].name, "a.weight");
      EXPECT_EQ(found.weights[0].stack, stack);
      const EncodedMatrix read = found.weights[0].load(stack - 1);
      read.format->Validate(read, "a");
      EXPECT_EQ(test::DifferentElements(test::DecodeAll(read, DType::kF32),
                                        test::DecodeAll(encoded, DType::kF32), 4),
                0);
    }
  }
}

}  // namespace
}  // namespace assay

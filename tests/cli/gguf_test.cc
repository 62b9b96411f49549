// What every command does with GGUF files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "assay/checkpoint/gguf.h"
#include "assay/checkpoint/gguf_writer.h"
#include "assay/checkpoint/safetensors.h"
#include "assay/formats/ggml_type.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/random.h"
#include "assay/tensor/convert.h"
#include "tests/support/paths.h"
#include "tests/support/run_cli.h"
#include "tests/support/write_safetensors.h"

namespace assay {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string GgufData(const std::string& relative) {
  return test::TestDataPath("ggml/gguf/" + relative);
}

// A model of one layer: matrices of f16 and f32, a router, experts, a norm.
void WriteSource(const std::string& path) {
  const std::vector<TensorSpec> specs = {
      {"token_embd.weight", DType::kF16, Shape{20, 512}},
      {"blk.0.attn_norm.weight", DType::kF32, Shape{512}},
      {"blk.0.attn_q.weight", DType::kF16, Shape{64, 512}},
      {"blk.0.ffn_gate_inp.weight", DType::kF32, Shape{4, 512}},
      {"blk.0.ffn_up_exps.weight", DType::kF16, Shape{4, 64, 512}},
      {"blk.0.ffn_down_exps.weight", DType::kF16, Shape{4, 32, 64}},
      {"output.weight", DType::kF32, Shape{20, 512}},
  };
  GgufMetadata metadata;
  metadata.Append("general.architecture", GgufValue::Of("llama"));
  metadata.Append("general.file_type", GgufValue::Of(uint32_t{1}));
  metadata.Append("general.alignment", GgufValue::Of(uint32_t{64}));
  metadata.Append("tokenizer.chat_template", GgufValue::Of(std::string(5000, 'x')));
  GgufWriter writer(path, specs, metadata);
  NormalGenerator normal(20261201);
  for (const TensorSpec& spec : specs) {
    std::vector<float> values(static_cast<size_t>(spec.shape.NumElements()));
    for (float& value : values) value = 0.05F * normal.Next();
    Tensor tensor = Tensor::Allocate(spec.dtype, spec.shape);
    Round(ElementOf(spec.dtype), values, tensor.mutable_bytes());
    writer.Write(spec.name, tensor.bytes());
  }
  writer.Commit();
}

std::map<std::string, std::string> TypesOf(const std::string& path) {
  std::map<std::string, std::string> types;
  const auto file = GgufFile::Open(path);
  for (const GgufTensorInfo& info : file->header().tensors) {
    types[info.name] = info.type->name;
  }
  return types;
}

TEST(GgufCommands, QuantizeKeepsMetadataOrderAndWhatIsReadAsFloats) {
  const TemporaryFolder folder;
  const std::string source = folder.Path("f16.gguf");
  const std::string packed = folder.Path("q4_k.gguf");
  WriteSource(source);
  const CliResult run = RunCli({"quantize", source, "--format", "ggml-q4_k", "--format",
                                "output.weight=ggml-q6_k", "-o", packed, "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(TypesOf(packed), (std::map<std::string, std::string>{
                                 {"token_embd.weight", "Q4_K"},
                                 {"blk.0.attn_norm.weight", "F32"},
                                 {"blk.0.attn_q.weight", "Q4_K"},
                                 {"blk.0.ffn_gate_inp.weight", "F32"},
                                 {"blk.0.ffn_up_exps.weight", "Q4_K"},
                                 {"blk.0.ffn_down_exps.weight", "F16"},
                                 {"output.weight", "Q6_K"},
                             }));
  std::map<std::string, std::string> why;
  const Json report = Json::parse(run.out);
  for (const Json& tensor : report["tensors"]) {
    why[tensor["tensor"]] = tensor.value("kept_because", "");
  }
  EXPECT_THAT(why["blk.0.attn_norm.weight"], HasSubstr("1-D"));
  EXPECT_THAT(why["blk.0.ffn_gate_inp.weight"], HasSubstr("as floats"));
  EXPECT_THAT(why["blk.0.ffn_down_exps.weight"], HasSubstr("256"));
  const auto before = GgufFile::Open(source);
  const auto after = GgufFile::Open(packed);
  EXPECT_EQ(after->header().alignment, 64u);
  for (size_t i = 0; i < before->header().tensors.size(); ++i) {
    EXPECT_EQ(after->header().tensors[i].name, before->header().tensors[i].name);
    EXPECT_EQ(after->header().tensors[i].shape, before->header().tensors[i].shape);
  }
  GgufMetadata expected = before->header().metadata;
  expected.Set("general.file_type", GgufValue::Of(uint32_t{14}));  // Q4_K_S
  expected.Set("general.quantization_version", GgufValue::Of(uint32_t{2}));
  EXPECT_TRUE(after->header().metadata == expected);

  // The same bytes every time.
  const std::string again = folder.Path("again.gguf");
  ASSERT_EQ(RunCli({"quantize", source, "--format", "ggml-q4_k", "--format",
                    "output.weight=ggml-q6_k", "-o", again, "-q", "--threads", "1"})
                .exit_code,
            0);
  EXPECT_TRUE(ReadText(again) == ReadText(packed));

  EXPECT_EQ(
      RunCli({"compare", packed, source, "--allow-dtype", "--max-relative-rmse", "0.1"}).exit_code,
      0);
  const CliResult fidelity = RunCli({"fidelity", source, "--against", packed, "--json"});
  EXPECT_EQ(fidelity.exit_code, 0) << fidelity.err;
}

TEST(GgufCommands, DequantizeGivesTheDecodedValues) {
  const TemporaryFolder folder;
  const std::string source = folder.Path("f16.gguf");
  const std::string packed = folder.Path("q8_0.gguf");
  WriteSource(source);
  ASSERT_EQ(RunCli({"quantize", source, "--format", "ggml-q8_0", "--tensor", "*", "-o", packed})
                .exit_code,
            0);
  EXPECT_EQ(TypesOf(packed)["blk.0.ffn_gate_inp.weight"], "Q8_0");  // asked for by name
  const std::string plain = folder.Path("plain.gguf");
  ASSERT_EQ(RunCli({"dequantize", packed, "-o", plain}).exit_code, 0);
  EXPECT_EQ(RunCli({"compare", plain, packed, "--equal"}).exit_code, 0);
  const auto file = GgufFile::Open(plain);
  EXPECT_EQ(file->header().metadata.Integer("general.file_type"), 0);
  EXPECT_EQ(file->header().metadata.String("tokenizer.chat_template"), std::string(5000, 'x'));

  const std::string half = folder.Path("half.safetensors");
  ASSERT_EQ(RunCli({"dequantize", packed, "--dtype", "bf16", "-o", half}).exit_code, 0);
  EXPECT_EQ(
      RunCli({"compare", half, packed, "--allow-dtype", "--max-relative-rmse", "0.005"}).exit_code,
      0);
}

TEST(GgufCommands, EveryTypeOfBlocksDecodesToTheReferenceValues) {
  const TemporaryFolder folder;
  const std::string plain = folder.Path("plain.safetensors");
  ASSERT_EQ(RunCli({"dequantize", GgufData("good/all-types.gguf"), "-o", plain}).exit_code, 0);
  const CliResult compare = RunCli({"compare", plain, GgufData("good/all-types.f32.safetensors"),
                                    "--tensor", "blk.*", "--allow-dtype", "--equal", "--json"});
  EXPECT_EQ(compare.exit_code, 0) << compare.out;
  EXPECT_EQ(Json::parse(compare.out)["tensors_compared"], 28);
}

TEST(GgufCommands, ASplitModelBecomesOneFile) {
  const TemporaryFolder folder;
  const std::string packed = folder.Path("one.gguf");
  const CliResult run = RunCli({"quantize", GgufData("split/ok/model-00002-of-00003.gguf"),
                                "--format", "ggml-q8_0", "-o", packed, "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto file = GgufFile::Open(packed);
  EXPECT_EQ(file->header().tensors.size(), 7u);
  EXPECT_EQ(file->header().metadata.Find("split.count"), nullptr);
  EXPECT_EQ(file->header().metadata.String("general.name"), "split test");
  EXPECT_EQ(file->header().metadata.Integer("general.file_type"), 7);
  // The order of the parts.
  EXPECT_EQ(file->header().tensors.front().name, "token_embd.weight");
  EXPECT_EQ(file->header().tensors.back().name, "output_norm.weight");
}

TEST(GgufCommands, ContainersHoldTheirOwnFormats) {
  const TemporaryFolder folder;
  const std::string source = folder.Path("f16.gguf");
  WriteSource(source);
  const auto refused = [&](const char* format, const char* output, const char* words) {
    const CliResult run =
        RunCli({"quantize", source, "--format", format, "-o", folder.Path(output)});
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_THAT(run.err, HasSubstr(words));
  };
  refused("ggml-q4_k", "out.safetensors", "only GGUF files hold it");
  refused("affine4g64", "out.gguf", "affine4g64: GGUF files hold ggml-");
  refused("ggml-iq2_xs", "out.gguf", "only decoded");
  // From one container into the other, through the values.
  const std::string affine = folder.Path("affine.safetensors");
  ASSERT_EQ(RunCli({"quantize", source, "--format", "affine4g64", "-o", affine}).exit_code, 0);
  const std::map<std::string, std::string> metadata = SafetensorsFile::Open(affine)->Metadata();
  EXPECT_EQ(metadata.at("general.architecture"), "llama");
  EXPECT_FALSE(metadata.contains("general.file_type"));
  EXPECT_FALSE(metadata.contains("tokenizer.chat_template"));  // too long to carry along
  const std::string back = folder.Path("back.gguf");
  const CliResult run = RunCli({"quantize", affine, "--format", "ggml-q8_0", "-o", back});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("names no architecture"));
  EXPECT_EQ(
      RunCli({"compare", back, affine, "--allow-dtype", "--max-relative-rmse", "0.02"}).exit_code,
      0);
}

TEST(GgufCommands, InspectTellsWhatTheFileSaysOfItself) {
  const TemporaryFolder folder;
  const std::string source = folder.Path("f16.gguf");
  WriteSource(source);
  const CliResult text = RunCli({"inspect", source});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("\ngguf · version 3 · architecture llama · file type 1 (F16)\n"));
  const CliResult run = RunCli({"inspect", GgufData("good/all-types.gguf"), "--json"});
  const Json report = Json::parse(run.out);
  EXPECT_EQ(report["container"], "gguf");
  EXPECT_EQ(report["metadata"]["general.architecture"], "assay-test");
  for (const Json& tensor : report["tensors"]) {
    if (tensor["name"] != "blk.0.q6_k.weight") continue;
    EXPECT_EQ(tensor["kind"], "ggml-q6_k");
    EXPECT_EQ(tensor["shape"], (std::vector<int>{2, 512}));
    EXPECT_EQ(tensor["bytes"], 840);
  }
  const CliResult bad = RunCli({"inspect", GgufData("bad/offset-gap.gguf")});
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_EQ(std::ranges::count(bad.err, '\n'), 1);
}

// A folder's file, and the GGUF file that llama.cpp's converter makes of it.
TEST(GgufCommands, AFolderAndItsFileAreComparedAcrossTheirNames) {
  const TemporaryFolder folder;
  const std::string plain = folder.Path("model.safetensors");
  const std::string file = folder.Path("model.gguf");
  const std::string packed = folder.Path("q8_0.gguf");
  SmallTensor query{"model.layers.0.self_attn.q_proj.weight", {16, 64}, {}};
  SmallTensor norm{"model.norm.weight", {64}, {}};
  query.values.resize(1024);
  norm.values.resize(64);
  NormalGenerator normal(20261201);
  normal.Fill(query.values);
  normal.Fill(norm.values);
  WriteSafetensors(plain, {query, norm});
  GgufMetadata metadata;
  metadata.Append("general.architecture", GgufValue::Of("llama"));
  metadata.Append("llama.attention.head_count", GgufValue::Of(uint32_t{2}));
  GgufWriter writer(file,
                    {{"blk.0.attn_q.weight", DType::kF32, Shape{16, 64}},
                     {"output_norm.weight", DType::kF32, Shape{64}}},
                    metadata);
  // Rows of two heads: 0 4 1 5 2 6 3 7.
  for (int64_t row = 0; row < 16; ++row) {
    const int64_t from = row / 8 * 8 + row % 2 * 4 + row % 8 / 2;
    writer.Write("blk.0.attn_q.weight",
                 std::as_bytes(std::span(query.values).subspan(static_cast<size_t>(from) * 64, 64)),
                 row * 256);
  }
  writer.Write("output_norm.weight", std::as_bytes(std::span(norm.values)));
  writer.Commit();

  const CliResult compare = RunCli({"compare", file, plain, "--equal"});
  EXPECT_EQ(compare.exit_code, 0) << compare.out;
  EXPECT_THAT(compare.out, HasSubstr("names mapped to GGUF's (llama): 2 · query and key rows "
                                     "permuted back: 1\n"));
  const Json report = Json::parse(RunCli({"compare", plain, file, "--equal", "--json"}).out);
  EXPECT_EQ(report["border"], Json::parse(R"({"architecture": "llama", "pairs": 2,
                                              "conversions": {"permuted_heads": 1}})"));
  EXPECT_EQ(report["results"][0]["conversions"],
            Json::parse(R"(["rows permuted back from 2 heads"])"));

  // Blocks are decoded in the order of the folder.
  ASSERT_EQ(
      RunCli({"quantize", file, "--format", "ggml-q8_0", "--tensor", "*", "-o", packed}).exit_code,
      0);
  const CliResult run = RunCli({"fidelity", plain, "--against", packed, "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json fidelity = Json::parse(run.out);
  EXPECT_EQ(fidelity["border"]["pairs"], 1);
  ASSERT_EQ(fidelity["results"].size(), 1u);
  EXPECT_LT(fidelity["results"][0]["weight_relative_rmse"], 0.01);
  EXPECT_LT(fidelity["results"][0]["synthetic_matmul_relative_rmse"], 0.01);
  EXPECT_FALSE(fidelity["results"][0].contains("fits_only"));

  // The same values for a file that says it does not permute: the exit code is that of a gate.
  const std::string other = folder.Path("qwen2.gguf");
  metadata.Set("general.architecture", GgufValue::Of("qwen2"));
  const auto source = GgufFile::Open(file);
  GgufWriter again(other, source->Tensors(), metadata);
  for (const StoredTensor& tensor : source->Tensors()) {
    again.Write(tensor.name, source->Get(tensor.name).bytes());
  }
  again.Commit();
  const CliResult wrong = RunCli({"compare", plain, other});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.out, HasSubstr("fits only with its rows permuted in 2 heads;"));
  const CliResult noted = RunCli({"fidelity", plain, "--against", other});
  EXPECT_EQ(noted.exit_code, 0);
  EXPECT_THAT(noted.out, HasSubstr("note: model.layers.0.self_attn.q_proj: fits only with"));
}

}  // namespace
}  // namespace assay

// Checkpoints of GPTQ, AWQ, HQQ, bitsandbytes and compressed-tensors: recognised by config and
// names, decoded to the bits of the tools that wrote them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>

#include "assay/base/error.h"
#include "assay/checkpoint/model.h"
#include "assay/formats/catalogue.h"
#include "assay/formats/gptq_checkpoint.h"
#include "tests/support/bits.h"
#include "tests/support/fixture.h"
#include "tests/support/memory_checkpoint.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using test::Fixture;
using test::MemoryCheckpoint;
using testing::HasSubstr;
using testing::StartsWith;

struct FolderCase {
  std::string folder;  ///< below tests/data
  std::string prefix;  ///< of the format's name
};

std::vector<FolderCase> Folders() {
  std::vector<FolderCase> folders;
  for (const auto& entry : fs::directory_iterator(test::TestDataPath("int4"))) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    const std::string prefix = name.starts_with("bnb-nf4")   ? "nf4"
                               : name.starts_with("bnb-fp4") ? "bnb-fp4"
                                                             : name.substr(0, name.find('-'));
    folders.push_back({"int4/" + name, prefix});
  }
  for (const char* name :
       {"ct-int3-sym-g64", "ct-int4-asym-channel", "ct-int4-asym-g128", "ct-int4-sym-channel",
        "ct-int4-sym-g128", "ct-int8-w8a8", "ct-naive-int8", "ct-naive-int8-asym"}) {
    folders.push_back({std::string("microscaling/checkpoints/") + name, "int"});
  }
  std::sort(folders.begin(), folders.end(),
            [](const FolderCase& a, const FolderCase& b) { return a.folder < b.folder; });
  return folders;
}

class Int4Checkpoints : public testing::TestWithParam<FolderCase> {};

TEST_P(Int4Checkpoints, DecodeToTheBitsOfUpstream) {
  const Model model = Model::Open(test::TestDataPath(GetParam().folder));
  const Fixture expected(GetParam().folder + "/expected.safetensors");
  ASSERT_FALSE(expected.Names().empty());
  for (const std::string& name : expected.Names()) {
    const Weight* weight = model.FindWeight(name);
    ASSERT_NE(weight, nullptr) << name;
    const EncodedMatrix encoded = weight->Encoded(0);
    EXPECT_THAT(encoded.format->Name(), StartsWith(GetParam().prefix));
    const Tensor wanted = expected.Get(name);
    EXPECT_EQ(encoded.dtype, wanted.dtype());
    EXPECT_EQ(test::DifferentValues(wanted.dtype(), test::DecodeAll(encoded, wanted.dtype()),
                                    wanted.bytes(), test::Zeros::kUnsigned),
              0)
        << name << " " << encoded.format->Name();
    std::vector<float> row(static_cast<size_t>(encoded.cols));
    std::vector<float> rows(static_cast<size_t>(2 * encoded.cols));
    encoded.format->DecodeRows(encoded, 1, 2, rows);
    encoded.format->DecodeRows(encoded, 2, 1, row);
    EXPECT_EQ(std::memcmp(row.data(), rows.data() + encoded.cols, 4 * row.size()), 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Upstream, Int4Checkpoints, testing::ValuesIn(Folders()),
                         [](const auto& instance) {
                           std::string name = instance.param.folder;
                           name = name.substr(name.rfind('/') + 1);
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

MemoryCheckpoint GptqModule(int64_t code_rows, int64_t groups, int32_t group_of_last,
                            const nlohmann::json& config) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add("m.qweight", Tensor::Allocate(DType::kI32, {code_rows, 32}));
  checkpoint.Add("m.qzeros", Tensor::Allocate(DType::kI32, {groups, 4}));
  checkpoint.Add("m.scales", Tensor::Allocate(DType::kF16, {groups, 32}));
  Tensor g_idx = Tensor::Allocate(DType::kI32, {64});
  g_idx.mutable_as<int32_t>()[63] = group_of_last;
  checkpoint.Add("m.g_idx", g_idx);
  checkpoint.AddConfig("config.json", {{"quantization_config", config}});
  return checkpoint;
}

nlohmann::json GptqConfig(int group_size = 32) {
  return {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", group_size}};
}

std::string Message(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "";
}

TEST(Gptq, PlanesOfOtherShapesAreErrorsThatNameTheTensor) {
  Recognition found;
  const MemoryCheckpoint too_few_groups = GptqModule(8, 1, 0, GptqConfig());
  EXPECT_THAT(Message([&] { RecogniseGptq(too_few_groups, found); }), HasSubstr("m.qzeros"));
  const MemoryCheckpoint odd_codes = GptqModule(7, 2, 0, GptqConfig());
  EXPECT_THAT(Message([&] { RecogniseGptq(odd_codes, found); }), HasSubstr("m.qweight"));
  const MemoryCheckpoint bad_group = GptqModule(8, 2, 0, GptqConfig(-7));
  EXPECT_THAT(Message([&] { RecogniseGptq(bad_group, found); }), HasSubstr("-7"));
}

TEST(Gptq, AGroupIndexBeyondTheGroupsIsRefused) {
  for (const int32_t group : {2, -1, 1 << 30}) {
    Recognition found;
    const MemoryCheckpoint checkpoint = GptqModule(8, 2, group, GptqConfig());
    RecogniseGptq(checkpoint, found);
    ASSERT_EQ(found.weights.size(), 1U);
    const EncodedMatrix encoded = found.weights[0].load(0);
    EXPECT_THAT(Message([&] { encoded.format->Validate(encoded, "m"); }), HasSubstr("input 63"));
  }
}

TEST(Gptq, RunTimePermutationsAreLeftAloneWithANote) {
  nlohmann::json config = GptqConfig();
  config["checkpoint_format"] = "marlin";
  Recognition found;
  const MemoryCheckpoint checkpoint = GptqModule(8, 2, 0, config);
  RecogniseGptq(checkpoint, found);
  EXPECT_TRUE(found.weights.empty());
  ASSERT_EQ(found.notes.size(), 1U);
  EXPECT_THAT(found.notes[0], HasSubstr("marlin"));
}

}  // namespace
}  // namespace assay

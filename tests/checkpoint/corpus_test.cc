// Every case of tests/data/files/CASES.json: verdict, words of the message or note, content.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/model.h"
#include "tests/support/fixture.h"

namespace assay {
namespace {

bool HoldsOneOf(const std::string& message, const nlohmann::json& words) {
  const std::string lower = Lower(message);
  return std::any_of(words.begin(), words.end(), [&](const nlohmann::json& word) {
    return lower.find(Lower(word.get<std::string>())) != std::string::npos;
  });
}

std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

Shape ShapeOf(const nlohmann::json& dims) { return Shape(dims.get<std::vector<int64_t>>()); }

void ExpectTensor(const Model& model, const std::string& name, const std::string& dtype,
                  const Shape& shape, const std::string& hex) {
  ASSERT_NE(model.Find(name), nullptr) << name;
  const Tensor tensor = model.Load(name);
  EXPECT_EQ(NameOf(tensor.dtype()), dtype) << name;
  EXPECT_EQ(tensor.shape(), shape) << name;
  EXPECT_EQ(Hex(tensor.bytes()), hex) << name;
}

void ExpectContent(const Model& model, const nlohmann::json& test_case) {
  if (test_case.contains("tensors")) {
    for (const auto& [name, tensor] : test_case["tensors"].items()) {
      ExpectTensor(model, name, tensor["dtype"], ShapeOf(tensor["shape"]), tensor["hex"]);
    }
    // A tensor that the index does not list may be read too.
    if (!test_case["file"].get<std::string>().ends_with("ok-unmapped-tensor")) {
      EXPECT_EQ(model.Tensors().size(), test_case["tensors"].size());
    }
  }
  for (const char* key : {"hex", "hex_if_read"}) {
    if (!test_case.contains(key)) continue;
    ASSERT_EQ(model.Tensors().size(), 1u);
    ExpectTensor(model, model.Tensors().front().name, test_case["dtype"],
                 ShapeOf(test_case["shape"]), test_case[key]);
  }
  if (test_case.contains("metadata")) {
    const std::map<std::string, std::string> expected = test_case["metadata"];
    EXPECT_EQ(model.Files().front()->Metadata(), expected);
  }
}

// Printed by its file, not by its content.
struct Case {
  nlohmann::json json;
  friend void PrintTo(const Case& test_case, std::ostream* out) { *out << test_case.json["file"]; }
};

class Corpus : public ::testing::TestWithParam<Case> {};

TEST_P(Corpus, BehavesAsStated) {
  const nlohmann::json& test_case = GetParam().json;
  const std::string file = test_case["file"];
  const std::string expect = test_case["expect"];
  const std::string path = test::TestDataPath("files/" + file);
  try {
    const Model model = Model::Open(path);
    EXPECT_NE(expect, "refuse") << "accepted";
    ExpectContent(model, test_case);
    model.Verify();
    if (expect == "ok" && test_case.contains("words")) {
      EXPECT_TRUE(std::any_of(
          model.Notes().begin(), model.Notes().end(),
          [&](const std::string& note) { return HoldsOneOf(note, test_case["words"]); }))
          << "notes: " << ::testing::PrintToString(model.Notes());
    }
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(expect, "ok") << message;
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << message;
    EXPECT_TRUE(message.starts_with(path)) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), path.size() + 500) << message;
    // The path itself must not be what holds the word.
    const std::string told = message.substr(std::min(message.size(), path.size()));
    if (test_case.contains("words")) {
      EXPECT_TRUE(HoldsOneOf(told, test_case["words"])) << message;
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (nlohmann::json& json : nlohmann::json::parse(test::ReadTestData("files/CASES.json"))) {
    cases.push_back({std::move(json)});
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.json["file"];
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Files, Corpus, ::testing::ValuesIn(Cases()), CaseName);

TEST(CorpusFiles, EveryFileHasACase) {
  std::vector<std::string> found;
  const std::filesystem::path root = test::TestDataPath("files");
  for (const char* folder : {"safetensors", "npy", "index"}) {
    for (const auto& entry : std::filesystem::directory_iterator(root / folder)) {
      found.push_back(std::string(folder) + "/" + entry.path().filename().string());
    }
  }
  std::vector<std::string> expected = {"index/outside.safetensors"};
  for (const Case& test_case : Cases()) expected.push_back(test_case.json["file"]);
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(expected));
}

}  // namespace
}  // namespace assay

// Every case of tests/data/ggml/gguf/CASES.json: verdict, class of the reason, content.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/gguf.h"
#include "assay/checkpoint/model.h"
#include "assay/formats/ggml_type.h"
#include "tests/support/fixture.h"
#include "tests/support/sha256.h"

namespace assay {
namespace {

using nlohmann::json;

json GgufCases() { return json::parse(test::ReadTestData("ggml/gguf/CASES.json")); }

template <typename Bits>
std::string HexOf(const GgufValue& value, uint64_t index) {
  Bits bits;
  std::memcpy(&bits, value.bytes().data() + index * sizeof bits, sizeof bits);
  return fmt::format("{:0{}x}", bits, 2 * sizeof bits);
}

void ExpectNumber(const GgufValue& value, uint64_t index, const json& expected) {
  if (value.element() == GgufType::kF32) {
    EXPECT_EQ(HexOf<uint32_t>(value, index), expected["bits"]);
  } else if (value.element() == GgufType::kF64) {
    EXPECT_EQ(HexOf<uint64_t>(value, index), expected["bits"]);
  } else if (expected.is_object()) {
    EXPECT_EQ(value.NumberText(index), expected["decimal"]);
  } else {
    EXPECT_EQ(value.NumberText(index), expected.dump());
  }
}

void ExpectString(std::string_view text, const json& expected) {
  if (expected.is_string()) {
    EXPECT_EQ(text, expected.get<std::string>());
    return;
  }
  std::string hex;
  for (const char c : text) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  EXPECT_EQ(hex, expected["hex"]);
}

void ExpectValue(const GgufValue& value, const json& expected) {
  EXPECT_EQ(NameOf(value.type()), expected["type"]);
  if (!value.is_array()) {
    if (value.type() == GgufType::kString)
      return ExpectString(*value.AsString(), expected["value"]);
    return ExpectNumber(value, 0, expected["value"]);
  }
  EXPECT_EQ(NameOf(value.element()), expected["element_type"]);
  ASSERT_EQ(value.count(), expected["value"].size());
  if (value.element() != GgufType::kString) {
    for (size_t i = 0; i < value.count(); ++i) ExpectNumber(value, i, expected["value"][i]);
    return;
  }
  const std::vector<std::string_view> strings = value.Strings();
  ASSERT_EQ(strings.size(), value.count());
  for (size_t i = 0; i < strings.size(); ++i) ExpectString(strings[i], expected["value"][i]);
}

const GgufFile& Gguf(const Container& file) { return dynamic_cast<const GgufFile&>(file); }

void ExpectMetadata(const GgufFile& file, const json& expected) {
  const auto& entries = file.header().metadata.entries();
  ASSERT_EQ(entries.size(), expected.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    SCOPED_TRACE(entries[i].key);
    EXPECT_EQ(entries[i].key, expected[i]["key"]);
    ExpectValue(entries[i].value, expected[i]);
  }
}

const GgufTensorInfo& InfoOf(const GgufFile& file, const std::string& name) {
  for (const GgufTensorInfo& info : file.header().tensors) {
    if (info.name == name) return info;
  }
  throw std::out_of_range(name);
}

void ExpectTensor(const Model& model, const json& expected) {
  const std::string name = expected["name"];
  SCOPED_TRACE(name);
  ASSERT_NE(model.Find(name), nullptr);
  const GgufFile& file = Gguf(model.FileOf(name));
  const GgufTensorInfo& info = InfoOf(file, name);
  EXPECT_EQ(info.type->name, expected["type"]);
  EXPECT_EQ(info.type->id, expected["type_id"]);
  const auto dims = info.shape.dims();
  EXPECT_EQ(std::vector<int64_t>(dims.rbegin(), dims.rend()), expected["dims"]);
  EXPECT_EQ(info.offset, expected["offset"]);
  EXPECT_EQ(file.header().data_offset + info.offset, expected["file_offset"]);
  if (expected.contains("file")) {
    EXPECT_TRUE(file.path().ends_with(expected["file"].get<std::string>()));
  }

  const StoredTensor& stored = *model.Find(name);
  EXPECT_EQ(stored.block_type, info.type->dtype ? nullptr : info.type);
  const Tensor tensor = model.Load(name);
  EXPECT_EQ(tensor.dtype(), stored.dtype);
  EXPECT_EQ(tensor.shape(), stored.shape);
  EXPECT_EQ(tensor.num_bytes(), expected["bytes"].get<int64_t>());
  EXPECT_EQ(test::Sha256(tensor.bytes()), expected["sha256"]);
}

void ExpectGgufContent(const Model& model, const json& content) {
  const GgufFile& first = Gguf(*model.Files().front());
  if (content.contains("version")) {
    EXPECT_EQ(first.header().version, content["version"]);
    EXPECT_EQ(first.header().alignment, content["alignment"]);
    EXPECT_EQ(first.header().data_offset, content["data_offset"]);
    // The order of the file.
    for (size_t i = 0; i < first.header().tensors.size(); ++i) {
      EXPECT_EQ(first.header().tensors[i].name, content["tensors"][i]["name"]);
    }
  }
  if (content.contains("parts")) {
    ASSERT_EQ(model.Files().size(), content["parts"].size());
    for (size_t i = 0; i < model.Files().size(); ++i) {
      EXPECT_TRUE(model.Files()[i]->path().ends_with(content["parts"][i].get<std::string>()));
    }
  }
  ExpectMetadata(first, content["metadata"]);
  EXPECT_EQ(model.Tensors().size(), content["tensors"].size());
  for (const json& tensor : content["tensors"]) ExpectTensor(model, tensor);
}

bool SaysTied(const Model& model) {
  return std::any_of(model.Notes().begin(), model.Notes().end(),
                     [](const std::string& note) { return note.find("tied") != note.npos; });
}

// Printed by its file, not by its content.
struct GgufCase {
  json facts;
  friend void PrintTo(const GgufCase& test_case, std::ostream* out) {
    *out << test_case.facts["file"];
  }
};

class GgufCorpus : public ::testing::TestWithParam<GgufCase> {};

TEST_P(GgufCorpus, BehavesAsStated) {
  const json& test_case = GetParam().facts;
  const std::string expect = test_case["expect"];
  const std::string path = test::TestDataPath("ggml/gguf/" + test_case["file"].get<std::string>());
  const std::clock_t begin = std::clock();
  try {
    const Model model = Model::Open(path);
    EXPECT_NE(expect, "refuse") << "accepted";
    ExpectGgufContent(model, test_case["content"]);
    EXPECT_EQ(SaysTied(model), test_case.value("tied_head", false));
    model.Verify();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(expect, "ok") << message;
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << message;
    const std::string folder = std::filesystem::path(path).parent_path().string();
    EXPECT_TRUE(message.starts_with(folder)) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), path.size() + 500) << message;
    // The name of the file must not be what holds the word.
    const size_t told = message.find(".gguf: ");
    ASSERT_NE(told, std::string::npos) << message;
    EXPECT_THAT(message.substr(told + 7), ::testing::HasSubstr(test_case["keyword"])) << message;
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 0.25);
  }
}

std::vector<GgufCase> ReadCases() {
  std::vector<GgufCase> cases;
  for (json& facts : GgufCases()) cases.push_back({std::move(facts)});
  return cases;
}

std::string GgufCaseName(const ::testing::TestParamInfo<GgufCase>& info) {
  std::string name = info.param.facts["file"];
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Files, GgufCorpus, ::testing::ValuesIn(ReadCases()), GgufCaseName);

TEST(GgufCorpusFiles, EveryFileHasACase) {
  std::vector<std::string> found;
  const std::filesystem::path root = test::TestDataPath("ggml/gguf");
  for (const char* folder : {"good", "bad"}) {
    for (const auto& entry : std::filesystem::directory_iterator(root / folder)) {
      if (entry.path().extension() == ".gguf") {
        found.push_back(std::string(folder) + "/" + entry.path().filename().string());
      }
    }
  }
  std::vector<std::string> expected;
  for (const json& test_case : GgufCases()) {
    const std::string file = test_case["file"];
    if (!file.starts_with("split/")) expected.push_back(file);
  }
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(expected));
}

}  // namespace
}  // namespace assay

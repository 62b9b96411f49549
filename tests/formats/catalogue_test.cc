#include "assay/formats/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <random>
#include <set>

#include "assay/base/error.h"
#include "assay/formats/checkpoint_form.h"
#include "assay/formats/ggml_type.h"
#include "tests/support/memory_checkpoint.h"
#include "tests/support/paths.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// What a new family must not forget is walked here, so that leaving it out fails.

TEST(Catalogue, EveryFamilyHasAUserPage) {
  for (const FormatFamily* family : FormatCatalogue()) {
    const fs::path page = test::SourcePath("docs/formats/" + std::string(family->name) + ".md");
    EXPECT_TRUE(fs::exists(page)) << page;
    EXPECT_FALSE(family->summary.empty()) << family->name;
    EXPECT_FALSE(family->details.empty()) << family->name;
    EXPECT_FALSE(family->grammar.empty()) << family->name;
  }
}

TEST(Catalogue, ATensorOfBlocksIsGgmlsAloneWhateverItsName) {
  test::MemoryCheckpoint checkpoint;
  checkpoint.Add("a.p12_sm", Tensor::Allocate(DType::kU8, {5, 144}), FindGgmlType("Q4_K"));
  const Recognition found = RecogniseAll(checkpoint);
  ASSERT_EQ(found.weights.size(), 1U);
  EXPECT_EQ(found.weights[0].format->Name(), "ggml-q4_k");
  EXPECT_THAT(found.notes, testing::ElementsAre(testing::HasSubstr("not read as packed12")));
}

TEST(Catalogue, EveryNameParsesToAFormatOfThatName) {
  std::set<std::string> seen;
  for (const FormatFamily* family : FormatCatalogue()) {
    for (const std::string& name : family->names()) {
      EXPECT_TRUE(seen.insert(name).second) << name << " is named twice";
      const FormatPtr format = Format::Parse(name);
      EXPECT_EQ(format->Name(), name);
      EXPECT_EQ(&FamilyOf(name), family) << name;
      EXPECT_FALSE(format->Summary().empty()) << name;
    }
  }
}

TEST(Catalogue, AnUnknownNameIsAUsageErrorThatNamesNearOnes) {
  try {
    Format::Parse("afine4g64");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(error.what()).find("affine4g64"), std::string::npos) << error.what();
  }
}

TEST(Catalogue, EveryEncoderWritesItsLayoutAndPassesItsOwnValidation) {
  constexpr int64_t kRows = 4;
  constexpr int64_t kCols = 512;
  Tensor values = Tensor::Allocate(DType::kF32, {kRows, kCols});
  std::mt19937 engine(7);
  for (float& value : values.mutable_as<float>()) {
    value = static_cast<float>(static_cast<int>(engine() % 2001) - 1000) / 512.0F;
  }
  Tensor words = Tensor::Allocate(DType::kBF16, {kRows, kCols});
  const std::span<uint16_t> bf16 = words.mutable_as<uint16_t>();
  for (size_t i = 0; i < bf16.size(); ++i) {
    bf16[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(values.mutable_as<float>()[i]) >> 16);
  }
  for (const FormatFamily* family : FormatCatalogue()) {
    for (const std::string& name : family->names()) {
      const FormatPtr format = Format::Parse(name);
      if (!format->CanEncode()) continue;
      const MatrixView matrix(words.view(), kRows, kCols);
      if (format->WhyNot(kRows, kCols, DType::kBF16)) continue;
      const EncodedMatrix encoded = format->Encode(matrix, {.tensor_name = "w"});
      EXPECT_NO_THROW(format->Validate(encoded, "w")) << name;
      const std::vector<PlaneSpec> layout = format->LayoutFor(matrix);
      ASSERT_EQ(encoded.planes.size(), layout.size()) << name;
      for (size_t i = 0; i < layout.size(); ++i) {
        EXPECT_EQ(encoded.planes[i].name, layout[i].name) << name;
        EXPECT_EQ(encoded.planes[i].tensor.shape(), layout[i].shape) << name;
        EXPECT_EQ(encoded.planes[i].tensor.dtype(), layout[i].dtype) << name;
      }
      std::vector<float> whole(static_cast<size_t>(kRows * kCols));
      format->DecodeRows(encoded, 0, kRows, whole);
      std::vector<float> row(static_cast<size_t>(kCols));
      format->DecodeRows(encoded, 2, 1, row);
      EXPECT_TRUE(std::equal(row.begin(), row.end(), whole.begin() + 2 * kCols))
          << name << ": a row decoded alone differs";
    }
  }
}

}  // namespace
}  // namespace assay

#include "assay/numeric/lloyd_max.h"

#include <gtest/gtest.h>

#include <bit>
#include <string>

#include "assay/base/error.h"
#include "tests/numeric/elements.h"
#include "tests/support/fixture.h"

namespace assay {
namespace {

void ExpectBits(std::span<const float> found, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(static_cast<int64_t>(found.size()), expected.shape().NumElements()) << what;
  const std::vector<uint32_t> bits = test::Codes(expected);
  for (size_t i = 0; i < bits.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(found[i]), bits[i]) << what << " " << i;
  }
}

struct TableCase {
  std::string name;
  LloydMaxVariant variant;
  int dimension;
  int bits;
};

class LloydMaxTable : public testing::TestWithParam<TableCase> {};

TEST_P(LloydMaxTable, IsThatOfUpstreamToTheBit) {
  const auto& [name, variant, dimension, bits] = GetParam();
  const test::Fixture tables("turboquant/codebooks.safetensors");
  const std::string base =
      name + ".d" + std::to_string(dimension) + "b" + std::to_string(bits) + ".";
  const Codebook& codebook = LloydMaxCodebook(dimension, bits, variant);
  ExpectBits(codebook.centroids, tables.Get(base + "centroids"), base + "centroids");
  ExpectBits(codebook.boundaries, tables.Get(base + "boundaries"), base + "boundaries");
}

std::vector<TableCase> AllTables() {
  std::vector<TableCase> cases;
  for (const int dimension : {32, 64, 128}) {
    for (const int bits : {2, 3, 4}) {
      cases.push_back({"c", LloydMaxVariant::kDecoder, dimension, bits});
      cases.push_back({"py", LloydMaxVariant::kEncoder, dimension, bits});
    }
  }
  return cases;
}

std::string NameOfTable(const testing::TestParamInfo<TableCase>& table) {
  return table.param.name + "D" + std::to_string(table.param.dimension) + "B" +
         std::to_string(table.param.bits);
}

INSTANTIATE_TEST_SUITE_P(All, LloydMaxTable, testing::ValuesIn(AllTables()), NameOfTable);

TEST(LloydMax, IsComputedOnce) {
  const Codebook& first = LloydMaxCodebook(16, 1, LloydMaxVariant::kEncoder);
  EXPECT_EQ(&first, &LloydMaxCodebook(16, 1, LloydMaxVariant::kEncoder));
}

TEST(LloydMax, InThreeDimensionsACoordinateIsUniform) {
  const Codebook& codebook = LloydMaxCodebook(3, 2, LloydMaxVariant::kEncoder);
  EXPECT_EQ(codebook.centroids, (std::vector<float>{-0.75f, -0.25f, 0.25f, 0.75f}));
  EXPECT_EQ(codebook.boundaries, (std::vector<float>{-1, -0.5f, 0, 0.5f, 1}));
}

TEST(LloydMax, RangesAreChecked) {
  EXPECT_THROW(LloydMaxCodebook(2, 2, LloydMaxVariant::kEncoder), Error);
  EXPECT_THROW(LloydMaxCodebook(32, 0, LloydMaxVariant::kEncoder), Error);
  EXPECT_THROW(LloydMaxCodebook(32, 9, LloydMaxVariant::kDecoder), Error);
}

}  // namespace
}  // namespace assay

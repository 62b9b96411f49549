#include "assay/numeric/hadamard.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "assay/base/error.h"
#include "assay/numeric/random.h"
#include "tests/support/every_target.h"

namespace assay {
namespace {

void TransformByTheDefinition(std::span<float> values) {
  for (size_t stride = 1; stride < values.size(); stride *= 2) {
    for (size_t i = 0; i < values.size(); ++i) {
      if ((i & stride) != 0) continue;
      const float a = values[i];
      const float b = values[i + stride];
      values[i] = a + b;
      values[i + stride] = a - b;
    }
  }
}

TEST(WalshHadamard, OneNonzeroCoefficientGivesARowOfTheMatrix) {
  // The sign of element i is (−1)^popcount(i & row).
  for (const size_t row : {size_t{0}, size_t{1}, size_t{21}, size_t{31}}) {
    std::vector<float> values(32);
    values[row] = 3;
    WalshHadamard(values);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i], std::popcount(i & row) % 2 == 0 ? 3.0f : -3.0f);
    }
  }
}

TEST(WalshHadamard, EveryBlockSizeGivesTheBitsOfTheDefinitionOnEveryTarget) {
  std::vector<float> source(2048);
  NormalGenerator(5).Fill(source);
  source[3] = -0.0f;
  source[700] = 1e-40f;
  source[900] = 3e38f;
  test::OnEveryTarget([&] {
    for (size_t block = 1; block <= source.size(); block *= 2) {
      std::vector<float> expected = source;
      for (size_t i = 0; i < source.size(); i += block) {
        TransformByTheDefinition(std::span(expected).subspan(i, block));
      }
      std::vector<float> found = source;
      WalshHadamardBlocks(block, found);
      for (size_t i = 0; i < source.size(); ++i) {
        if (std::isnan(expected[i])) {
          ASSERT_TRUE(std::isnan(found[i])) << block << " " << i;
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i]))
              << block << " " << i;
        }
      }
    }
  });
}

RC_GTEST_PROP(WalshHadamard, TwiceIsTheSizeTimesTheInput, (std::vector<int8_t> bytes)) {
  bytes.resize(64);
  std::vector<float> values(bytes.begin(), bytes.end());
  WalshHadamard(values);
  WalshHadamard(values);
  for (size_t i = 0; i < values.size(); ++i) {
    RC_ASSERT(values[i] == 64.0f * static_cast<float>(bytes[i]));
  }
}

TEST(WalshHadamard, SizesAreChecked) {
  std::vector<float> values(96);
  EXPECT_THROW(WalshHadamard(values), Error);
  EXPECT_THROW(WalshHadamardBlocks(64, values), Error);
  EXPECT_THROW(WalshHadamardBlocks(0, values), Error);
  EXPECT_NO_THROW(WalshHadamardBlocks(32, values));
}

}  // namespace
}  // namespace assay

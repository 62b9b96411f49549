#include "assay/numeric/random.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "assay/base/parallel.h"
#include "tests/numeric/elements.h"
#include "tests/support/fixture.h"

namespace assay {
namespace {

TEST(Lcg, GivesTheParityInputOfEverySeed) {
  const test::Fixture fixture("turboquant/lcg.safetensors");
  ASSERT_FALSE(fixture.Names().empty());
  for (const std::string& name : fixture.Names()) {
    Lcg generator(static_cast<uint32_t>(std::stoul(name.substr(name.find('_') + 1))));
    for (const uint32_t code : test::Codes(fixture.Get(name))) {
      ASSERT_EQ(generator.NextBF16(), code) << name;
    }
  }
}

TEST(SplitMix64, GivesThePublishedSequence) {
  SplitMix64 generator(1234567);
  EXPECT_EQ(generator.Next(), 6457827717110365317u);
  EXPECT_EQ(generator.Next(), 3203168211198807973u);
  EXPECT_EQ(generator.Next(), 9817491932198370423u);
}

TEST(SplitMix64, SkipIsNextRepeated) {
  SplitMix64 one(9);
  SplitMix64 other(9);
  for (int i = 0; i < 1000; ++i) one.Next();
  other.Skip(1000);
  EXPECT_EQ(one.Next(), other.Next());
}

TEST(NormalQuantile, InvertsTheDistribution) {
  for (int i = 1; i < 4000; ++i) {
    const double p = i / 4000.0;
    const double x = NormalQuantile(p);
    EXPECT_NEAR(std::erfc(-x / std::sqrt(2.0)) / 2, p, 2e-16 + 1e-15 * p);
  }
  for (double p = 1e-16; p > 1e-300; p *= 1e-7) {
    const double x = NormalQuantile(p);
    EXPECT_NEAR(std::erfc(-x / std::sqrt(2.0)) / 2 / p, 1, 1e-12) << p;
  }
}

TEST(NormalQuantile, GivesThesePinnedBits) {
  EXPECT_EQ(NormalQuantile(0.5), 0.0);
  EXPECT_EQ(NormalQuantile(0.25), -NormalQuantile(0.75));
  EXPECT_EQ(NormalQuantile(0x1p-53), -NormalQuantile(1 - 0x1p-53));
}

TEST(NormalGenerator, HasTheMomentsOfItsDistribution) {
  constexpr size_t kCount = 1 << 20;
  std::vector<float> samples(kCount);
  NormalGenerator(1).Fill(samples);
  double sum = 0;
  double square = 0;
  double fourth = 0;
  for (const float x : samples) {
    const double d = static_cast<double>(x);
    sum += d;
    square += d * d;
    fourth += d * d * d * d;
  }
  // Four standard errors.
  constexpr double kError = 4.0 / 1024;
  EXPECT_NEAR(sum / kCount, 0, kError);
  EXPECT_NEAR(square / kCount, 1, kError * std::sqrt(2.0));
  EXPECT_NEAR(fourth / kCount, 3, kError * std::sqrt(96.0));
}

TEST(NormalGenerator, GivesThePinnedBitsOfAnIndependentImplementation) {
  // CPython's statistics.NormalDist().inv_cdf on the same quantiles.
  constexpr uint32_t kSeed0[] = {0x3F9889AB, 0xBE309FFF, 0xBFF7CEE4, 0x3FF26BDE,
                                 0xBF9F8344, 0xBEE505C4, 0xBF7061AB, 0x3F3E737D};
  constexpr uint32_t kSeed1[] = {0x3E2BA65F, 0x3F294944, 0x3FF2A798, 0xBE0F48C5,
                                 0xBE0F877D, 0x3F373471, 0x3F94B700, 0x3D6CF760};
  NormalGenerator zero(0);
  for (const uint32_t bits : kSeed0) EXPECT_EQ(std::bit_cast<uint32_t>(zero.Next()), bits);
  NormalGenerator one(1);
  for (const uint32_t bits : kSeed1) EXPECT_EQ(std::bit_cast<uint32_t>(one.Next()), bits);
}

TEST(NormalGenerator, FillIsNextRepeatedOnAnyNumberOfThreads) {
  const int before = NumThreads();
  std::vector<float> expected(40000);
  NormalGenerator sequential(77);
  for (float& x : expected) x = sequential.Next();
  for (const int threads : {1, 2, 3}) {
    SetNumThreads(threads);
    NormalGenerator generator(77);
    std::vector<float> found(expected.size());
    generator.Fill(found);
    EXPECT_EQ(found, expected);
    NormalGenerator copy = sequential;
    EXPECT_EQ(generator.Next(), copy.Next());
  }
  SetNumThreads(before);
}

}  // namespace
}  // namespace assay

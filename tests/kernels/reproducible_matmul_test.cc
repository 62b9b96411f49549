#include "assay/kernels/reproducible_matmul.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "assay/base/error.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

std::vector<float> Normal(int64_t count, unsigned seed, bool round) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = normal(generator);
    if (round) value = RoundToBF16(value);
  }
  return values;
}

struct ReproducibleCase {
  int64_t m, n, k;
  bool round_x, round_w;
};

// The order of summation that the header states, in plain loops.
std::vector<float> Stated(const std::vector<float>& w, const std::vector<float>& x,
                          const ReproducibleCase& c, bool narrow) {
  std::vector<float> y;
  for (int64_t row = 0; row < c.n; ++row) {
    for (int64_t token = 0; token < c.m; ++token) {
      double total = 0;
      for (int64_t first = 0; first < c.k; first += 256) {
        float narrow_sum = 0;
        double wide_sum = 0;
        for (int64_t i = first; i < std::min(first + 256, c.k); ++i) {
          const float a = w[static_cast<size_t>(row * c.k + i)];
          const float b = x[static_cast<size_t>(token * c.k + i)];
          narrow_sum += a * b;
          wide_sum += static_cast<double>(a) * static_cast<double>(b);
        }
        total += narrow ? static_cast<double>(narrow_sum) : wide_sum;
      }
      y.push_back(static_cast<float>(total));
    }
  }
  return y;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) &&
        !(std::isnan(a[i]) && std::isnan(b[i]))) {
      return false;
    }
  }
  return true;
}

std::vector<float> Product(const std::vector<float>& w, const std::vector<float>& x,
                           const ReproducibleCase& c) {
  const PackedActivations packed(x, c.m, c.k);
  std::vector<float> y(static_cast<size_t>(c.n * c.m), std::nanf(""));
  ReproducibleMatmul(w, c.n, packed, y);
  return y;
}

constexpr ReproducibleCase kCases[] = {
    {1, 1, 1, true, true},     {3, 7, 5, true, true},      {64, 6, 256, true, true},
    {65, 13, 257, true, true}, {2, 48, 1000, true, false}, {70, 5, 300, false, true},
    {1, 6, 0, true, true},     {130, 4, 63, false, false},
};

TEST(ReproducibleMatmul, SumsInTheStatedOrderOnEveryInstructionSet) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    for (const ReproducibleCase& c : kCases) {
      const std::vector<float> w = Normal(c.n * c.k, 1, c.round_w);
      const std::vector<float> x = Normal(c.m * c.k, 2, c.round_x);
      EXPECT_TRUE(SameBits(Product(w, x, c), Stated(w, x, c, c.round_x && c.round_w)))
          << hwy::TargetName(target) << " " << c.m << " " << c.n << " " << c.k;
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(ReproducibleMatmul, TinyAndHugeValuesAreSummedWide) {
  const ReproducibleCase c{2, 3, 40, true, true};
  for (const float special : {0x1p-120f, 0x1p100f, 0x1p-149f}) {
    std::vector<float> w = Normal(c.n * c.k, 3, true);
    std::vector<float> x = Normal(c.m * c.k, 4, true);
    w[5] = special;
    EXPECT_TRUE(SameBits(Product(w, x, c), Stated(w, x, c, false)));
    w[5] = 1;
    x[7] = special;
    EXPECT_TRUE(SameBits(Product(w, x, c), Stated(w, x, c, false)));
  }
}

TEST(ReproducibleMatmul, NonFiniteWeightsReachOnlyTheirRow) {
  const ReproducibleCase c{2, 3, 40, true, true};
  std::vector<float> w = Normal(c.n * c.k, 3, true);
  const std::vector<float> x = Normal(c.m * c.k, 4, true);
  w[41] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> y = Product(w, x, c);
  EXPECT_TRUE(std::isfinite(y[0]) && std::isfinite(y[1]));
  EXPECT_TRUE(std::isnan(y[2]) && std::isnan(y[3]));
  EXPECT_TRUE(std::isfinite(y[4]) && std::isfinite(y[5]));
}

TEST(ReproducibleMatmul, ChecksSizes) {
  const std::vector<float> x(6);
  EXPECT_THROW(PackedActivations(x, 2, 4), Error);
  const PackedActivations packed(x, 2, 3);
  std::vector<float> y(2);
  EXPECT_THROW(ReproducibleMatmul(std::vector<float>(4), 1, packed, y), Error);
}

}  // namespace
}  // namespace assay

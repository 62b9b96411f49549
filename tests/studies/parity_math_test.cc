#include "assay/studies/parity_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "assay/base/error.h"
#include "assay/tensor/convert.h"
#include "tests/support/fixture.h"

namespace assay {
namespace {

using test::Fixture;
using test::FixtureFiles;
using test::ReadTestData;

std::vector<float> Values(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.shape().NumElements()));
  ReadFloats(tensor.view(), 0, values);
  return values;
}

TEST(ParityInput, IsTheStatedGeneratorForEverySeed) {
  const Fixture fixture("turboquant/lcg.safetensors");
  for (const std::string& name : fixture.Names()) {
    const Tensor expected = fixture.Get(name);
    const auto seed = static_cast<uint32_t>(std::stoul(name.substr(name.find('_') + 1)));
    const auto codes = ParityInput(seed, expected.shape()[0]);
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(codes)), expected.bytes())) << name;
  }
}

TEST(LaneDot, HasTheBitsOfTheStatedOrderForEveryGroupSize) {
  int64_t num_compared = 0;
  for (const std::string& file : FixtureFiles("turboquant", "tq")) {
    const Fixture fixture(file);
    const int64_t group_size = std::stoll(fixture.Metadata("group_size"));
    const Tensor decoded = fixture.Get("bf16.decoded_f32");
    const std::vector<float> weights = Values(decoded);
    const std::vector<float> x = Values(fixture.Get("gemv.x"));
    const std::vector<float> separate = Values(fixture.Get("gemv.y_lane_f32"));
    const std::vector<float> fused = Values(fixture.Get("gemv.y_lane_fma_f32"));
    for (size_t row = 0; row < separate.size(); ++row) {
      const auto w = std::span(weights).subspan(row * x.size(), x.size());
      EXPECT_EQ(std::bit_cast<uint32_t>(LaneDot(w, x, group_size, LaneArithmetic::kSeparate)),
                std::bit_cast<uint32_t>(separate[row]))
          << file << " row " << row;
      EXPECT_EQ(std::bit_cast<uint32_t>(LaneDot(w, x, group_size, LaneArithmetic::kFused)),
                std::bit_cast<uint32_t>(fused[row]))
          << file << " row " << row;
      ++num_compared;
    }
  }
  EXPECT_EQ(num_compared, 9 * 12);
}

TEST(LaneDot, APartialLastGroupUsesTheFirstLanes) {
  const std::vector<float> w = {1, 2, 3};
  const std::vector<float> x = {4, 5, 6};
  EXPECT_EQ(LaneDot(w, x, 64, LaneArithmetic::kFused), 32.0f);
  EXPECT_EQ(LaneDot({}, {}, 32, LaneArithmetic::kFused), 0.0f);
}

TEST(ParityFigures, AreThoseOfTheReportsToTheLastDigit) {
  for (const std::string format : {"tq4g128", "tq3g32"}) {
    const Fixture fixture("turboquant/parity-" + format + ".safetensors");
    const auto report =
        nlohmann::json::parse(ReadTestData("turboquant/parity-" + format + ".json"));
    const std::vector<float> lhs = Values(fixture.Get("lhs"));
    const std::vector<float> rhs = Values(fixture.Get("rhs"));
    const ParityFigures figures = MeasureParity(lhs, rhs);
    const auto& expected = report.at("comparison");
    EXPECT_EQ(figures.elements, expected.at("elements"));
    EXPECT_EQ(figures.max_abs, expected.at("max_abs"));
    EXPECT_EQ(figures.max_abs_index, expected.at("max_abs_index"));
    EXPECT_EQ(figures.max_rel, expected.at("max_rel"));
    EXPECT_EQ(figures.max_rel_index, expected.at("max_rel_index"));
    const auto near = [&](const char* key, double found) {
      const double wanted = expected.at(key);
      EXPECT_NEAR(found, wanted, 1e-12 * wanted) << format << " " << key;
    };
    near("mean_abs", figures.mean_abs);
    near("rmse", figures.rmse);
    near("rhs_rms", figures.rhs_rms);
    near("rmse_over_rhs_rms", figures.rmse_over_rhs_rms);
    near("mean_rel", figures.mean_rel);
    const auto codes = ParityInput(report.at("seed"), fixture.Get("x").shape()[0]);
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(codes)), fixture.Get("x").bytes()));
    for (const auto& row : report.at("first8")) {
      const size_t i = row.at("index");
      EXPECT_EQ(static_cast<double>(AbsoluteError(lhs[i], rhs[i])), row.at("abs_err"));
      EXPECT_EQ(static_cast<double>(RelativeError(lhs[i], rhs[i])), row.at("rel_err"));
    }
  }
}

TEST(ParityFigures, NanIsNoMaximumButSpoilsTheMeans) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> lhs = {1, nan, 2};
  const std::vector<float> rhs = {1, 1, 4};
  const ParityFigures figures = MeasureParity(lhs, rhs);
  EXPECT_EQ(figures.max_abs, 2.0);
  EXPECT_EQ(figures.max_abs_index, 2);
  EXPECT_TRUE(std::isnan(figures.mean_abs));
  EXPECT_TRUE(std::isnan(figures.rmse_over_rhs_rms));
}

TEST(ParityFigures, AZeroReferenceDividesByTheFloor) {
  const std::vector<float> lhs = {1e-6f};
  const std::vector<float> rhs = {0};
  EXPECT_NEAR(MeasureParity(lhs, rhs).rmse_over_rhs_rms, 1e6, 1);
  EXPECT_EQ(MeasureParity({}, {}).elements, 0);
  EXPECT_THROW(MeasureParity(lhs, {}), Error);
}

}  // namespace
}  // namespace assay

#include "assay/studies/parity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/checkpoint/model.h"
#include "tests/support/paths.h"

namespace assay {
namespace {

using testing::HasSubstr;

ParityOptions Mlx(Strategy strategy) {
  ParityOptions options;
  options.model = test::TestDataPath("mlx/model-affine-mixed");
  options.tensor = "model.layers.0.mlp.down_proj";
  options.strategy = strategy;
  return options;
}

TEST(Parity, TheBf16RouteAgreesWithinItsRounding) {
  for (const Strategy strategy : {Strategy::kReference, Strategy::kFused}) {
    const ParityReport report = RunParity(Mlx(strategy));
    EXPECT_TRUE(report.passed);
    EXPECT_EQ(report.lhs.size(), 128u);
    EXPECT_EQ(report.cols, 256);
    EXPECT_EQ(report.packed_cols, 128);
    EXPECT_EQ(report.geometry->group_size, 64);
    EXPECT_EQ(report.x, (std::vector<float>{0.60546875f, 0.466796875f, -0.35546875f, -0.48828125f,
                                            -0.984375f, 0.216796875f, -0.12890625f, -0.52734375f}));
    EXPECT_THAT(report.lhs_name, HasSubstr("_affine_gemv"));
  }
}

TEST(Parity, TheReferenceHasTheSameBitsForEveryThreadCount) {
  const int before = NumThreads();
  SetNumThreads(1);
  const ParityReport one = RunParity(Mlx(Strategy::kReference));
  SetNumThreads(3);
  const ParityReport three = RunParity(Mlx(Strategy::kReference));
  SetNumThreads(before);
  EXPECT_EQ(one.lhs, three.lhs);
}

TEST(Parity, EveryOutputIsWithinItsDerivedBound) {
  for (const Strategy strategy :
       {Strategy::kReference, Strategy::kFused, Strategy::kFusedA8, Strategy::kDequantGemm}) {
    for (const uint32_t seed : {1u, 0x5EED1234u}) {
      ParityOptions options = Mlx(strategy);
      options.seed = seed;
      const ParityReport report = RunParity(options);
      const ParityBound& bound = report.bound;
      EXPECT_EQ(bound.num_exceeded, 0) << NameOf(strategy);
      EXPECT_GE(bound.at_max_abs, report.figures.max_abs);
      EXPECT_LE(bound.largest_share, 1);
      EXPECT_GE(bound.largest_share_index, 0);
      EXPECT_GT(bound.output_mean, 0);
      EXPECT_FALSE(bound.lhs_formula.empty());
      // The terms are of the size of what they bound, not of something else.
      EXPECT_LT(bound.lhs_mean + bound.rhs_mean + bound.weights_mean,
                (strategy == Strategy::kFusedA8 ? 2 : 0.2) * report.figures.rhs_rms);
    }
  }
}

TEST(Parity, ABoundTellsOneWrongOutput) {
  ParityReport report = RunParity(Mlx(Strategy::kFused));
  const std::vector<double> bounds(report.lhs.size(), 1e-3);
  const Model model = Model::Open(Mlx(Strategy::kFused).model);
  const EncodedMatrix weight = model.FindWeight("model.layers.0.mlp.down_proj.weight")->Encoded(0);
  const std::vector<float> x(static_cast<size_t>(report.cols), 0.0f);
  std::vector<float> wrong = report.rhs;
  wrong[5] += 0.01f + std::fabs(wrong[5]);
  wrong[9] = std::nanf("");
  const ParityBound bound =
      MeasureParityBound(weight, x, {wrong, bounds, ""}, {report.rhs, bounds, ""}, 5);
  EXPECT_EQ(bound.num_exceeded, 2);
  EXPECT_EQ(bound.largest_share_index, 9);
  EXPECT_TRUE(std::isinf(bound.largest_share));
  EXPECT_LT(bound.at_max_abs, 0.05);
}

TEST(Parity, AFigureAboveTheGateFails) {
  ParityOptions options = Mlx(Strategy::kReference);
  options.seed = 7;
  options.max_rmse_over_rhs_rms = 1e-9;
  const ParityReport report = RunParity(options);
  EXPECT_FALSE(report.passed);
  options.max_rmse_over_rhs_rms = std::nullopt;
  EXPECT_TRUE(RunParity(options).passed);
}

TEST(Parity, AWeightThatIsNotThereIsNamedWithItsNeighbours) {
  ParityOptions options = Mlx(Strategy::kReference);
  options.tensor = "layers.0.mlp.down_proj";
  try {
    RunParity(options);
    FAIL() << "a missing weight was found";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(), HasSubstr("there is model.layers.0.mlp.down_proj.weight"));
  }
  options = Mlx(Strategy::kReference);
  options.matrix = 1;
  EXPECT_THROW(RunParity(options), Error);
}

}  // namespace
}  // namespace assay

#include "assay/studies/parity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "assay/base/error.h"
#include "assay/base/parallel.h"

namespace assay {
namespace {

using testing::HasSubstr;

ParityOptions Mlx(Strategy strategy) {
  ParityOptions options;
  options.model = ASSAY_TEST_DATA "/mlx/model-affine-mixed";
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

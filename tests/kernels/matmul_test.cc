#include "assay/kernels/matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "assay/base/error.h"
#include "assay/base/target.h"
#include "assay/formats/catalogue.h"
#include "assay/numeric/bulk.h"
#include "tests/support/every_target.h"
#include "tests/support/product_check.h"

namespace assay {
namespace {

TEST(Matmul, StrategyNamesParseBack) {
  for (const Strategy strategy :
       {Strategy::kReference, Strategy::kDequantGemm, Strategy::kFused, Strategy::kFusedA8}) {
    EXPECT_EQ(ParseStrategy(NameOf(strategy)), strategy);
  }
  EXPECT_THROW(ParseStrategy("fast"), Error);
}

TEST(Matmul, ReferenceIsTheProductInDouble) {
  const EncodedMatrix weight = EncodeRandom("f32", 5, 37, DType::kF32, 1);
  std::vector<float> w(5 * 37);
  weight.format->DecodeRows(weight, 0, 5, w);
  const std::vector<float> x = RandomValues(3 * 37, 2);
  const std::vector<float> y = Product(weight, Strategy::kReference, x, 3);
  for (size_t m = 0; m < 3; ++m) {
    for (size_t n = 0; n < 5; ++n) {
      double sum = 0;
      for (size_t k = 0; k < 37; ++k) {
        sum += static_cast<double>(x[m * 37 + k]) * static_cast<double>(w[n * 37 + k]);
      }
      EXPECT_EQ(y[m * 5 + n], static_cast<float>(sum));
    }
  }
}

TEST(Matmul, EveryFormatWorksWithEveryStrategy) {
  for (const FormatFamily* family : FormatCatalogue()) {
    for (const std::string& name : family->names()) {
      SCOPED_TRACE(name);
      const FormatPtr format = Format::Parse(name);
      constexpr int64_t kRows = 9;
      constexpr int64_t kCols = 512;
      if (!format->CanEncode() || format->WhyNot(kRows, kCols, DType::kBF16)) continue;
      const EncodedMatrix weight = EncodeRandom(name, kRows, kCols, DType::kBF16, 3);
      for (const int64_t m : {1, 5}) {
        const std::vector<float> x = RandomValues(m * kCols, 4);
        for (const Strategy strategy :
             {Strategy::kDequantGemm, Strategy::kFused, Strategy::kFusedA8}) {
          EXPECT_TRUE(WithinBound(weight, strategy, x, m));
        }
      }
    }
  }
}

TEST(Matmul, FamiliesWithKernelsOfTheirOwnUseThem) {
  test::OnEveryTarget([] {
    std::vector<const char*> names = {"f32", "f16", "bf16", "affine4g64", "mxfp4", "nvfp4"};
    if (ActiveTargetName() == "avx512_dl") {
      names.insert(names.end(),
                   {"affine3g64", "mxfp8", "mxint8", "fp8-block128", "packed12", "tq4g128"});
    }
    for (const char* name : names) {
      const EncodedMatrix weight = EncodeRandom(name, 8, 256, DType::kBF16, 1);
      EXPECT_THAT(MakeMatmul(weight, Strategy::kFused)->Implementation(),
                  testing::Not(testing::HasSubstr("decoded")))
          << name;
    }
  });
}

TEST(Matmul, WrongSizesAreErrors) {
  const EncodedMatrix weight = EncodeRandom("bf16", 4, 32, DType::kBF16, 1);
  const auto matmul = MakeMatmul(weight, Strategy::kFused, {.x_dtype = DType::kF32});
  std::vector<float> x(32);
  std::vector<float> y(3);
  EXPECT_THROW(matmul->Run(1, std::as_bytes(std::span(x)), std::as_writable_bytes(std::span(y))),
               Error);
  EXPECT_THROW(MakeMatmul(weight, Strategy::kFused, {.x_dtype = DType::kF16}), Error);
  EXPECT_THROW(MakeMatmul(weight, Strategy::kFused, {.y_dtype = DType::kU8}), Error);
}

TEST(Matmul, NoColumnsGiveZeros) {
  const EncodedMatrix empty = EncodeRandom("bf16", 3, 0, DType::kBF16, 1);
  std::vector<float> y(3, std::numeric_limits<float>::quiet_NaN());
  MakeMatmul(empty, Strategy::kFused)->Run(1, {}, std::as_writable_bytes(std::span(y)));
  EXPECT_EQ(y, std::vector<float>(3, 0.0f));
  MakeMatmul(empty, Strategy::kFused)->Run(0, {}, {});
}

TEST(Matmul, BF16ResultsAreTheF32OnesRoundedOnce) {
  const EncodedMatrix weight = EncodeRandom("bf16", 33, 96, DType::kBF16, 1);
  const std::vector<float> x = RandomValues(2 * 96, 5);
  const std::vector<float> wide = Product(weight, Strategy::kFused, x, 2);
  std::vector<uint16_t> expected(wide.size());
  Round(Element::kBF16, wide, std::as_writable_bytes(std::span(expected)));
  std::vector<uint16_t> y(wide.size(), 0xFFFF);
  MakeMatmul(weight, Strategy::kFused, {.x_dtype = DType::kF32, .y_dtype = DType::kBF16})
      ->Run(2, std::as_bytes(std::span(x)), std::as_writable_bytes(std::span(y)));
  EXPECT_EQ(y, expected);
}

TEST(Matmul, FusedResultsDoNotDependOnTheNumberOfThreads) {
  const EncodedMatrix weight = EncodeRandom("bf16", 96, 130, DType::kBF16, 1);
  for (const int64_t m : {1, 3, 9}) {
    const std::vector<float> x = RandomValues(m * 130, 6);
    EXPECT_TRUE(SameForAllThreadCounts(weight, Strategy::kFused, x, m));
    EXPECT_TRUE(SameForAllThreadCounts(weight, Strategy::kFusedA8, x, m));
  }
}

TEST(Matmul, PlainFormatsStayWithinTheBoundForEveryShapeClass) {
  for (const char* name : {"bf16", "f16", "f32"}) {
    EXPECT_TRUE(HoldsForEveryShape(name, {1, 7, 8, 15, 17, 33, 63, 64, 65, 200}, DType::kBF16));
  }
}

TEST(Matmul, TheForcedTargetRuns) {
  const EncodedMatrix weight = EncodeRandom("bf16", 33, 200, DType::kBF16, 1);
  for (const std::string& target : SupportedTargets()) {
    ForceTarget(target);
    EXPECT_THAT(MakeMatmul(weight, Strategy::kFused)->Implementation(), testing::EndsWith(target));
    for (const int64_t m : {1, 3}) {
      const std::vector<float> x = RandomValues(m * 200, 7);
      for (const char* name : {"bf16", "f16", "f32"}) {
        EXPECT_TRUE(
            WithinBound(EncodeRandom(name, 33, 200, DType::kBF16, 1), Strategy::kFused, x, m));
      }
    }
  }
  ResetTarget();
}

TEST(Matmul, PlainFormatsTakeHardInputs) {
  for (const char* name : {"bf16", "f16", "f32"}) EXPECT_TRUE(HoldsForHardInputs(name, 128));
}

}  // namespace
}  // namespace assay

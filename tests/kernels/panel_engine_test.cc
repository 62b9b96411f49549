#include "assay/kernels/panel_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "assay/base/parallel.h"
#include "assay/formats/plain.h"
#include "assay/kernels/matmul.h"
#include "assay/numeric/bulk.h"
#include "tests/support/every_target.h"
#include "tests/support/product_check.h"

namespace assay {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Both finite, both NaN, or the same infinity.
bool SameClass(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::isinf(a) || std::isinf(b) ? a == b : true;
}

/// Small products: starting workers would cost more than the work.
class PanelEngine : public testing::Test {
 protected:
  void SetUp() override { SetNumThreads(1); }
  void TearDown() override { SetNumThreads(threads_); }

 private:
  int threads_ = NumThreads();
};

struct Case {
  const char* format;
  std::vector<int64_t> cols;  ///< below, at and beyond a block of columns, with and without a tail
};

/// Decoders of columns and of whole rows, group scales, escapes, rotations.
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"bf16", {1, 33, 257, 1030}}, {"f32", {65, 600}},      {"affine4g64", {64, 576}},
      {"affine3g32", {32, 544}},    {"packed12", {37, 515}}, {"mxfp4", {96, 544}},
      {"fp8-block128", {129}},      {"tq4g128", {640}},
  };
  return cases;
}

TEST_F(PanelEngine, StaysWithinTheBoundForEveryShapeClass) {
  constexpr int64_t kXRows[] = {17, 33, 64, 65, 32, 31};
  uint32_t seed = 100;
  size_t turn = 0;
  for (const Case& c : Cases()) {
    for (const int64_t k : c.cols) {
      for (const int64_t n : {1, 4, 7, 8, 33, 63, 64, 65, 96}) {
        const int64_t m = kXRows[turn++ % 6];
        EXPECT_TRUE(WithinBound(EncodeRandom(c.format, n, k, DType::kBF16, seed), Strategy::kFused,
                                RandomValues(m * k, seed + 1), m));
        seed += 2;
      }
    }
  }
}

TEST_F(PanelEngine, StaysWithinTheBoundOnEveryTarget) {
  test::OnEveryTarget([] {
    for (const Case& c : Cases()) {
      const int64_t k = c.cols.back();
      const EncodedMatrix weight = EncodeRandom(c.format, 35, k, DType::kBF16, 7);
      for (const int64_t m : {17, 41}) {
        const std::vector<float> x = RandomValues(m * k, 8);
        EXPECT_TRUE(WithinBound(weight, Strategy::kFused, x, m));
        if (m == 17) {
          EXPECT_TRUE(WithinBound(weight, Strategy::kFusedA8, x, m));
        }
      }
    }
  });
}

TEST_F(PanelEngine, TakesMoreRowsOfXThanItMultipliesAtATime) {
  // A result large enough to be stored past the caches, with and without whole lines.
  for (const int64_t n : {2064, 2060}) {
    constexpr int64_t kCols = 5;
    constexpr int64_t kXRows = 521;
    const EncodedMatrix weight = EncodeRandom("bf16", n, kCols, DType::kBF16, 1);
    EXPECT_TRUE(WithinBound(weight, Strategy::kFused, RandomValues(kXRows * kCols, 2), kXRows));
  }
}

TEST_F(PanelEngine, BF16ActivationsStayWithinTheBound) {
  test::OnEveryTarget([] {
    for (const char* name : {"bf16", "affine4g64", "mxfp4"}) {
      constexpr int64_t kCols = 576;
      constexpr int64_t kXRows = 35;
      const EncodedMatrix weight = EncodeRandom(name, 40, kCols, DType::kBF16, 3);
      std::vector<uint16_t> words(kXRows * kCols);
      Round(Element::kBF16, RandomValues(kXRows * kCols, 4),
            std::as_writable_bytes(std::span(words)));
      const auto x = std::as_bytes(std::span(words));
      for (const auto rounding : {DecodeRounding::kNone, DecodeRounding::kCheckpoint}) {
        const MatmulOptions options{.weight_rounding = rounding};
        std::vector<float> expected(kXRows * 40);
        std::vector<float> y(expected.size(), kNaN);
        std::vector<double> bounds(expected.size());
        MakeMatmul(weight, Strategy::kReference, options)
            ->Run(kXRows, x, std::as_writable_bytes(std::span(expected)));
        const auto matmul = MakeMatmul(weight, Strategy::kFused, options);
        matmul->Run(kXRows, x, std::as_writable_bytes(std::span(y)));
        matmul->ErrorBounds(kXRows, x, bounds);
        for (size_t i = 0; i < y.size(); ++i) {
          const auto wanted = static_cast<double>(expected[i]);
          EXPECT_LE(std::fabs(static_cast<double>(y[i]) - wanted),
                    bounds[i] + std::fabs(wanted) * 0x1p-24)
              << name << " " << i;
        }
      }
    }
  });
}

TEST_F(PanelEngine, RunsWhereItsNameSaysSo) {
  test::OnEveryTarget([] {
    const EncodedMatrix weight = EncodeRandom("affine4g64", 33, 128, DType::kBF16, 1);
    const auto matmul = MakeMatmul(weight, Strategy::kFused, {.x_dtype = DType::kF32});
    for (const int64_t m : {1, 33}) {
      const std::vector<float> x = RandomValues(m * 128, 2);
      std::vector<float> y(static_cast<size_t>(m * 33));
      matmul->Run(m, std::as_bytes(std::span(x)), std::as_writable_bytes(std::span(y)));
      EXPECT_EQ(matmul->Implementation().starts_with("panels in "), m == 33);
    }
  });
}

TEST_F(PanelEngine, ResultsDoNotDependOnTheNumberOfThreads) {
  for (const char* name : {"bf16", "affine4g64", "mxfp4"}) {
    const EncodedMatrix weight = EncodeRandom(name, 700, 640, DType::kBF16, 5);
    EXPECT_TRUE(SameForAllThreadCounts(weight, Strategy::kFused, RandomValues(33 * 640, 6), 33));
  }
}

TEST_F(PanelEngine, TakesHardActivations) {
  constexpr int64_t kXRows = 20;
  constexpr int64_t kCols = 576;
  test::OnEveryTarget([] {
    for (const char* name : {"bf16", "affine4g64"}) {
      const EncodedMatrix weight = EncodeRandom(name, 33, kCols, DType::kBF16, 9);
      std::vector<float> x = RandomValues(kXRows * kCols, 10);
      const auto row = [&](size_t m) { return std::span(x).subspan(m * kCols, kCols); };
      for (float& v : row(0)) v = 0;
      for (float& v : row(1)) v *= 0x1p-110f;
      for (float& v : row(2)) v *= 0x1p-140f;
      for (size_t i = 0; i < 64; ++i) row(3)[i] *= 0x1p60f;
      for (size_t i = 0; i < kCols; i += 3) row(4)[i] *= 0x1p-100f;
      row(5)[0] = 0x1p90f;
      row(6)[kCols - 1] = -0x1p70f;
      row(7)[1] = -0.0f;
      EXPECT_TRUE(WithinBound(weight, Strategy::kFused, x, kXRows));
      row(8)[3] = kNaN;
      row(9)[kCols - 1] = kInfinity;
      row(10)[0] = -kInfinity;
      row(11)[0] = kInfinity, row(11)[kCols - 1] = -kInfinity;
      row(12)[0] = 0x1.FFFFFEp127f;
      const std::vector<float> expected = Product(weight, Strategy::kReference, x, kXRows);
      const std::vector<float> y = Product(weight, Strategy::kFused, x, kXRows);
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_TRUE(SameClass(y[i], expected[i]))
            << name << " " << i << ": " << y[i] << ", expected " << expected[i];
      }
    }
  });
}

TEST_F(PanelEngine, TakesHardWeights) {
  constexpr int64_t kXRows = 18;
  constexpr int64_t kRows = 40;
  constexpr int64_t kCols = 70;
  test::OnEveryTarget([] {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      std::vector<float> values = RandomValues(kRows * kCols, 11);
      values[0] = kNaN;
      values[2 * kCols + 5] = kInfinity;
      values[3 * kCols + kCols - 1] = -kInfinity;
      values[4 * kCols + 1] = kInfinity, values[4 * kCols + 2] = -kInfinity;
      for (size_t i = 0; i < kCols; ++i) values[6 * kCols + i] *= 0x1p-133f;
      for (size_t i = 0; i < kCols; ++i) values[7 * kCols + i] *= 0x1p-120f;
      for (size_t i = 0; i < kCols; ++i) values[8 * kCols + i] *= 0x1p100f;
      Tensor tensor = Tensor::Allocate(dtype, Shape{kRows, kCols});
      Round(dtype == DType::kBF16 ? Element::kBF16 : Element::kF32, values, tensor.mutable_bytes());
      const EncodedMatrix weight =
          PlainFormat(dtype)->Encode(MatrixView(tensor.view(), kRows, kCols), {});
      std::vector<float> x = RandomValues(kXRows * kCols, 12);
      x[0] = 0;
      x[kCols + 5] = 0;
      const MatmulOptions options{.x_dtype = DType::kF32};
      const std::vector<float> expected = Product(weight, Strategy::kReference, x, kXRows);
      const auto matmul = MakeMatmul(weight, Strategy::kFused, options);
      std::vector<float> y(expected.size(), kNaN);
      matmul->Run(kXRows, std::as_bytes(std::span(x)), std::as_writable_bytes(std::span(y)));
      std::vector<double> bounds(y.size());
      matmul->ErrorBounds(kXRows, std::as_bytes(std::span(x)), bounds);
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_TRUE(SameClass(y[i], expected[i]))
            << i << ": " << y[i] << ", expected " << expected[i];
        if (!std::isfinite(expected[i])) continue;
        const auto wanted = static_cast<double>(expected[i]);
        EXPECT_LE(std::fabs(static_cast<double>(y[i]) - wanted),
                  bounds[i] + std::fabs(wanted) * 0x1p-24 + 0x1p-149)
            << i;
      }
    }
  });
}

TEST(PanelDecoder, BlocksOfColumnsAreThoseOfWholeRows) {
  test::OnEveryTarget([] {
    for (const char* name : {"bf16", "f16", "f32", "packed12", "affine2g32", "affine4g32",
                             "affine4g128", "affine8g64"}) {
      for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
        constexpr int64_t kRows = 6;
        constexpr int64_t kCols = 384;
        if (Format::Parse(name)->WhyNot(kRows, kCols, dtype)) continue;
        const EncodedMatrix weight = EncodeRandom(name, kRows, kCols, dtype, 21);
        for (const auto rounding : {DecodeRounding::kNone, DecodeRounding::kCheckpoint}) {
          std::vector<float> expected(kRows * kCols);
          weight.format->DecodeRows(weight, 0, kRows, expected, rounding);
          const auto decoder = MakePanelDecoder(weight, rounding);
          ASSERT_LE(decoder->ColumnGrain(), 128) << name;
          constexpr int64_t kStride = 300;
          std::vector<float> found(4 * kStride);
          std::vector<uint16_t> words(4 * kStride);
          decoder->DecodeF32(1, 4, 128, 256, found.data(), kStride);
          decoder->DecodeBF16(1, 4, 128, 256, words.data(), kStride);
          for (size_t r = 0; r < 4; ++r) {
            for (size_t c = 0; c < 256; ++c) {
              const float wanted = expected[(r + 1) * kCols + 128 + c];
              ASSERT_EQ(std::bit_cast<uint32_t>(found[r * kStride + c]),
                        std::bit_cast<uint32_t>(wanted))
                  << name << " " << NameOf(dtype) << " " << r << " " << c;
              ASSERT_EQ(words[r * kStride + c], FloatToBF16(wanted))
                  << name << " " << r << " " << c;
            }
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace assay

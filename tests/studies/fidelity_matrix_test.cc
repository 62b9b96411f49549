#include "assay/studies/fidelity_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/numeric/element.h"
#include "assay/numeric/random.h"
#include "tests/support/every_target.h"
#include "tests/support/run_cli.h"
#include "tests/support/write_safetensors.h"

namespace assay {
namespace {

TEST(EvenRows, AreEvenlySpacedAndAscending) {
  EXPECT_EQ(EvenRows(10, 4), (std::vector<int64_t>{0, 2, 5, 7}));
  EXPECT_EQ(EvenRows(3, 0), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(EvenRows(3, 9), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(EvenRows(0, 4).empty());
  const std::vector<int64_t> many = EvenRows(int64_t{1} << 60, 3);
  EXPECT_EQ(many[2], (int64_t{1} << 60) / 3 * 2);
}

TEST(SyntheticActivations, AreRoundedNormalsOfTheSeed) {
  const auto source = SyntheticActivations(2, 42);
  const FidelityActivations* activations = source->ForWidth(3);
  NormalGenerator generator(42);
  for (const uint16_t word : activations->words) EXPECT_EQ(word, FloatToBF16(generator.Next()));
  EXPECT_EQ(activations->packed.m(), 2);
  EXPECT_TRUE(activations->packed.is_narrow());
  EXPECT_EQ(source->ForWidth(5)->packed.k(), 5);
}

TEST(LoadedActivations, TakeTheOnlyMatrixAndRoundIt) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("x.safetensors");
  WriteSafetensors(path, {{"length", {2}, {7, 8}}, {"x", {2, 1, 3}, {1, 2, 1.001f, 4, 5, 6}}});
  const auto source = LoadedActivations(path);
  EXPECT_EQ(source->num_tokens(), 2);
  EXPECT_EQ(source->ForWidth(4), nullptr);
  EXPECT_EQ(source->ForWidth(3)->words[2], FloatToBF16(1.0f));
}

TEST(LoadedActivations, RefuseFilesWithoutOneMatrix) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("x.safetensors");
  WriteSafetensors(path, {{"a", {1, 2}, {1, 2}}, {"b", {1, 2}, {1, 2}}});
  EXPECT_THROW(LoadedActivations(path), Error);
  WriteSafetensors(path, {{"a", {2}, {1, 2}}});
  EXPECT_THROW(LoadedActivations(path), Error);
}

// A 101 × 70 matrix, its copy with an error, and their comparison over some rows.
struct Example {
  static constexpr int64_t kRows = 101;
  static constexpr int64_t kCols = 70;
  std::vector<float> original = std::vector<float>(kRows * kCols);
  std::vector<float> copy = std::vector<float>(kRows * kCols);

  Example() {
    NormalGenerator(1).Fill(original);
    for (size_t i = 0; i < original.size(); ++i) {
      original[i] = RoundToBF16(original[i]);
      copy[i] = RoundToBF16(original[i] * (i % 2 == 0 ? 1.01f : 0.98f));
    }
  }

  static RowReader Reader(const std::vector<float>& values) {
    return [&values](int64_t first, int64_t count, std::span<float> out) {
      std::copy_n(values.begin() + first * kCols, count * kCols, out.begin());
    };
  }

  MatrixErrors Compare(int64_t count) const {
    const auto activations = SyntheticActivations(5, 42);
    const std::vector<int64_t> rows = EvenRows(kRows, count);
    MatrixComparison comparison(rows, kCols, Reader(original), activations->ForWidth(kCols));
    comparison.Compare(Reader(original));
    return comparison.Compare(Reader(copy));
  }
};

TEST(MatrixComparison, AgreesWithPlainDoubles) {
  const Example example;
  const MatrixErrors errors = example.Compare(7);
  const auto activations = SyntheticActivations(5, 42);
  const FidelityActivations* x = activations->ForWidth(Example::kCols);
  double d2 = 0, b2 = 0, y_d2 = 0, y_b2 = 0;
  for (const int64_t row : EvenRows(Example::kRows, 7)) {
    for (size_t token = 0; token < 5; ++token) {
      double y = 0, y_copy = 0;
      for (size_t col = 0; col < Example::kCols; ++col) {
        const size_t at = static_cast<size_t>(row * Example::kCols) + col;
        const auto w = static_cast<double>(example.original[at]);
        const auto v = static_cast<double>(example.copy[at]);
        const auto a = static_cast<double>(BF16ToFloat(x->words[token * Example::kCols + col]));
        y += w * a;
        y_copy += v * a;
        if (token > 0) continue;
        d2 += (v - w) * (v - w);
        b2 += w * w;
      }
      y_d2 += (y_copy - y) * (y_copy - y);
      y_b2 += y * y;
    }
  }
  EXPECT_EQ(errors.weight.num_values, 7 * Example::kCols);
  EXPECT_EQ(errors.matmul->num_values, 7 * 5);
  EXPECT_NEAR(*errors.weight.relative_rmse, std::sqrt(d2 / b2), 1e-14);
  EXPECT_NEAR(*errors.matmul->relative_rmse, std::sqrt(y_d2 / y_b2), 1e-6);
}

TEST(MatrixComparison, ALosslessCopyHasNoError) {
  const Example example;
  const auto activations = SyntheticActivations(5, 42);
  const std::vector<int64_t> rows = EvenRows(Example::kRows, 0);
  MatrixComparison comparison(rows, Example::kCols, Example::Reader(example.original),
                              activations->ForWidth(Example::kCols));
  const MatrixErrors errors = comparison.Compare(Example::Reader(example.original));
  EXPECT_EQ(errors.weight.relative_rmse, 0.0);
  EXPECT_EQ(errors.matmul->relative_rmse, 0.0);
  EXPECT_EQ(errors.matmul->equal_fraction, 1.0);
}

TEST(MatrixComparison, HasTheSameBitsForAllThreadsAndInstructionSets) {
  const Example example;
  const MatrixErrors expected = example.Compare(0);
  const int before = NumThreads();
  test::OnEveryTarget([&] {
    for (const int threads : {1, 2, 3}) {
      SetNumThreads(threads);
      const MatrixErrors errors = example.Compare(0);
      EXPECT_EQ(errors.weight.relative_rmse, expected.weight.relative_rmse);
      EXPECT_EQ(errors.weight.mean_rel, expected.weight.mean_rel);
      EXPECT_EQ(errors.matmul->relative_rmse, expected.matmul->relative_rmse);
      EXPECT_EQ(errors.matmul->cosine, expected.matmul->cosine);
    }
  });
  SetNumThreads(before);
}

}  // namespace
}  // namespace assay

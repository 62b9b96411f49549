#include "tests/support/product_check.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "assay/base/parallel.h"
#include "assay/numeric/bulk.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

enum class Class { kFinite, kPositiveInfinity, kNegativeInfinity, kNaN };

Class ClassOf(float value) {
  if (std::isnan(value)) return Class::kNaN;
  if (std::isinf(value)) return value > 0 ? Class::kPositiveInfinity : Class::kNegativeInfinity;
  return Class::kFinite;
}

/// Small products on one thread: starting workers would cost more than the work.
class OneThread {
 public:
  OneThread() : before_(NumThreads()) { SetNumThreads(1); }
  ~OneThread() { SetNumThreads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace

std::vector<float> RandomValues(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(engine);
  return values;
}

EncodedMatrix EncodeRandom(std::string_view format, int64_t rows, int64_t cols, DType dtype,
                           uint32_t seed) {
  std::vector<float> values = RandomValues(rows * cols, seed);
  constexpr float kScales[] = {0.05f, 1.0f, 0x1p-12f, 64.0f, 0.0f};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) values[static_cast<size_t>(r * cols + c)] *= kScales[r % 5];
  }
  Tensor tensor = Tensor::Allocate(dtype, Shape{rows, cols});
  Round(ElementOf(dtype), values, tensor.mutable_bytes());
  return Format::Parse(format)->Encode(MatrixView(tensor.view(), rows, cols),
                                       {.tensor_name = "test.weight"});
}

std::vector<float> Product(const EncodedMatrix& weight, Strategy strategy,
                           const std::vector<float>& x, int64_t m, const MatmulOptions& options) {
  const auto matmul = MakeMatmul(weight, strategy, options);
  std::vector<float> y(static_cast<size_t>(m * weight.rows),
                       std::numeric_limits<float>::quiet_NaN());
  matmul->Run(m, std::as_bytes(std::span(x)), std::as_writable_bytes(std::span(y)));
  return y;
}

testing::AssertionResult WithinBound(const EncodedMatrix& weight, Strategy strategy,
                                     const std::vector<float>& x, int64_t m) {
  const OneThread one_thread;
  testing::AssertionResult missed = testing::AssertionFailure();
  size_t misses = 0;
  for (const DecodeRounding rounding : {DecodeRounding::kNone, DecodeRounding::kCheckpoint}) {
    const MatmulOptions options{.x_dtype = DType::kF32, .weight_rounding = rounding};
    const std::vector<float> expected = Product(weight, Strategy::kReference, x, m, options);
    const auto matmul = MakeMatmul(weight, strategy, options);
    std::vector<float> y(expected.size(), std::numeric_limits<float>::quiet_NaN());
    matmul->Run(m, std::as_bytes(std::span(x)), std::as_writable_bytes(std::span(y)));
    std::vector<double> bounds(expected.size());
    matmul->ErrorBounds(m, std::as_bytes(std::span(x)), bounds);
    for (size_t i = 0; i < y.size(); ++i) {
      const auto found = static_cast<double>(y[i]);
      const auto wanted = static_cast<double>(expected[i]);
      // The reference itself is rounded to f32 once.
      const double bound = bounds[i] + std::fabs(wanted) * 0x1p-24 + 0x1p-149;
      if (std::fabs(found - wanted) <= bound) continue;
      if (++misses <= 3) {
        missed << weight.format->Name() << " [" << weight.rows << ", " << weight.cols << "] "
               << NameOf(strategy) << " M=" << m << " rounding " << static_cast<int>(rounding)
               << " by " << matmul->Implementation() << " at " << i << ": expected " << wanted
               << " found " << found << " difference " << found - wanted << " bound " << bound
               << "; ";
      }
    }
  }
  return misses == 0 ? testing::AssertionSuccess() : missed << misses << " values miss";
}

testing::AssertionResult SameForAllThreadCounts(const EncodedMatrix& weight, Strategy strategy,
                                                const std::vector<float>& x, int64_t m) {
  const int before = NumThreads();
  SetNumThreads(1);
  const std::vector<float> expected = Product(weight, strategy, x, m);
  testing::AssertionResult result = testing::AssertionSuccess();
  for (const int threads : {2, 3, 5}) {
    SetNumThreads(threads);
    const std::vector<float> y = Product(weight, strategy, x, m);
    size_t misses = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      misses += std::bit_cast<uint32_t>(y[i]) == std::bit_cast<uint32_t>(expected[i]) ? 0u : 1u;
    }
    if (misses > 0) {
      result = testing::AssertionFailure()
               << weight.format->Name() << " " << NameOf(strategy) << ", " << threads
               << " threads: " << misses << " differ";
    }
  }
  SetNumThreads(before);
  return result;
}

testing::AssertionResult HoldsForEveryShape(std::string_view format,
                                            const std::vector<int64_t>& cols, DType dtype) {
  constexpr int64_t kRows[] = {1, 4, 7, 8, 33, 63, 64, 65, 96};
  constexpr int64_t kXRows[] = {1, 2, 3, 7, 8, 9, 16, 17, 33};
  const OneThread one_thread;
  uint32_t seed = 10;
  size_t turn = 0;
  for (const int64_t k : cols) {
    for (const int64_t n : kRows) {
      const EncodedMatrix weight = EncodeRandom(format, n, k, dtype, seed++);
      // M = 1 always; the other M take turns, shifted from one K to the next.
      for (const int64_t m : {int64_t{1}, kXRows[turn % 9]}) {
        const std::vector<float> x = RandomValues(m * k, seed++);
        for (const Strategy strategy : {Strategy::kFused, Strategy::kFusedA8}) {
          if (const auto result = WithinBound(weight, strategy, x, m); !result) return result;
        }
      }
      ++turn;
    }
    ++turn;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult HoldsForHardInputs(std::string_view format, int64_t cols) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr int64_t kRows = 33;
  const OneThread one_thread;
  const EncodedMatrix weight = EncodeRandom(format, kRows, cols, DType::kBF16, 77);
  const auto with = [&](auto&& change) {
    std::vector<float> x = RandomValues(cols, 78);
    change(x);
    return x;
  };
  const auto last = static_cast<size_t>(cols - 1);
  const std::vector<std::vector<float>> finite = {
      std::vector<float>(static_cast<size_t>(cols), 0.0f),
      with([](auto& x) { x[0] = 0x1p90f; }),
      with([](auto& x) {
        for (float& v : x) v *= 0x1p-110f;
      }),
      with([](auto& x) {
        for (float& v : x) v *= 0x1p-140f;
      }),
      with([](auto& x) {
        for (size_t i = 0; i < x.size() / 2; ++i) x[i] = 0;
        for (size_t i = x.size() / 2; i < x.size(); i += 3) x[i] *= 0x1p-60f;
      }),
      with([last](auto& x) { x[last] = -0x1p70f; }),
  };
  for (const auto& x : finite) {
    for (const Strategy strategy : {Strategy::kFused, Strategy::kFusedA8}) {
      if (const auto result = WithinBound(weight, strategy, x, 1); !result) return result;
    }
  }
  const std::vector<std::vector<float>> special = {
      with([](auto& x) { x[3] = kNaN; }),
      with([last](auto& x) { x[last] = kInfinity; }),
      with([](auto& x) { x[0] = -kInfinity; }),
      with([last](auto& x) { x[0] = kInfinity, x[last] = -kInfinity; }),
  };
  for (const auto& x : special) {
    const std::vector<float> expected = Product(weight, Strategy::kReference, x, 1);
    for (const Strategy strategy : {Strategy::kFused, Strategy::kFusedA8}) {
      const std::vector<float> y = Product(weight, strategy, x, 1);
      for (size_t i = 0; i < y.size(); ++i) {
        if (ClassOf(y[i]) == ClassOf(expected[i])) continue;
        return testing::AssertionFailure() << format << " " << NameOf(strategy) << " row " << i
                                           << ": " << y[i] << ", expected " << expected[i];
      }
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace assay

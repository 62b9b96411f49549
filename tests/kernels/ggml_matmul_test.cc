#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "assay/base/target.h"
#include "assay/formats/ggml.h"
#include "assay/kernels/ggml_repack.h"
#include "assay/kernels/simd_avx512.h"
#include "assay/numeric/random.h"
#include "tests/support/product_check.h"

namespace assay {
namespace {

// The types with kernels of their own; the generic one serves the others.
constexpr const char* kSmall[] = {"ggml-q4_0", "ggml-q4_1",   "ggml-q5_0", "ggml-q5_1",
                                  "ggml-q8_0", "ggml-iq4_nl", "ggml-mxfp4"};
constexpr const char* kLarge[] = {"ggml-q4_k", "ggml-q5_k", "ggml-q6_k", "ggml-iq4_xs"};

template <typename Check>
void ForEachType(const Check& check) {
  for (const char* format : kSmall) check(format);
  for (const char* format : kLarge) check(format);
}

const GgmlType& TypeOf(const char* format) {
  return dynamic_cast<const GgmlFormat&>(*Format::Parse(format)).type();
}

Tensor Copy(const Tensor& tensor) {
  Tensor copy = Tensor::AllocateUninitialized(tensor.dtype(), tensor.shape());
  std::memcpy(copy.mutable_bytes().data(), tensor.bytes().data(), tensor.bytes().size());
  return copy;
}

/// Bytes as they come, but scales below 2 (mxfp4: 2^-16 … 2^15): every code, sign and sub-scale.
EncodedMatrix RandomBlocks(const char* format, int64_t rows, int64_t cols, uint32_t seed) {
  const GgmlType& type = TypeOf(format);
  const GgmlPacking* packing = FindGgmlPacking(type);
  const int64_t num_blocks = rows * cols / type.block_values;
  Tensor blocks = Tensor::AllocateUninitialized(
      DType::kU8, Shape{rows, cols / type.block_values * type.block_bytes});
  std::byte* bytes = blocks.mutable_bytes().data();
  SplitMix64 random(seed);
  for (int64_t i = 0; i < num_blocks * type.block_bytes; ++i) {
    bytes[i] = static_cast<std::byte>(random.Next());
  }
  constexpr std::byte kLowExponents{0xBF};
  for (int64_t b = 0; b < num_blocks; ++b, bytes += type.block_bytes) {
    if (packing == nullptr) {
      bytes[0] = static_cast<std::byte>(112 + std::to_integer<int>(bytes[0]) % 32);
      continue;
    }
    bytes[packing->scale_at + 1] &= kLowExponents;
    if (packing->min_at >= 0) bytes[packing->min_at + 1] &= kLowExponents;
  }
  return {Format::Parse(format), rows, cols, DType::kF32, {{"blocks", blocks}}};
}

TEST(GgmlMatmul, StaysWithinTheBoundForEveryShapeClass) {
  for (const char* format : kSmall)
    EXPECT_TRUE(HoldsForEveryShape(format, {32, 160, 224}, DType::kBF16));
  for (const char* format : kLarge)
    EXPECT_TRUE(HoldsForEveryShape(format, {256, 768}, DType::kBF16));
}

TEST(GgmlMatmul, TakesHardInputs) {
  for (const char* format : kSmall) EXPECT_TRUE(HoldsForHardInputs(format, 320));
  for (const char* format : kLarge) EXPECT_TRUE(HoldsForHardInputs(format, 512));
}

TEST(GgmlMatmul, StaysWithinTheBoundOnEveryTarget) {
  for (const std::string& target : SupportedTargets()) {
    SCOPED_TRACE(target);
    ForceTarget(target);
    ForEachType([](const char* format) {
      const EncodedMatrix weight = EncodeRandom(format, 9, 1024, DType::kBF16, 1);
      EXPECT_THAT(MakeMatmul(weight, Strategy::kFused)->Implementation(),
                  testing::HasSubstr(" codes "));
      for (const int64_t m : {1, 3}) {
        const auto x = RandomValues(m * weight.cols, 2);
        EXPECT_TRUE(WithinBound(weight, Strategy::kFused, x, m));
        EXPECT_TRUE(WithinBound(weight, Strategy::kFusedA8, x, m));
      }
    });
  }
  ResetTarget();
}

TEST(GgmlMatmul, DoesNotDependOnTheNumberOfThreads) {
  ForEachType([](const char* format) {
    const EncodedMatrix weight = EncodeRandom(format, 96, 512, DType::kBF16, 1);
    for (const int64_t m : {1, 9}) {
      const auto x = RandomValues(m * 512, 3);
      EXPECT_TRUE(SameForAllThreadCounts(weight, Strategy::kFused, x, m));
      EXPECT_TRUE(SameForAllThreadCounts(weight, Strategy::kFusedA8, x, m));
    }
  });
}

TEST(GgmlMatmul, TakesEveryByteThatAFileMayHold) {
  ForEachType([](const char* format) {
    for (uint32_t seed = 0; seed < 4; ++seed) {
      const EncodedMatrix weight = RandomBlocks(format, 17, 768, seed);
      const auto x = RandomValues(4 * weight.cols, 20 + seed);
      for (const char* target : {"", "avx2"}) {
        if (*target != '\0' && !std::ranges::count(SupportedTargets(), target)) continue;
        if (*target != '\0') ForceTarget(target);
        EXPECT_TRUE(WithinBound(weight, Strategy::kFused, x, 4));
        EXPECT_TRUE(WithinBound(weight, Strategy::kFusedA8, x, 4));
        ResetTarget();
      }
    }
  });
}

TEST(GgmlMatmul, LongRowsStayWithinTheBound) {
  for (const char* format : {"ggml-q8_0", "ggml-q4_k", "ggml-q6_k"}) {
    const EncodedMatrix weight = EncodeRandom(format, 19, 14336, DType::kBF16, 1);
    const auto x = RandomValues(weight.cols, 2);
    EXPECT_TRUE(WithinBound(weight, Strategy::kFused, x, 1));
    EXPECT_TRUE(WithinBound(weight, Strategy::kFusedA8, x, 1));
  }
}

TEST(GgmlMatmul, LeavesScalesWithoutAValueToTheGenericKernel) {
  constexpr uint16_t kSpecial[] = {0x7C00, 0xFC00, 0x7E01};
  ForEachType([&](const char* format) {
    const GgmlType& type = TypeOf(format);
    const GgmlPacking* packing = FindGgmlPacking(type);
    const int64_t block_values = type.block_values;
    for (const uint16_t scale : kSpecial) {
      EncodedMatrix weight = RandomBlocks(format, 5, 768, 7);
      Tensor blocks = Copy(weight.planes[0].tensor);
      std::byte* second = blocks.mutable_bytes().data() + 768 / block_values * type.block_bytes;
      if (packing == nullptr) {
        *second = std::byte{255};
      } else {
        std::memcpy(second + packing->scale_at, &scale, sizeof(scale));
      }
      weight.planes[0].tensor = blocks;
      const auto x = RandomValues(768, 8);
      const auto expected = Product(weight, Strategy::kReference, x, 1);
      for (const Strategy strategy : {Strategy::kFused, Strategy::kFusedA8}) {
        const auto y = Product(weight, strategy, x, 1);
        for (size_t i = 0; i < y.size(); ++i) {
          EXPECT_EQ(std::isnan(y[i]), std::isnan(expected[i])) << format << " row " << i;
          EXPECT_EQ(std::isinf(y[i]), std::isinf(expected[i])) << format << " row " << i;
        }
      }
    }
  });
}

TEST(GgmlMatmul, CountsTheRepackedPlanes) {
  // Bytes of 256 values: codes, scales, biases.
  constexpr std::pair<const char*, int64_t> kBytes[] = {
      {"ggml-q8_0", 256 + 16}, {"ggml-q4_0", 128 + 16},      {"ggml-q4_k", 128 + 12 + 10},
      {"ggml-q6_k", 192 + 24}, {"ggml-q5_k", 160 + 16 + 10}, {"ggml-mxfp4", 128 + 8}};
  for (const auto& [format, bytes] : kBytes) {
    const EncodedMatrix weight = EncodeRandom(format, 32, 1024, DType::kBF16, 1);
    for (const Strategy strategy : {Strategy::kFused, Strategy::kFusedA8}) {
      const auto matmul = MakeMatmul(weight, strategy);
      if (!HasAvx512Vnni()) {  // f32 lanes: scales in f32, codes of 4 bits or bytes
        EXPECT_THAT(matmul->Implementation(), testing::Not(testing::HasSubstr("VNNI")));
        EXPECT_LE(matmul->prepared_bytes(), 128 * 256 * 10 / 8 + 64) << format;
        continue;
      }
      EXPECT_THAT(matmul->Implementation(), testing::HasSubstr("AVX-512 VNNI"));
      EXPECT_GE(matmul->prepared_bytes(), 128 * bytes) << format;
      EXPECT_LE(matmul->prepared_bytes(), 128 * bytes + 16) << format;
    }
  }
}

}  // namespace
}  // namespace assay

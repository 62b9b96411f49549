#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "assay/numeric/element.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/every_target.h"
#include "tests/support/ggml_checks.h"

namespace assay {
namespace {

using test::BlocksOf;
using test::BlockTypes;
using test::Fixture;
using testing::HasSubstr;

class GgmlEncoders : public testing::TestWithParam<const GgmlType*> {};

enum Status : uint8_t { kExact = 0, kUnwritten = 3 };  // of the fixtures; all others are refused

TEST_P(GgmlEncoders, GiveTheBytesOfUpstreamAndRefuseWhatHasNone) {
  const GgmlType& type = *GetParam();
  const Fixture vectors = BlocksOf(type);
  const Tensor input = Fixture("ggml/blocks/encode-input.safetensors").Get("input");
  const Tensor status = vectors.Get("encode.status");
  const Tensor expected = vectors.Get("encode.blocks");
  const auto values_bytes = static_cast<size_t>(type.block_values) * 4;
  const auto block_bytes = static_cast<size_t>(type.block_bytes);
  const FormatPtr format = GgmlFormat::Make(type);
  std::vector<std::byte> values;
  std::vector<std::byte> blocks;
  int refused = 0;
  for (size_t b = 0; b < status.bytes().size(); ++b) {
    const auto from = input.bytes().subspan(b * values_bytes, values_bytes);
    const auto to = expected.bytes().subspan(b * block_bytes, block_bytes);
    const auto code = static_cast<uint8_t>(status.bytes()[b]);
    if (code == kExact || code == kUnwritten) {
      values.insert(values.end(), from.begin(), from.end());
      blocks.insert(blocks.end(), to.begin(), to.end());
      // Sums of zero codes that upstream leaves as they were.
      if (code == kUnwritten) std::fill(blocks.end() - 32, blocks.end(), std::byte{0});
    } else {
      const MatrixView row({DType::kF32, Shape{1, type.block_values}, from}, 1, type.block_values);
      EXPECT_THAT(test::MessageOf([&] { format->Encode(row, {.tensor_name = "w"}); }),
                  HasSubstr("w: row 0, column 0: " + format->Name() + " cannot hold these"))
          << "block " << b;
      ++refused;
    }
  }
  const auto rows = static_cast<int64_t>(values.size() / values_bytes);
  ASSERT_EQ(rows + refused, status.num_bytes());
  const MatrixView matrix({DType::kF32, Shape{rows, type.block_values}, values}, rows,
                          type.block_values);
  // As one row too: blocks that share a call of the encoder do not touch each other.
  const MatrixView row({DType::kF32, Shape{1, rows * type.block_values}, values}, 1,
                       rows * type.block_values);
  test::OnEveryTargetAndThreadCount([&] {
    for (const MatrixView& view : {matrix, row}) {
      const EncodedMatrix encoded = format->Encode(view, {.tensor_name = "w"});
      const std::span<const std::byte> bytes = encoded.Get("blocks").bytes();
      ASSERT_EQ(bytes.size(), blocks.size());
      int64_t different = 0;
      for (size_t b = 0; b < blocks.size(); b += block_bytes) {
        different += !std::equal(&bytes[b], &bytes[b] + block_bytes, &blocks[b]);
      }
      EXPECT_EQ(different, 0) << "blocks of " << rows;
    }
  });
}

std::vector<const GgmlType*> EncodedTypes() {
  std::vector<const GgmlType*> types = BlockTypes();
  std::erase_if(types, [](const GgmlType* type) { return !GgmlFormat::Make(*type)->CanEncode(); });
  return types;
}

INSTANTIATE_TEST_SUITE_P(Every, GgmlEncoders, testing::ValuesIn(EncodedTypes()),
                         [](const auto& instance) { return std::string(instance.param->name); });

TEST(GgmlEncoder, AllButTheSmallestIqTypesEncode) { EXPECT_EQ(EncodedTypes().size(), 20U); }

constexpr int64_t kRows = 5;
constexpr int64_t kCols = 768;

/// N(0, 1), every 97th value an outlier.
Tensor Values(unsigned seed) {
  Tensor tensor = Tensor::Allocate(DType::kF32, Shape{kRows, kCols});
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  int i = 0;
  for (float& value : tensor.mutable_as<float>()) {
    value = normal(engine) * (++i % 97 == 0 ? 8.0F : 1.0F);
  }
  return tensor;
}

EncodedMatrix Encode(const GgmlType& type, const Tensor& values) {
  return GgmlFormat::Make(type)->Encode(MatrixView(values.view(), kRows, kCols),
                                        {.tensor_name = "w"});
}

std::vector<float> Decoded(const EncodedMatrix& encoded) {
  std::vector<float> values(static_cast<size_t>(encoded.rows * encoded.cols));
  encoded.format->DecodeRows(encoded, 0, encoded.rows, values);
  return values;
}

double ErrorOf(const char* type, const Tensor& values) {
  Tensor copy = values;
  const std::span<const float> source = copy.mutable_as<float>();
  const std::vector<float> decoded = Decoded(Encode(*FindGgmlType(type), values));
  double error = 0;
  double power = 0;
  for (size_t i = 0; i < source.size(); ++i) {
    error += std::pow(static_cast<double>(source[i]) - static_cast<double>(decoded[i]), 2);
    power += std::pow(static_cast<double>(source[i]), 2);
  }
  return std::sqrt(error / power);
}

TEST_P(GgmlEncoders, ScaleWithPowersOfTwo) {
  // Every step of every search is exact under a power of two, so only the scales may change.
  Tensor values = Values(1);
  const std::vector<float> once = Decoded(Encode(*GetParam(), values));
  for (const float power : {0.125F, 32.0F}) {
    Tensor scaled = Values(1);
    for (float& value : scaled.mutable_as<float>()) value *= power;
    const std::vector<float> decoded = Decoded(Encode(*GetParam(), scaled));
    int64_t different = 0;
    for (size_t i = 0; i < once.size(); ++i) different += once[i] * power != decoded[i];
    EXPECT_EQ(different, 0) << power;
  }
}

TEST_P(GgmlEncoders, HoldTheRowsOfNarrowAndUnalignedSources) {
  Tensor narrow = Tensor::Allocate(DType::kBF16, Shape{kRows, kCols});
  Tensor wide = Values(2);
  const std::span<uint16_t> codes = narrow.mutable_as<uint16_t>();
  const std::span<float> values = wide.mutable_as<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    codes[i] = FloatToBF16(values[i]);
    values[i] = BF16ToFloat(codes[i]);
  }
  const EncodedMatrix expected = Encode(*GetParam(), wide);
  EXPECT_EQ(test::DifferentElements(Encode(*GetParam(), narrow).planes[0].tensor.bytes(),
                                    expected.planes[0].tensor.bytes()),
            0);
  std::vector<std::byte> shifted(wide.bytes().size() + 1);
  std::memcpy(shifted.data() + 1, wide.bytes().data(), wide.bytes().size());
  const MatrixView unaligned(
      {DType::kF32, Shape{kRows, kCols}, std::span<const std::byte>(shifted).subspan(1)}, kRows,
      kCols);
  const EncodedMatrix from_unaligned = expected.format->Encode(unaligned, {.tensor_name = "w"});
  EXPECT_EQ(test::DifferentElements(from_unaligned.planes[0].tensor.bytes(),
                                    expected.planes[0].tensor.bytes()),
            0);
}

TEST_P(GgmlEncoders, KeepZerosAndNeverAnswerConstantsWithNoise) {
  // MXFP4 has nothing between 8 and 12: a fifth of 10.
  for (const float constant : {0.0F, -0.0F, 1.0F, -1.0F, 0.0123F, -77.0F}) {
    Tensor values = Tensor::Allocate(DType::kF32, Shape{kRows, kCols});
    for (float& value : values.mutable_as<float>()) value = constant;
    for (const float decoded : Decoded(Encode(*GetParam(), values))) {
      ASSERT_NEAR(decoded, constant, std::abs(constant) * 0.21F) << constant;
    }
  }
}

TEST_P(GgmlEncoders, RefuseNaNAndInfinityWithTheirPosition) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    Tensor values = Values(3);
    values.mutable_as<float>()[static_cast<size_t>(3 * kCols + 700)] = bad;
    EXPECT_THAT(test::MessageOf([&] { Encode(*GetParam(), values); }),
                HasSubstr("w: row 3, column 700: "));
  }
}

TEST(GgmlEncoder, NamesTheBlockItCannotHold) {
  Tensor values = Values(4);
  values.mutable_as<float>()[static_cast<size_t>(2 * kCols + 300)] = 1e30F;
  EXPECT_THAT(test::MessageOf([&] { Encode(*FindGgmlType("Q8_0"), values); }),
              HasSubstr("w: row 2, column 288: ggml-q8_0 cannot hold these 32 values: a scale"));
  EXPECT_THAT(test::MessageOf([&] { Encode(*FindGgmlType("Q6_K"), values); }),
              HasSubstr("w: row 2, column 256: ggml-q6_k cannot hold these 256 values: the sums"));
}

TEST(GgmlEncoder, MoreBitsLoseLess) {
  const Tensor values = Values(5);
  for (const std::vector<const char*>& types :
       {std::vector<const char*>{"Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K"},
        {"Q8_1", "Q5_1", "Q4_1", "MXFP4"},
        {"Q5_0", "IQ4_XS", "TQ2_0"}}) {
    for (size_t i = 1; i < types.size(); ++i) {
      EXPECT_LT(ErrorOf(types[i - 1], values), ErrorOf(types[i], values)) << types[i];
    }
  }
  // Searched scales lose less than the same bytes without a search.
  EXPECT_LT(ErrorOf("IQ4_NL", values), ErrorOf("Q4_0", values));
  EXPECT_LT(ErrorOf("Q4_K", values), ErrorOf("Q4_0", values));
}

}  // namespace
}  // namespace assay

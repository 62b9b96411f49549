#include "assay/formats/affine.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "assay/base/error.h"
#include "tests/support/affine_checks.h"
#include "tests/support/affine_reference.h"
#include "tests/support/bits.h"
#include "tests/support/every_target.h"
#include "tests/support/fixture.h"

namespace assay {
namespace {

using test::BytesOf;
using test::DecodeAll;
using test::DifferentElements;
using test::DifferentPlanes;
using test::EncodeTensor;
using test::Fixture;
using test::FixtureFiles;
using test::MatrixAt;
using test::OnEveryTarget;
using test::OnEveryTargetAndThreadCount;
using test::TensorOf;

FormatPtr FormatOf(const Fixture& fixture) { return Format::Parse(fixture.Metadata("format")); }

/// Number of matrices that the leading axes of a fixture tensor stack.
int64_t StackOf(const Tensor& tensor) {
  int64_t stack = 1;
  for (size_t axis = 0; axis + 2 < tensor.shape().rank(); ++axis) stack *= tensor.shape()[axis];
  return stack;
}

EncodedMatrix PlanesOf(const Fixture& fixture, int64_t index) {
  const Tensor decoded = MatrixAt(fixture.Get("decoded"), index);
  return {FormatOf(fixture),
          decoded.shape()[0],
          decoded.shape()[1],
          decoded.dtype(),
          {{"codes", MatrixAt(fixture.Get("weight"), index)},
           {"scales", MatrixAt(fixture.Get("scales"), index)},
           {"biases", MatrixAt(fixture.Get("biases"), index)}}};
}

class AffineVectors : public testing::TestWithParam<std::string> {};

TEST_P(AffineVectors, EncodeToTheBitsOfMlx) {
  const Fixture fixture(GetParam());
  const Tensor input = fixture.Get("input");
  int64_t mismatches = 0;
  OnEveryTargetAndThreadCount([&] {
    for (int64_t m = 0; m < StackOf(input); ++m) {
      mismatches += DifferentPlanes(EncodeTensor(*FormatOf(fixture), MatrixAt(input, m)),
                                    PlanesOf(fixture, m));
    }
  });
  RecordProperty("vectors", std::to_string(input.shape().NumElements()));
  RecordProperty("mismatches", std::to_string(mismatches));
  EXPECT_EQ(mismatches, 0);
}

TEST_P(AffineVectors, DecodeToTheBitsOfMlx) {
  const Fixture fixture(GetParam());
  const Tensor decoded = fixture.Get("decoded");
  int64_t mismatches = 0;
  OnEveryTargetAndThreadCount([&] {
    for (int64_t m = 0; m < StackOf(decoded); ++m) {
      const EncodedMatrix encoded = PlanesOf(fixture, m);
      encoded.format->Validate(encoded, GetParam());
      mismatches += DifferentElements(DecodeAll(encoded, decoded.dtype()),
                                      MatrixAt(decoded, m).bytes(), BytesOf(decoded.dtype()));
    }
  });
  RecordProperty("vectors", std::to_string(decoded.shape().NumElements()));
  RecordProperty("mismatches", std::to_string(mismatches));
  EXPECT_EQ(mismatches, 0);
}

std::vector<std::string> EncodeFiles() {
  std::vector<std::string> files = FixtureFiles("mlx", "affine");
  for (std::string& file : FixtureFiles("mlx", "shape-affine")) files.push_back(std::move(file));
  return files;
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(4, info.param.size() - 4 - 12);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Mlx, AffineVectors, testing::ValuesIn(EncodeFiles()), TestName);

TEST(Affine, EveryFixtureFileIsThere) {
  EXPECT_EQ(EncodeFiles().size(), 54U + 3U);
  EXPECT_EQ(FixtureFiles("mlx", "matmul-affine").size(), 6U);
  EXPECT_EQ(FixtureFiles("mlx", "overflow-affine").size(), 6U);
}

TEST(Affine, WeightsOfTheProductVectorsDecodeToTheBitsOfMlx) {
  for (const std::string& file : FixtureFiles("mlx", "matmul-affine")) {
    const Fixture fixture(file);
    const Tensor decoded = fixture.Get("decoded");
    EXPECT_EQ(DifferentElements(DecodeAll(PlanesOf(fixture, 0), decoded.dtype()), decoded.bytes()),
              0)
        << file;
  }
}

TEST(Affine, OverflowingRowsDoAsDocumented) {
  int64_t num_refused = 0;
  for (const std::string& file : FixtureFiles("mlx", "overflow-affine")) {
    const Fixture fixture(file);
    const auto reasons = nlohmann::json::parse(fixture.Metadata("rows"));
    const Tensor input = fixture.Get("input");
    const DType dtype = input.dtype();
    const FormatPtr format = FormatOf(fixture);
    const EncodedMatrix expected = PlanesOf(fixture, 0);
    const std::vector<std::byte> decoded = DecodeAll(expected, dtype);
    EXPECT_EQ(test::DifferentValues(dtype, decoded, fixture.Get("decoded").bytes()), 0) << file;
    for (int64_t row = 0; row < input.shape()[0]; ++row) {
      const auto reason = reasons[static_cast<size_t>(row)].get<std::string>();
      SCOPED_TRACE(file + ": " + reason);
      const Tensor one = input.Slice(row).As(dtype, Shape{1, input.shape()[1]});
      const float scale =
          test::ElementAsFloat(dtype, expected.Get("scales").Slice(row).bytes().data());
      if (std::isinf(scale)) {
        ++num_refused;
        EXPECT_THROW(EncodeTensor(*format, one), Error);
        continue;
      }
      const EncodedMatrix encoded = EncodeTensor(*format, one);
      if (reason.find("undefined") != std::string::npos) {
        // Assay's choice: such a group decodes to its constant.
        EXPECT_EQ(DifferentElements(DecodeAll(encoded, dtype), one.bytes()), 0);
        continue;
      }
      for (const Plane& plane : encoded.planes) {
        EXPECT_EQ(
            DifferentElements(plane.tensor.bytes(), expected.Get(plane.name).Slice(row).bytes()), 0)
            << plane.name;
      }
    }
  }
  EXPECT_GT(num_refused, 0);
}

TEST(Affine, GoldenRowsOfTheSpecification) {
  struct Golden {
    int bits;
    uint32_t scale;
    uint16_t scale_bf16;
    std::vector<uint32_t> words;
  };
  const std::vector<Golden> rows = {
      {2, 0xBF100000, 0xBF10, {0xB1B1AC6F, 0x5B1BD6C6}},
      {3, 0xBE900000, 0xBE90, {0x8277152F, 0xCC13B8A9, 0x2E60A5E5}},
      // Exact halves: half to even.
      {4, 0xBE000000, 0xBE00, {0x7AE258CF, 0xBE269C04, 0xF26AD048, 0x36AE148C}},
      {5, 0xBD800000, 0xBD80, {0x7835471F, 0xB9640775, 0x050FB748, 0x17F1593D, 0x3369B126}},
      {6,
       0xBCF914C2,
       0xBCF9,
       {0x86563C7F, 0x300E76BE, 0xB7C21797, 0x67D4241F, 0x286FF8A6, 0x31BA7811}},
      {8,
       0xBBF914C2,
       0xBBF9,
       {0x528CC5FF, 0x73ADE619, 0x94CE003A, 0xB5EE215A, 0xD608427B, 0xF729639C, 0x104A84BD,
        0x316BA4DE}},
  };
  std::vector<float> values;
  for (int i = 0; i < 32; ++i) values.push_back(static_cast<float>(7 * i % 32 - 13) / 16.0F);
  for (const Golden& golden : rows) {
    SCOPED_TRACE(golden.bits);
    const AffineFormat format(golden.bits, 32);
    OnEveryTarget([&] {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const EncodedMatrix encoded =
            EncodeTensor(*AffineFormat::Make(golden.bits, 32), TensorOf(values, 1, dtype));
        EXPECT_EQ(
            DifferentElements(encoded.Get("codes").bytes(), std::as_bytes(std::span(golden.words))),
            0);
        EXPECT_EQ(test::ElementAsFloat(dtype, encoded.Get("scales").bytes().data()),
                  dtype == DType::kF32 ? std::bit_cast<float>(golden.scale)
                                       : BF16ToFloat(golden.scale_bf16));
        EXPECT_EQ(test::ElementAsFloat(dtype, encoded.Get("biases").bytes().data()), 1.125F);
      }
    });
  }
}

TEST(Affine, ZeroAndConstantGroupsHaveTheStatedBits) {
  const auto planes = [](float value, DType dtype) {
    const EncodedMatrix encoded =
        EncodeTensor(*AffineFormat::Make(4, 32), TensorOf(std::vector<float>(32, value), 1, dtype));
    for (const std::byte code : encoded.Get("codes").bytes()) EXPECT_EQ(code, std::byte{0});
    uint32_t scale = 0;
    uint32_t bias = 0;
    std::memcpy(&scale, encoded.Get("scales").bytes().data(), BytesOf(dtype));
    std::memcpy(&bias, encoded.Get("biases").bytes().data(), BytesOf(dtype));
    return std::pair(scale, bias);
  };
  OnEveryTarget([&] {
    for (const float zero : {0.0F, -0.0F}) {
      EXPECT_EQ(planes(zero, DType::kF32), std::pair(0xB3D6BF95U, 0U));
      EXPECT_EQ(planes(zero, DType::kBF16), std::pair(0xB3D7U, 0U));
      EXPECT_EQ(planes(zero, DType::kF16), std::pair(0x8002U, 0U));
    }
    EXPECT_EQ(planes(5.0F, DType::kBF16), std::pair(0xB3D7U, 0x40A0U));
    EXPECT_EQ(planes(-5.0F, DType::kBF16), std::pair(0xB3D7U, 0xC0A0U));
    EXPECT_EQ(planes(2e38F, DType::kF32).first, 0x80000000U);
  });
}

}  // namespace
}  // namespace assay

#include "assay/formats/mlx_fp.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "assay/base/error.h"
#include "tests/support/bits.h"
#include "tests/support/fixture.h"

namespace assay {
namespace {

using test::DecodeAll;
using test::DifferentElements;
using test::DifferentValues;
using test::Fixture;
using test::FixtureFiles;
using test::MatrixAt;

FormatPtr MlxFpFormatOf(const Fixture& fixture) {
  return Format::Parse(fixture.Metadata("format") + (fixture.Has("global_scale") ? ":global" : ""));
}

int64_t MlxFpStackOf(const Tensor& tensor) {
  int64_t stack = 1;
  for (size_t axis = 0; axis + 2 < tensor.shape().rank(); ++axis) stack *= tensor.shape()[axis];
  return stack;
}

EncodedMatrix PlanesOf(const Fixture& fixture, int64_t index, DType dtype, bool global = true) {
  const Tensor codes = MatrixAt(fixture.Get("weight"), index);
  const Tensor scales = MatrixAt(fixture.Get("scales"), index);
  FormatPtr format = global ? MlxFpFormatOf(fixture) : Format::Parse(fixture.Metadata("format"));
  const int block = std::dynamic_pointer_cast<const BlockFormat>(format)->block();
  EncodedMatrix encoded{format, codes.shape()[0], scales.shape()[1] * block, dtype, {}};
  encoded.planes = {{"codes", codes}, {"scales", scales}};
  if (global && fixture.Has("global_scale")) {
    encoded.planes.push_back({"global_scale", fixture.Get("global_scale")});
  }
  format->Validate(encoded, "x");
  return encoded;
}

EncodedMatrix EncodeMatrix(const Fixture& fixture, const Tensor& x) {
  EncodeOptions options{.tensor_name = "x"};
  std::vector<Plane> given;
  if (fixture.Has("global_scale")) given.push_back({"global_scale", fixture.Get("global_scale")});
  options.given_planes = given;
  return MlxFpFormatOf(fixture)->Encode(MatrixView(x.view(), x.shape()[0], x.shape()[1]), options);
}

std::vector<std::string> VectorFiles() {
  std::vector<std::string> files = FixtureFiles("mlx", "mlx-");
  for (std::string& file : FixtureFiles("mlx", "shape-mlx-")) files.push_back(std::move(file));
  return files;
}

TEST(MlxFp, EncodesToTheBitsOfMlx) {
  int64_t values = 0;
  for (const std::string& file : VectorFiles()) {
    SCOPED_TRACE(file);
    const Fixture fixture(file);
    const Tensor input = fixture.Get("input");
    for (int64_t m = 0; m < MlxFpStackOf(input); ++m) {
      const EncodedMatrix encoded = EncodeMatrix(fixture, MatrixAt(input, m));
      EXPECT_EQ(DifferentElements(encoded.Get("scales").bytes(),
                                  MatrixAt(fixture.Get("scales"), m).bytes()),
                0);
      EXPECT_EQ(DifferentElements(encoded.Get("codes").bytes(),
                                  MatrixAt(fixture.Get("weight"), m).bytes()),
                0);
    }
    values += input.shape().NumElements();
  }
  EXPECT_EQ(VectorFiles().size(), 17u);
  RecordProperty("values", std::to_string(values));
}

TEST(MlxFp, DecodesToTheBitsOfMlx) {
  for (const std::string& file : VectorFiles()) {
    SCOPED_TRACE(file);
    const Fixture fixture(file);
    for (const std::string name : {"decoded", "decoded_f32", "decoded_f16"}) {
      if (!fixture.Has(name)) continue;
      const Tensor expected = fixture.Get(name);
      for (int64_t m = 0; m < MlxFpStackOf(expected); ++m) {
        const EncodedMatrix encoded = PlanesOf(fixture, m, expected.dtype());
        EXPECT_EQ(DifferentValues(expected.dtype(), DecodeAll(encoded, expected.dtype()),
                                  MatrixAt(expected, m).bytes()),
                  0)
            << name;
      }
    }
  }
}

TEST(MlxFp, TheGlobalScaleIsTheLargestMagnitude) {
  const Fixture fixture("mlx/mlx-nvfp4-global-amax-f32.safetensors");
  const Tensor x = fixture.Get("input");
  const EncodedMatrix encoded = Format::Parse("mlx-nvfp4:global")
                                    ->Encode(MatrixView(x.view(), x.shape()[0], x.shape()[1]), {});
  for (const char* plane : {"codes", "scales", "global_scale"}) {
    const Tensor expected = fixture.Get(std::string(plane) == "codes" ? "weight" : plane);
    EXPECT_EQ(DifferentElements(encoded.Get(plane).bytes(), expected.bytes()), 0) << plane;
  }
}

TEST(MlxFp, EveryScaleByteTimesEveryCodeDecodesAsMlxDoes) {
  int64_t tables = 0;
  for (const std::string& file : FixtureFiles("mlx", "decode-table-mlx-")) {
    const Fixture fixture(file);
    for (const std::string& name : fixture.Names()) {
      if (!name.starts_with("decoded")) continue;
      SCOPED_TRACE(file + " " + name);
      const Tensor expected = fixture.Get(name);
      const bool global = name.find("global") != name.npos;
      // With a global scale the result is f32 whatever was asked for.
      const EncodedMatrix encoded = PlanesOf(fixture, 0, expected.dtype(), global);
      EXPECT_EQ(
          DifferentValues(expected.dtype(), DecodeAll(encoded, expected.dtype()), expected.bytes()),
          0);
      ++tables;
    }
  }
  EXPECT_EQ(tables, 12);
}

TEST(MlxFp, OverflowsAsMlxDoesAndClampsWhereMlxIsUndefined) {
  int64_t asserted = 0;
  for (const std::string& file : FixtureFiles("mlx", "overflow-mlx-")) {
    const Fixture fixture(file);
    const auto reasons = nlohmann::json::parse(fixture.Metadata("rows"));
    const Tensor input = fixture.Get("input");
    for (int64_t row = 0; row < input.shape()[0]; ++row) {
      const std::string reason = reasons.at(static_cast<size_t>(row)).get<std::string>();
      SCOPED_TRACE(file + " " + reason);
      const Tensor x = input.Slice(row).As(input.dtype(), Shape{1, input.shape()[1]});
      const EncodedMatrix encoded = EncodeMatrix(fixture, x);
      if (reason.find("undefined upstream") != reason.npos) {
        for (const std::byte byte : encoded.Get("scales").bytes()) {
          EXPECT_TRUE(byte == std::byte{0} || byte == std::byte{127});
        }
        continue;
      }
      EXPECT_EQ(DifferentElements(encoded.Get("scales").bytes(),
                                  fixture.Get("scales").Slice(row).bytes()),
                0);
      EXPECT_EQ(
          DifferentElements(encoded.Get("codes").bytes(), fixture.Get("weight").Slice(row).bytes()),
          0);
      EXPECT_EQ(DifferentValues(DType::kBF16, DecodeAll(encoded, DType::kBF16),
                                fixture.Get("decoded").Slice(row).bytes()),
                0);
      ++asserted;
    }
  }
  EXPECT_GT(asserted, 6);
}

}  // namespace
}  // namespace assay

#include "assay/formats/nvfp4.h"

#include <gtest/gtest.h>

#include "assay/base/error.h"
#include "tests/support/bits.h"
#include "tests/support/fixture.h"

namespace assay {
namespace {

using test::DecodeAll;
using test::DifferentElements;
using test::DifferentValues;
using test::Fixture;

const std::string kMatrices[] = {"plain", "edges", "exact", "small_blocks", "all_tiny", "large"};

Tensor AsBF16(const Tensor& x) {
  return x.dtype() == DType::kU16 ? x.As(DType::kBF16, x.shape()) : x;
}

EncodedMatrix EncodeNvfp4(const std::string& format, const Tensor& x) {
  return Format::Parse(format)->Encode(MatrixView(x.view(), x.shape()[0], x.shape()[1]),
                                       {.tensor_name = "x"});
}

EncodedMatrix PlanesOf(const std::string& name, const Tensor& x, DType dtype, const Tensor& codes,
                       const Tensor& scales, const Tensor& tensor_scale) {
  const FormatPtr format = Format::Parse(name);
  EncodedMatrix encoded{format, x.shape()[0], x.shape()[1], dtype, {}};
  encoded.planes = {{"codes", codes},
                    {"scales", scales.As(DType::kF8E4M3, scales.shape())},
                    {format->Layout(1, 16, dtype)[2].name, tensor_scale}};
  format->Validate(encoded, "x");
  return encoded;
}

TEST(Nvfp4, ModelOptIsReproducedToTheBit) {
  for (const std::string dtype : {"f32", "bf16"}) {
    const Fixture fixture("microscaling/modelopt_nvfp4_" + dtype + ".safetensors");
    for (const std::string& m : kMatrices) {
      SCOPED_TRACE(dtype + " " + m);
      const Tensor x = AsBF16(fixture.Get(m + ".x"));
      const Tensor codes = fixture.Get(m + ".weight");
      const Tensor scales = fixture.Get(m + ".weight_scale");
      const Tensor tensor_scale = fixture.Get(m + ".weight_scale_2");
      const EncodedMatrix encoded = EncodeNvfp4("nvfp4", x);
      EXPECT_EQ(DifferentElements(encoded.Get("tensor_scale").bytes(), tensor_scale.bytes(), 4), 0);
      EXPECT_EQ(DifferentElements(encoded.Get("scales").bytes(), scales.bytes()), 0);
      EXPECT_EQ(DifferentElements(encoded.Get("codes").bytes(), codes.bytes()), 0);
      for (const DType out : {DType::kF32, DType::kBF16}) {
        const std::string values = out == DType::kF32 ? ".values_f32" : ".values_bf16";
        EXPECT_EQ(DifferentValues(
                      out, DecodeAll(PlanesOf("nvfp4", x, out, codes, scales, tensor_scale), out),
                      fixture.Get(m + values).bytes(), test::Zeros::kUnsigned),
                  0);
      }
    }
  }
}

TEST(Nvfp4, CompressedTensorsIsReproducedToTheBit) {
  for (const std::string dtype : {"f32", "bf16"}) {
    const Fixture fixture("microscaling/ct_nvfp4_" + dtype + ".safetensors");
    for (const std::string& m : kMatrices) {
      SCOPED_TRACE(dtype + " " + m);
      const Tensor x = AsBF16(fixture.Get(m + ".x"));
      const Tensor codes = fixture.Get(m + ".weight_packed");
      const Tensor scales = fixture.Get(m + ".weight_scale");
      const Tensor global_scale = fixture.Get(m + ".weight_global_scale");
      const EncodedMatrix encoded = EncodeNvfp4("nvfp4:ct", x);
      EXPECT_EQ(encoded.dtype, DType::kBF16);
      EXPECT_EQ(DifferentElements(encoded.Get("global_scale").bytes(), global_scale.bytes(), 4), 0);
      EXPECT_EQ(DifferentElements(encoded.Get("scales").bytes(), scales.bytes()), 0);
      EXPECT_EQ(DifferentElements(encoded.Get("codes").bytes(), codes.bytes()), 0);
      const EncodedMatrix stored =
          PlanesOf("nvfp4:ct", x, DType::kBF16, codes, scales, global_scale);
      EXPECT_EQ(DifferentValues(DType::kBF16, DecodeAll(stored, DType::kBF16),
                                fixture.Get(m + ".values").bytes()),
                0);
    }
  }
}

TEST(Nvfp4, TorchaoIsReproducedToTheBit) {
  for (const std::string dtype : {"f32", "bf16"}) {
    const Fixture fixture("microscaling/torchao_nvfp4_" + dtype + ".safetensors");
    for (const std::string& m : kMatrices) {
      SCOPED_TRACE(dtype + " " + m);
      const Tensor x = AsBF16(fixture.Get(m + ".x"));
      const EncodedMatrix one = EncodeNvfp4("nvfp4:torchao-one-level", x);
      EXPECT_EQ(
          DifferentElements(one.Get("scales").bytes(), fixture.Get(m + ".level1.scale").bytes()),
          0);
      EXPECT_EQ(
          DifferentElements(one.Get("codes").bytes(), fixture.Get(m + ".level1.packed").bytes()),
          0);
      const EncodedMatrix two = EncodeNvfp4("nvfp4:torchao", x);
      EXPECT_EQ(
          DifferentElements(two.Get("scales").bytes(), fixture.Get(m + ".level2.scale").bytes()),
          0);
      EXPECT_EQ(
          DifferentElements(two.Get("codes").bytes(), fixture.Get(m + ".level2.packed").bytes()),
          0);
      EXPECT_EQ(DifferentElements(two.Get("tensor_scale").bytes(),
                                  fixture.Get(m + ".level2.per_tensor_scale").bytes(), 4),
                0);
    }
  }
}

TEST(Nvfp4, AGivenTensorScaleIsUsed) {
  const Fixture fixture("microscaling/ct_nvfp4_f32.safetensors");
  const Tensor x = fixture.Get("plain.x");
  Tensor given = Tensor::Allocate(DType::kF32, Shape{1});
  given.mutable_as<float>()[0] = 512.0f;
  const Plane planes[] = {{"global_scale", given}};
  const MatrixView matrix(x.view(), x.shape()[0], x.shape()[1]);
  const EncodedMatrix encoded =
      Format::Parse("nvfp4:ct")->Encode(matrix, {.tensor_name = "x", .given_planes = planes});
  EXPECT_EQ(ScalarOf(encoded.Get("global_scale")), 512.0f);
  given.mutable_as<float>()[0] = -1.0f;
  EXPECT_THROW(
      Format::Parse("nvfp4:ct")->Encode(matrix, {.tensor_name = "x", .given_planes = planes}),
      Error);
}

TEST(Nvfp4, AZeroMatrixDecodesToZero) {
  const Tensor x = Tensor::Allocate(DType::kBF16, Shape{3, 64});
  for (const std::string& name : kNvfp4Family.names()) {
    const EncodedMatrix encoded = EncodeNvfp4(name, x);
    std::vector<float> values(3 * 64, 1.0f);
    encoded.format->DecodeRows(encoded, 0, 3, values);
    for (const float value : values) ASSERT_EQ(value, 0.0f) << name;
  }
}

}  // namespace
}  // namespace assay

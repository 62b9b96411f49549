// Encoders of compressed-tensors' integers and of bitsandbytes, against their own bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/formats/bitsandbytes.h"
#include "assay/formats/int_packed.h"
#include "tests/support/bits.h"
#include "tests/support/fixture.h"

namespace assay {
namespace {

using test::Fixture;
using testing::HasSubstr;

EncodedMatrix EncodeAs(const std::string& format, const Tensor& values, DType dtype) {
  const Tensor typed = values.As(dtype, values.shape());
  return Format::Parse(format)->Encode(MatrixView(typed.view(), typed.shape()[0], typed.shape()[1]),
                                       {.tensor_name = "w"});
}

class IntPackedVectors : public testing::TestWithParam<std::pair<const char*, DType>> {};

TEST_P(IntPackedVectors, EqualTheBytesOfCompressedTensors) {
  const auto& [name, dtype] = GetParam();
  const Fixture vectors(fmt::format("int4/ct_pack_{}.safetensors", name));
  int64_t cases = 0;
  for (const std::string& tensor : vectors.Names()) {
    if (!tensor.ends_with(".x")) continue;
    const std::string prefix = tensor.substr(0, tensor.size() - 1);  // "b3.asym.group."
    const bool group = prefix.find(".group.") != std::string::npos;
    const bool symmetric = prefix.find(".sym.") != std::string::npos;
    const std::string format =
        fmt::format("int{}{}{}", prefix[1], group ? "g32" : "-channel", symmetric ? "" : ":asym");
    const EncodedMatrix encoded = EncodeAs(format, vectors.Get(tensor), dtype);
    EXPECT_NO_THROW(encoded.format->Validate(encoded, "w"));
    const auto same = [&](const char* plane, const std::string& stored) {
      EXPECT_EQ(test::DifferentElements(encoded.Get(plane).bytes(), vectors.Get(stored).bytes()), 0)
          << prefix << plane;
    };
    same("codes", prefix + "weight_packed");
    same("scales", prefix + "weight_scale");
    if (!symmetric) same("zero_points", prefix + "weight_zero_point");
    same("shape", prefix + "weight_shape");
    EXPECT_EQ(test::DifferentValues(dtype, test::DecodeAll(encoded, dtype),
                                    vectors.Get(prefix + "values").bytes(), test::Zeros::kUnsigned),
              0)
        << prefix;
    ++cases;
  }
  EXPECT_GT(cases, 0);
}

INSTANTIATE_TEST_SUITE_P(Upstream, IntPackedVectors,
                         testing::Values(std::pair{"f32", DType::kF32},
                                         std::pair{"bf16", DType::kBF16},
                                         std::pair{"f16", DType::kF16}),
                         [](const auto& instance) { return std::string(instance.param.first); });

TEST(IntPacked, BytesEqualThoseOfTheNaiveQuantizer) {
  for (const auto& [name, dtype] : {std::pair{"f32", DType::kF32}, {"bf16", DType::kBF16}}) {
    const Fixture vectors(fmt::format("microscaling/ct_naive_{}.safetensors", name));
    for (const bool symmetric : {true, false}) {
      const std::string prefix = symmetric ? "int8_channel." : "int8_channel_asym.";
      const EncodedMatrix encoded = EncodeAs(
          symmetric ? "int8-channel:bytes" : "int8-channel:asym:bytes", vectors.Get("x"), dtype);
      const auto same = [&, &file = name](const char* plane, const char* stored) {
        EXPECT_EQ(test::DifferentElements(encoded.Get(plane).bytes(),
                                          vectors.Get(prefix + stored).bytes()),
                  0)
            << file << " " << prefix << plane;
      };
      same("codes", "weight");
      same("scales", "weight_scale");
      if (!symmetric) same("zero_points", "weight_zero_point");
      EXPECT_EQ(
          test::DifferentValues(dtype, test::DecodeAll(encoded, dtype),
                                vectors.Get(prefix + "values").bytes(), test::Zeros::kUnsigned),
          0);
    }
  }
}

TEST(IntPacked, TheLegacyLayoutHoldsWholeFieldsInEveryWord) {
  const Fixture vectors("int4/ct_pack_legacy.safetensors");
  for (int bits = 2; bits <= 8; ++bits) {
    const Tensor codes = vectors.Get(fmt::format("b{}.codes", bits));
    EncodedMatrix encoded;
    encoded.format = Format::Parse(fmt::format("int{}-channel:legacy", bits));
    encoded.rows = 3;
    encoded.cols = 50;
    Tensor scales = Tensor::Allocate(DType::kF32, {3, 1});
    for (float& scale : scales.mutable_as<float>()) scale = 1.0F;
    Tensor shape = Tensor::Allocate(DType::kI64, {2});
    shape.mutable_as<int64_t>()[0] = 3;
    shape.mutable_as<int64_t>()[1] = 50;
    encoded.planes = {{"codes", vectors.Get(fmt::format("b{}.weight_packed", bits))},
                      {"scales", scales},
                      {"shape", shape}};
    encoded.format->Validate(encoded, "w");
    std::vector<float> decoded(150);
    encoded.format->DecodeRows(encoded, 0, 3, decoded);
    for (size_t i = 0; i < decoded.size(); ++i) {
      ASSERT_EQ(decoded[i], static_cast<float>(static_cast<int8_t>(codes.bytes()[i])))
          << bits << " bits, " << i;
    }
  }
}

TEST(IntPacked, ThreadsChangeNothing) {
  const Fixture vectors("int4/ct_pack_f32.safetensors");
  const int threads = NumThreads();
  std::vector<std::vector<std::byte>> bytes;
  for (const int count : {1, 2, 3}) {
    SetNumThreads(count);
    const EncodedMatrix encoded =
        EncodeAs("int4g32:asym", vectors.Get("b4.asym.group.x"), DType::kF32);
    const auto plane = encoded.Get("codes").bytes();
    bytes.emplace_back(plane.begin(), plane.end());
  }
  SetNumThreads(threads);
  EXPECT_EQ(bytes[0], bytes[1]);
  EXPECT_EQ(bytes[0], bytes[2]);
}

TEST(IntPacked, ZeroGroupsAndNonFiniteValuesAreDefined) {
  Tensor values = Tensor::Allocate(DType::kF32, {2, 64});
  for (const char* format : {"int4g32", "int4g32:asym", "int8-channel:bytes"}) {
    const EncodedMatrix encoded = EncodeAs(format, values, DType::kF32);
    std::vector<float> decoded(128, 1.0F);
    encoded.format->DecodeRows(encoded, 0, 2, decoded);
    for (const float value : decoded) EXPECT_EQ(value, 0.0F) << format;
  }
  values.mutable_as<float>()[64 + 5] = std::numeric_limits<float>::infinity();
  for (const char* format : {"int4g32", "int8-channel:bytes", "nf4"}) {
    try {
      EncodeAs(format, values, DType::kF32);
      ADD_FAILURE() << format;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("row 1, column 5"));
    }
  }
}

class BitsAndBytesVectors : public testing::TestWithParam<std::string> {};

TEST_P(BitsAndBytesVectors, EqualTheBytesOfTheTorchPath) {
  const Fixture vectors("int4/bnb_encode.safetensors");
  const std::string& prefix = GetParam();  // "nf4.f32.bs64"
  const DType dtype = prefix.find(".bf16.") != std::string::npos ? DType::kBF16 : DType::kF32;
  const Tensor stored = vectors.Get(prefix + ".x");
  const int64_t num_values = stored.shape().NumElements();
  const bool matrix = stored.shape().rank() == 2;
  const Tensor x = stored.As(dtype, matrix ? stored.shape() : Shape{1, num_values});
  const std::string format = std::string(prefix.starts_with("nf4") ? "nf4" : "bnb-fp4") +
                             (prefix.ends_with("bs128") ? "b128" : "");
  const EncodedMatrix encoded = EncodeAs(format, x, dtype);
  EXPECT_EQ(test::DifferentElements(encoded.Get("codes").bytes(),
                                    vectors.Get(prefix + ".packed").bytes()),
            0);
  EXPECT_EQ(test::DifferentElements(encoded.Get("absmax").bytes(),
                                    vectors.Get(prefix + ".absmax").bytes(), 4),
            0);
  EXPECT_EQ(test::DifferentValues(dtype, test::DecodeAll(encoded, dtype),
                                  vectors.Get(prefix + ".values").bytes()),
            0);
}

INSTANTIATE_TEST_SUITE_P(Upstream, BitsAndBytesVectors,
                         testing::Values("nf4.f32.bs64", "nf4.f32.bs128", "nf4.f32.short",
                                         "nf4.bf16.bs64", "nf4.bf16.bs128", "nf4.bf16.short",
                                         "fp4.f32.bs64", "fp4.f32.bs128", "fp4.f32.short",
                                         "fp4.bf16.bs64", "fp4.bf16.bs128", "fp4.bf16.short"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           for (char& c : name) {
                             if (c == '.') c = '_';
                           }
                           return name;
                         });

TEST(BitsAndBytes, TablesAreUpstreams) {
  const Fixture vectors("int4/bnb_encode.safetensors");
  for (const auto& [name, table] : {std::pair{"nf4", BitsAndBytesFormat::Table::kNf4},
                                    {"fp4", BitsAndBytesFormat::Table::kFp4}}) {
    EXPECT_EQ(test::DifferentElements(std::as_bytes(BitsAndBytesFormat::ValuesOf(table)),
                                      vectors.Get(std::string(name) + ".table").bytes(), 4),
              0);
  }
}

}  // namespace
}  // namespace assay

#include "assay/formats/microscaling.h"

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

struct NamedElement {
  std::string vector_name;
  std::string format;
};

const NamedElement kElements[] = {{"e2m1", "mxfp4"}, {"e2m3", "mxfp6e2m3"}, {"e3m2", "mxfp6e3m2"},
                                  {"e4m3", "mxfp8"}, {"e5m2", "mxfp8e5m2"}, {"int8", "mxint8"}};
const std::string kRules[] = {"floor", "ceil", "rceil", "even", "ct"};

/// Vector files keep bf16 as U16 words.
Tensor InputOf(const Fixture& fixture, const std::string& name = "x") {
  const Tensor x = fixture.Get(name);
  return x.dtype() == DType::kU16 ? x.As(DType::kBF16, x.shape()) : x;
}

EncodedMatrix Encode(const FormatPtr& format, const Tensor& x) {
  return format->Encode(MatrixView(x.view(), x.shape()[0], x.shape()[1]), {.tensor_name = "x"});
}

EncodedMatrix PlanesOf(const FormatPtr& format, const Tensor& x, DType dtype, const Tensor& codes,
                       const Tensor& scales) {
  EncodedMatrix encoded{format, x.shape()[0], x.shape()[1], dtype, {}};
  const std::vector<PlaneSpec> layout = format->Layout(encoded.rows, encoded.cols, dtype);
  encoded.planes = {{"codes", codes.As(layout[0].dtype, layout[0].shape)},
                    {"scales", scales.As(layout[1].dtype, layout[1].shape)}};
  format->Validate(encoded, "x");
  return encoded;
}

TEST(Microscaling, EveryRuleEncodesToThePublishedVectors) {
  int64_t compared = 0;
  for (const std::string dtype : {"f32", "bf16"}) {
    const Fixture fixture("microscaling/ocp_rules_" + dtype + ".safetensors");
    const Tensor x = InputOf(fixture);
    for (const NamedElement& element : kElements) {
      for (const std::string& rule : kRules) {
        const std::string key = element.vector_name + "." + rule;
        if (!fixture.Has("scales." + key)) continue;
        const EncodedMatrix encoded = Encode(Format::Parse(element.format + ":" + rule), x);
        EXPECT_EQ(
            DifferentElements(encoded.Get("scales").bytes(), fixture.Get("scales." + key).bytes()),
            0)
            << dtype << " scales " << key;
        EXPECT_EQ(
            DifferentElements(encoded.Get("codes").bytes(), fixture.Get("codes." + key).bytes()), 0)
            << dtype << " codes " << key;
        compared += x.shape().NumElements();
      }
    }
  }
  EXPECT_EQ(compared, 2 * 24 * 96 * 128);
  RecordProperty("values", std::to_string(compared));
}

TEST(Microscaling, ARuleIsNamedExactlyWhereVectorsDefineIt) {
  const Fixture fixture("microscaling/ocp_rules_f32.safetensors");
  for (const NamedElement& element : kElements) {
    for (const std::string& rule : kRules) {
      const bool defined = fixture.Has("scales." + element.vector_name + "." + rule);
      EXPECT_EQ(kMicroscalingFamily.parse(element.format + ":" + rule) != nullptr, defined)
          << element.format << ":" << rule;
    }
  }
}

TEST(Microscaling, DecodesToThePublishedValues) {
  const Fixture fixture("microscaling/ocp_rules_f32.safetensors");
  for (const NamedElement& element : kElements) {
    const std::string key = element.vector_name + ".floor";
    const EncodedMatrix encoded =
        PlanesOf(Format::Parse(element.format), fixture.Get("x"), DType::kF32,
                 fixture.Get("codes." + key), fixture.Get("scales." + key));
    EXPECT_EQ(DifferentValues(DType::kF32, DecodeAll(encoded, DType::kF32),
                              fixture.Get("values." + key).bytes()),
              0)
        << key;
  }
}

struct ProducerCase {
  std::string file;
  std::string format;
  std::string codes;
  bool unsigned_zeros;  // ModelOpt's decoder drops the sign of code 8
};

TEST(Microscaling, EachProducerIsReproducedToTheBit) {
  for (const ProducerCase& c :
       {ProducerCase{"ct_mxfp4", "mxfp4:compressed-tensors", "weight_packed", false},
        ProducerCase{"ct_mxfp6", "mxfp6e2m3:compressed-tensors", "weight_packed", false},
        ProducerCase{"ct_mxfp8", "mxfp8:compressed-tensors", "weight", false},
        ProducerCase{"modelopt_mxfp4", "mxfp4:modelopt", "weight", true},
        ProducerCase{"modelopt_mxfp8", "mxfp8:modelopt", "weight", false}}) {
    for (const std::string dtype : {"f32", "bf16"}) {
      SCOPED_TRACE(c.file + "_" + dtype);
      const Fixture fixture("microscaling/" + c.file + "_" + dtype + ".safetensors");
      const Tensor x = InputOf(fixture);
      const FormatPtr format = Format::Parse(c.format);
      const EncodedMatrix encoded = Encode(format, x);
      EXPECT_EQ(
          DifferentElements(encoded.Get("scales").bytes(), fixture.Get("weight_scale").bytes()), 0);
      EXPECT_EQ(DifferentElements(encoded.Get("codes").bytes(), fixture.Get(c.codes).bytes()), 0);
      const Tensor values = InputOf(fixture, "values");
      const EncodedMatrix stored =
          PlanesOf(format, x, values.dtype(), fixture.Get(c.codes), fixture.Get("weight_scale"));
      EXPECT_EQ(DifferentValues(values.dtype(), DecodeAll(stored, values.dtype()), values.bytes(),
                                c.unsigned_zeros ? test::Zeros::kUnsigned : test::Zeros::kSigned),
                0);
    }
  }
}

TEST(Microscaling, ABlockWithNaNOrInfinityIsRefusedWithItsPlace) {
  const Fixture fixture("microscaling/nonfinite_torchao.safetensors");
  const Tensor x = fixture.Get("x_bits").As(DType::kF32, Shape{8, 64});
  int64_t refused = 0;
  for (int64_t row = 0; row < 8; ++row) {
    std::vector<float> values(64);
    MatrixView(x.view(), 8, 64).ReadRows(row, 1, values);
    const auto bad = std::find_if(values.begin(), values.end(),
                                  [](float value) { return !std::isfinite(value); });
    const Tensor one = x.Slice(row).As(DType::kF32, Shape{1, 64});
    if (bad == values.end()) {
      EXPECT_NO_THROW(Encode(Format::Parse("mxfp4"), one));
      continue;
    }
    ++refused;
    try {
      Encode(Format::Parse("mxfp4"), one);
      ADD_FAILURE() << "row " << row;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      const std::string place = "row 0, column " + std::to_string(bad - values.begin()) + ":";
      EXPECT_NE(std::string(error.what()).find(place), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(Microscaling, StoredBlocksWithScale255DecodeToNaN) {
  const Fixture fixture("microscaling/nonfinite_torchao.safetensors");
  for (const NamedElement& element : kElements) {
    if (element.vector_name == "int8" || FactsOf(BlockElement::kE2M1).bits == 0) continue;
    const FormatPtr format = Format::Parse(element.format);
    const Tensor scales = fixture.Get("scales." + element.vector_name + ".floor");
    const Tensor loose = fixture.Get("codes." + element.vector_name + ".floor");
    const int bits = FactsOf(std::dynamic_pointer_cast<const BlockFormat>(format)->element()).bits;
    Tensor packed = Tensor::Allocate(DType::kU8, Shape{8, 64 * bits / 8});
    PackCodes(bits, {reinterpret_cast<const uint8_t*>(loose.bytes().data()), loose.bytes().size()},
              packed.mutable_bytes());
    const Tensor x = Tensor::Allocate(DType::kF32, Shape{8, 64});
    const EncodedMatrix encoded = PlanesOf(format, x, DType::kF32, packed, scales);
    std::vector<float> values(8 * 64);
    format->DecodeRows(encoded, 0, 8, values);
    int64_t nan_blocks = 0;
    for (size_t block = 0; block < 16; ++block) {
      const bool is_nan = scales.bytes()[block] == std::byte{255};
      nan_blocks += is_nan;
      for (size_t i = block * 32; is_nan && i < (block + 1) * 32; ++i) {
        ASSERT_TRUE(std::isnan(values[i])) << element.vector_name << " block " << block;
      }
    }
    EXPECT_GT(nan_blocks, 0);
  }
}

}  // namespace
}  // namespace assay

#include "assay/formats/affine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "assay/base/error.h"
#include "assay/formats/catalogue.h"
#include "tests/support/affine_checks.h"
#include "tests/support/bits.h"
#include "tests/support/every_target.h"
#include "tests/support/fixture.h"

namespace assay {
namespace {

using test::EncodeTensor;
using test::kDTypes;
using test::OnEveryTargetAndThreadCount;
using test::TensorOf;
using testing::HasSubstr;

std::string MessageOf(ErrorKind kind, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  ADD_FAILURE() << "expected an error";
  return {};
}

TEST(Affine, NonFiniteValuesAreNamedByTensorRowAndColumn) {
  struct Case {
    float value;
    const char* word;
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Case cases[] = {
      {nan, "NaN"}, {-nan, "NaN"}, {infinity, "infinity"}, {-infinity, "-infinity"}};
  OnEveryTargetAndThreadCount([&] {
    for (const DType dtype : kDTypes) {
      for (const Case& one : cases) {
        for (const size_t column : {size_t{0}, size_t{37}, size_t{191}}) {
          std::vector<float> values(3 * 192, 1.0F);
          values[192 + column] = one.value;
          const std::string message = MessageOf(ErrorKind::kInput, [&] {
            const Tensor matrix = TensorOf(values, 3, dtype);
            AffineFormat::Make(4, 64)->Encode(MatrixView(matrix.view(), 3, 192),
                                              {.tensor_name = "layers.0.weight"});
          });
          EXPECT_EQ(message, "layers.0.weight: row 1, column " + std::to_string(column) +
                                 ": affine4g64 cannot hold " + one.word +
                                 "; every value must be finite");
        }
      }
    }
  });
}

TEST(Affine, AGroupWhoseRangeOverflowsIsNamed) {
  std::vector<float> values(128, 0.0F);
  values[70] = 3e38F;
  values[71] = -3e38F;
  EXPECT_THAT(
      MessageOf(
          ErrorKind::kInput,
          [&] { EncodeTensor(*AffineFormat::Make(4, 64), TensorOf(values, 1, DType::kBF16)); }),
      HasSubstr("row 0, columns 64 to 127"));
}

TEST(Affine, ColumnsThatDoNotDivideAreRefusedWithTheSizesThatWouldFit) {
  const auto format = AffineFormat::Make(4, 128);
  EXPECT_EQ(format->WhyNot(4, 192, DType::kBF16),
            "192 columns are not a multiple of 128; group sizes that fit: 32, 64");
  EXPECT_EQ(format->WhyNot(4, 100, DType::kBF16),
            "100 columns are not a multiple of 128, nor of any smaller group size");
  EXPECT_EQ(format->WhyNot(4, 128, DType::kI8), "dtype I8; expected F32, F16 or BF16");
  EXPECT_FALSE(format->WhyNot(0, 128, DType::kF16));
  EXPECT_TRUE(format->WhyNot(int64_t{1} << 40, int64_t{1} << 40, DType::kF16));
}

TEST(Affine, PlanesThatDoNotFitAreRefused) {
  const auto format = AffineFormat::Make(4, 64);
  const EncodedMatrix good =
      EncodeTensor(*format, TensorOf(std::vector<float>(256, 1.0F), 2, DType::kBF16));
  EncodedMatrix missing = good;
  missing.planes.pop_back();
  EXPECT_THAT(MessageOf(ErrorKind::kInput, [&] { format->Validate(missing, "w"); }),
              HasSubstr("plane \"biases\" of affine4g64 is missing"));
  EncodedMatrix short_scales = good;
  short_scales.planes[1].tensor = Tensor::Allocate(DType::kBF16, Shape{2, 1});
  EXPECT_THAT(MessageOf(ErrorKind::kInput, [&] { format->Validate(short_scales, "w"); }),
              HasSubstr("expected BF16 [2, 2], found BF16 [2, 1]"));
  EncodedMatrix wrong_dtype = good;
  wrong_dtype.planes[0].tensor = Tensor::Allocate(DType::kI32, Shape{2, 16});
  EXPECT_THAT(MessageOf(ErrorKind::kInput, [&] { format->Validate(wrong_dtype, "w"); }),
              HasSubstr("expected U32 [2, 16], found I32 [2, 16]"));
}

TEST(Affine, NamesParseAndCountTheirBits) {
  int num_formats = 0;
  for (const std::string& name : kAffineFamily.names()) {
    EXPECT_EQ(Format::Parse(name)->Name(), name);
    ++num_formats;
  }
  EXPECT_EQ(num_formats, 18);
  EXPECT_DOUBLE_EQ(AffineFormat(4, 64).BitsPerWeight(8, 128), 4.5);
  EXPECT_DOUBLE_EQ(AffineFormat(8, 32).BitsPerWeight(8, 128), 9.0);
  EXPECT_EQ(kAffineFamily.parse("affine7g64"), nullptr);
  EXPECT_EQ(kAffineFamily.parse("affine4g64 "), nullptr);
}

}  // namespace
}  // namespace assay

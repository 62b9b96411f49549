#include "assay/formats/affine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "assay/base/error.h"
#include "assay/formats/catalogue.h"
#include "tests/support/fixture.h"

namespace assay {
namespace {

using test::Fixture;
using test::FixtureFiles;

/// The matrices of a fixture tensor: its leading axes are a stack.
struct Stack {
  int64_t matrices = 1;
  int64_t rows = 0;
  int64_t cols = 0;
};

Stack StackOf(const Shape& shape) {
  const size_t rank = shape.rank();
  Stack stack{1, shape[rank - 2], shape[rank - 1]};
  for (size_t axis = 0; axis + 2 < rank; ++axis) stack.matrices *= shape[axis];
  return stack;
}

Tensor MatrixOf(const Tensor& tensor, const Stack& stack, int64_t index) {
  const int64_t per_matrix = tensor.shape().NumElements() / stack.matrices;
  const Shape flat{stack.matrices, stack.rows, per_matrix / stack.rows};
  return tensor.As(tensor.dtype(), flat).Slice(index);
}

FormatPtr FormatOf(const Fixture& fixture) { return Format::Parse(fixture.Metadata("format")); }

EncodedMatrix PlanesOf(const Fixture& fixture, const Stack& stack, int64_t index) {
  EncodedMatrix encoded{
      FormatOf(fixture), stack.rows, stack.cols, fixture.Get("scales").dtype(), {}};
  encoded.planes = {{"codes", MatrixOf(fixture.Get("weight"), stack, index)},
                    {"scales", MatrixOf(fixture.Get("scales"), stack, index)},
                    {"biases", MatrixOf(fixture.Get("biases"), stack, index)}};
  return encoded;
}

int64_t Mismatches(std::span<const std::byte> a, std::span<const std::byte> b,
                   size_t element_bytes) {
  EXPECT_EQ(a.size(), b.size());
  int64_t mismatches = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); i += element_bytes) {
    mismatches += std::memcmp(&a[i], &b[i], element_bytes) != 0;
  }
  return mismatches;
}

std::vector<std::byte> DecodeTo(const EncodedMatrix& encoded, DType dtype) {
  std::vector<std::byte> out(static_cast<size_t>(encoded.rows * encoded.cols * BitsOf(dtype) / 8));
  encoded.format->DecodeRowsTo(encoded, 0, encoded.rows, dtype, out);
  return out;
}

class AffineVectors : public testing::TestWithParam<std::string> {};

TEST_P(AffineVectors, EncodeToTheBitsOfMlx) {
  const Fixture fixture(GetParam());
  const Tensor input = fixture.Get("input");
  const Stack stack = StackOf(input.shape());
  int64_t mismatches = 0;
  for (int64_t m = 0; m < stack.matrices; ++m) {
    const Tensor matrix = MatrixOf(input, stack, m);
    const EncodedMatrix encoded = FormatOf(fixture)->Encode(
        MatrixView(matrix.view(), stack.rows, stack.cols), {.tensor_name = GetParam()});
    const EncodedMatrix expected = PlanesOf(fixture, stack, m);
    for (const Plane& plane : expected.planes) {
      const Tensor& found = encoded.Get(plane.name);
      EXPECT_EQ(found.shape(), plane.tensor.shape());
      EXPECT_EQ(found.dtype(), plane.tensor.dtype());
      mismatches += Mismatches(found.bytes(), plane.tensor.bytes(),
                               static_cast<size_t>(BitsOf(found.dtype()) / 8));
    }
  }
  RecordProperty("vectors", std::to_string(input.shape().NumElements()));
  RecordProperty("mismatches", std::to_string(mismatches));
  EXPECT_EQ(mismatches, 0);
}

TEST_P(AffineVectors, DecodeToTheBitsOfMlx) {
  const Fixture fixture(GetParam());
  const Tensor decoded = fixture.Get("decoded");
  const Stack stack = StackOf(decoded.shape());
  int64_t mismatches = 0;
  for (int64_t m = 0; m < stack.matrices; ++m) {
    const EncodedMatrix encoded = PlanesOf(fixture, stack, m);
    encoded.format->Validate(encoded, GetParam());
    mismatches +=
        Mismatches(DecodeTo(encoded, decoded.dtype()), MatrixOf(decoded, stack, m).bytes(),
                   static_cast<size_t>(BitsOf(decoded.dtype()) / 8));
  }
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

TEST(Affine, EveryFixtureFileIsThere) { EXPECT_EQ(EncodeFiles().size(), 54u + 3u); }

}  // namespace
}  // namespace assay

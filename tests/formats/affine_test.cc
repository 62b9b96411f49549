#include "assay/formats/affine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/formats/affine_kernels.h"
#include "assay/formats/catalogue.h"
#include "assay/numeric/bit_packing.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/random.h"
#include "assay/tensor/convert.h"
#include "tests/support/affine_reference.h"
#include "tests/support/bits.h"
#include "tests/support/every_target.h"
#include "tests/support/fixture.h"

namespace assay {
namespace {

using test::DecodeAll;
using test::DifferentElements;
using test::Fixture;
using test::FixtureFiles;
using test::MatrixAt;
using test::OnEveryTarget;
using testing::HasSubstr;

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

size_t BytesOf(DType dtype) { return static_cast<size_t>(BitsOf(dtype) / 8); }

/// Runs `body` on every target with 1, 2 and 3 threads.
template <typename Body>
void OnEveryTargetAndThreadCount(const Body& body) {
  const int before = NumThreads();
  for (const int threads : {1, 2, 3}) {
    SCOPED_TRACE("threads " + std::to_string(threads));
    SetNumThreads(threads);
    OnEveryTarget(body);
  }
  SetNumThreads(before);
}

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

EncodedMatrix EncodeTensor(const Format& format, const Tensor& matrix) {
  return format.Encode(MatrixView(matrix.view(), matrix.shape()[0], matrix.shape()[1]),
                       {.tensor_name = "test"});
}

/// Row-major values rounded to `dtype`.
Tensor TensorOf(std::span<const float> values, int64_t rows, DType dtype) {
  Tensor tensor = Tensor::Allocate(dtype, Shape{rows, static_cast<int64_t>(values.size()) / rows});
  Round(ElementOf(dtype), values, tensor.mutable_bytes());
  return tensor;
}

int64_t DifferentPlanes(const EncodedMatrix& a, const EncodedMatrix& b) {
  int64_t different = 0;
  EXPECT_EQ(a.planes.size(), b.planes.size());
  for (const Plane& plane : a.planes) {
    const Tensor& other = b.Get(plane.name);
    EXPECT_EQ(plane.tensor.shape(), other.shape());
    EXPECT_EQ(plane.tensor.dtype(), other.dtype());
    different +=
        DifferentElements(plane.tensor.bytes(), other.bytes(), BytesOf(plane.tensor.dtype()));
  }
  return different;
}

// ---- Vectors of MLX

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

// ---- Properties

/// A group of one of the kinds on which a fast encoder could go wrong.
std::vector<float> DrawGroup(SplitMix64& random, int bits, size_t size, DType dtype) {
  const auto uniform = [&random] { return static_cast<float>(random.Next() >> 40) * 0x1p-24F; };
  const auto power = [&](int low, int high) {
    return std::ldexp(1.0F,
                      low + static_cast<int>(random.Next() % static_cast<uint64_t>(high - low)));
  };
  const float largest = dtype == DType::kF16 ? 0x1p14F : 0x1p126F;
  std::vector<float> group(size);
  const uint64_t kind = random.Next() % 12;
  const float scale = dtype == DType::kF16 ? power(-12, 12) : power(-60, 60);
  for (float& value : group) value = (uniform() + uniform() + uniform() - 1.5F) * scale;
  switch (kind) {
    case 0:  // range near n · 1e-7, where the scale's floor begins
      for (float& value : group) value = (uniform() - 0.5F) * 4e-7F * static_cast<float>(1 << bits);
      break;
    case 1:  // constants
      std::fill(group.begin(), group.end(), group[0]);
      break;
    case 2:  // zeros of both signs and one value
      for (float& value : group) value = uniform() < 0.5F ? 0.0F : -0.0F;
      if (uniform() < 0.7F) group[random.Next() % size] = (uniform() - 0.5F) * power(-26, 4);
      break;
    case 3:  // subnormals
      for (float& value : group)
        value = (uniform() - 0.5F) * (dtype == DType::kF16 ? 0x1p-14F : 0x1p-126F);
      break;
    case 4:  // one outlier
      group[random.Next() % size] *= 1000.0F;
      break;
    case 5:  // one sign
      for (float& value : group) value = -std::fabs(value);
      break;
    case 6:  // near the largest values that a range of f32 holds
      for (float& value : group) value = (uniform() - 0.5F) * largest * 1.9F;
      break;
    case 7: {  // exact ties of a power-of-two scale, some an ulp beside
      const float step = power(-6, 6);
      const float edge = step * static_cast<float>(1 << (bits - 1));
      for (float& value : group) {
        value = edge - step * (std::floor(uniform() * static_cast<float>(1 << bits)) + 0.5F);
        if (uniform() < 0.5F) value = std::nextafter(value, uniform() < 0.5F ? -1e30F : 1e30F);
      }
      group[0] = edge;
      group[1] = edge - step * static_cast<float>((1 << bits) - 1);
      break;
    }
    case 8: {  // ties of any scale, as near as f32 has them
      const test::AffineGroup plain = test::EncodeAffineGroup(bits, group);
      for (size_t i = 2; i < size; ++i) {
        const auto code = static_cast<float>(random.Next() % ((1U << bits) - 1));
        if (group[i] == plain.bias) continue;
        const float tie = (code + 0.5F) * plain.scale + plain.bias;
        if (std::fabs(tie) < std::fabs(plain.bias)) group[i] = tie;
      }
      break;
    }
    case 9:  // both ends equal
      for (float& value : group) value = uniform() < 0.5F ? scale : -scale;
      break;
    default:
      break;
  }
  if (dtype == DType::kF16) {
    for (float& value : group) value = std::clamp(value, -60000.0F, 60000.0F);
  }
  return group;
}

/// Planes by the scalar reference.
EncodedMatrix EncodeByReference(const AffineFormat& format, const Tensor& matrix) {
  const int64_t rows = matrix.shape()[0];
  const int64_t cols = matrix.shape()[1];
  const DType dtype = matrix.dtype();
  EncodedMatrix encoded{format.shared_from_this(), rows, cols, dtype, {}};
  for (const PlaneSpec& spec : format.Layout(rows, cols, dtype)) {
    encoded.planes.push_back({spec.name, Tensor::Allocate(spec.dtype, spec.shape)});
  }
  std::vector<float> values(static_cast<size_t>(rows * cols));
  ReadFloats(matrix.view(), 0, values);
  const auto group_size = static_cast<size_t>(format.group_size());
  std::vector<float> scales;
  std::vector<float> biases;
  std::vector<uint8_t> codes;
  for (size_t i = 0; i < values.size(); i += group_size) {
    const test::AffineGroup group =
        test::EncodeAffineGroup(format.bits(), std::span(values).subspan(i, group_size));
    scales.push_back(group.scale);
    biases.push_back(group.bias);
    codes.insert(codes.end(), group.codes.begin(), group.codes.end());
  }
  PackBits(format.bits(), codes, encoded.planes[0].tensor.mutable_bytes());
  Round(ElementOf(dtype), scales, encoded.planes[1].tensor.mutable_bytes());
  Round(ElementOf(dtype), biases, encoded.planes[2].tensor.mutable_bytes());
  return encoded;
}

std::shared_ptr<const AffineFormat> DrawFormat() {
  return AffineFormat::Make(*rc::gen::elementOf(std::vector<int>(std::begin(AffineFormat::kBits),
                                                                 std::end(AffineFormat::kBits))),
                            *rc::gen::elementOf(std::vector<int>{32, 64, 128}));
}

RC_GTEST_PROP(AffineProperty, EncodingIsTheEquationOnEveryTarget, (uint64_t seed)) {
  const auto format = DrawFormat();
  const DType dtype = *rc::gen::element(DType::kF32, DType::kF16, DType::kBF16);
  const auto rows = *rc::gen::inRange<int64_t>(0, 4);
  const auto cols = format->group_size() * *rc::gen::inRange<int64_t>(1, 40);
  SplitMix64 random(seed);
  std::vector<float> values;
  for (int64_t g = 0; g < rows * cols / format->group_size(); ++g) {
    const std::vector<float> group =
        DrawGroup(random, format->bits(), static_cast<size_t>(format->group_size()), dtype);
    values.insert(values.end(), group.begin(), group.end());
  }
  Tensor matrix = Tensor::Allocate(dtype, Shape{rows, cols});
  Round(ElementOf(dtype), values, matrix.mutable_bytes());
  const EncodedMatrix expected = EncodeByReference(*format, matrix);
  const std::string before = ActiveTargetName();
  for (const std::string& target : SupportedTargets()) {
    ForceTarget(target);
    RC_ASSERT(DifferentPlanes(EncodeTensor(*format, matrix), expected) == 0);
  }
  ForceTarget(before);
}

RC_GTEST_PROP(AffineProperty, AnyPlanesDecodeToTheSameBitsOnEveryTarget, (uint64_t seed)) {
  const auto format = DrawFormat();
  const DType dtype = *rc::gen::element(DType::kF32, DType::kF16, DType::kBF16);
  const auto rows = *rc::gen::inRange<int64_t>(0, 4);
  const auto cols = format->group_size() * *rc::gen::inRange<int64_t>(1, 40);
  const bool hostile = *rc::gen::arbitrary<bool>();
  SplitMix64 random(seed);
  EncodedMatrix encoded{format, rows, cols, dtype, {}};
  for (const PlaneSpec& spec : format->Layout(rows, cols, dtype)) {
    Tensor tensor = Tensor::Allocate(spec.dtype, spec.shape);
    for (std::byte& byte : tensor.mutable_bytes()) byte = static_cast<std::byte>(random.Next());
    if (spec.name != "codes" && !hostile) {
      std::vector<float> finite(static_cast<size_t>(spec.shape.NumElements()));
      for (float& value : finite) value = static_cast<float>(random.Next() >> 40) * 0x1p-24F - 0.5F;
      Round(ElementOf(dtype), finite, tensor.mutable_bytes());
    }
    encoded.planes.push_back({spec.name, std::move(tensor)});
  }
  format->Validate(encoded, "test");
  const affine_internal::Geometry geometry{format->bits(), format->group_size(), dtype};
  const std::string before = ActiveTargetName();
  for (const DType out : kDTypes) {
    std::vector<std::byte> expected(static_cast<size_t>(rows * cols) * BytesOf(out));
    affine_internal::DecodeGroupsScalar(
        geometry, encoded.Get("codes").bytes().data(), encoded.Get("scales").bytes().data(),
        encoded.Get("biases").bytes().data(), rows * cols / format->group_size(),
        DecodeRounding::kCheckpoint, out, expected.data());
    for (const std::string& target : SupportedTargets()) {
      ForceTarget(target);
      RC_ASSERT(DifferentElements(DecodeAll(encoded, out), expected, BytesOf(out)) == 0);
    }
  }
  std::vector<float> unrounded(static_cast<size_t>(rows * cols));
  affine_internal::DecodeGroupsScalar(
      geometry, encoded.Get("codes").bytes().data(), encoded.Get("scales").bytes().data(),
      encoded.Get("biases").bytes().data(), rows * cols / format->group_size(),
      DecodeRounding::kNone, DType::kF32, std::as_writable_bytes(std::span(unrounded)).data());
  for (const std::string& target : SupportedTargets()) {
    ForceTarget(target);
    std::vector<float> found(unrounded.size());
    format->DecodeRows(encoded, 0, rows, found, DecodeRounding::kNone);
    RC_ASSERT(DifferentElements(std::as_bytes(std::span(found)),
                                std::as_bytes(std::span(unrounded)), 4) == 0);
  }
  ForceTarget(before);
}

RC_GTEST_PROP(AffineProperty, TheMostExtremeValueOfAGroupIsStoredExactly, (uint64_t seed)) {
  const auto format = DrawFormat();
  SplitMix64 random(seed);
  const auto size = static_cast<size_t>(format->group_size());
  std::vector<float> group(size);
  for (float& value : group) value = static_cast<float>(random.Next() >> 40) * 0x1p-20F - 8.0F;
  const auto extreme = std::max_element(
      group.begin(), group.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  std::vector<float> decoded(size);
  const EncodedMatrix encoded = EncodeTensor(*format, TensorOf(group, 1, DType::kF32));
  format->DecodeRows(encoded, 0, 1, decoded);
  RC_ASSERT(decoded[static_cast<size_t>(extreme - group.begin())] == *extreme);
}

TEST(Affine, RowRangesAndUnalignedInputDecodeAndEncodeAsTheWhole) {
  constexpr int64_t kRows = 7;
  constexpr int64_t kCols = 192;
  SplitMix64 random(5);
  std::vector<float> values;
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    values.push_back(static_cast<float>(random.Next() >> 40) * 0x1p-22F - 2.0F);
  }
  const Tensor matrix = TensorOf(values, kRows, DType::kBF16);
  const auto format = AffineFormat::Make(3, 64);
  const EncodedMatrix encoded = EncodeTensor(*format, matrix);

  std::vector<std::byte> shifted(matrix.bytes().size() + 1);
  std::memcpy(shifted.data() + 1, matrix.bytes().data(), matrix.bytes().size());
  const TensorView view{DType::kBF16, Shape{kRows, kCols}, std::span(shifted).subspan(1)};
  EXPECT_EQ(DifferentPlanes(format->Encode(MatrixView(view, kRows, kCols), {}), encoded), 0);

  std::vector<float> whole(values.size());
  format->DecodeRows(encoded, 0, kRows, whole);
  std::vector<float> part(2 * kCols);
  format->DecodeRows(encoded, 3, 2, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 3 * kCols));
  std::vector<std::byte> rounded(values.size() * 2);
  Round(Element::kBF16, whole, rounded);
  EXPECT_EQ(DifferentElements(DecodeAll(encoded, DType::kBF16), rounded, 2), 0);
  // The default of DecodeRowsTo, through floats.
  std::vector<std::byte> by_default(rounded.size());
  format->Format::DecodeRowsTo(encoded, 0, kRows, DType::kBF16, by_default);
  EXPECT_EQ(DifferentElements(by_default, rounded, 2), 0);
}

// ---- Refusals

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

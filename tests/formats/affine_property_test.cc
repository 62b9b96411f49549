#include "assay/formats/affine.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "assay/formats/affine_kernels.h"
#include "assay/numeric/bit_packing.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/random.h"
#include "assay/tensor/convert.h"
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
using test::kDTypes;
using test::TensorOf;

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

}  // namespace
}  // namespace assay

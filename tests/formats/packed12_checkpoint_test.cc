#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/formats/checkpoint_form.h"
#include "assay/formats/packed12.h"
#include "tests/support/errors.h"
#include "tests/support/memory_checkpoint.h"
#include "tests/support/packed12_checks.h"

namespace assay {
namespace {

using test::Copy;
using test::DecodeWordsOf;
using test::Fixture;
using test::kPacked12;
using test::LongMatrix;
using test::MessageOf;
using test::Packed12Cases;
using ::testing::HasSubstr;

// A checkpoint with `plain` packed under `name`, stored as a quantiser would.
test::MemoryCheckpoint Stored(const std::string& name, const Tensor& plain) {
  test::MemoryCheckpoint checkpoint;
  const EncodedMatrix encoded = kPacked12.Encode(FlattenToMatrix(plain.view()), {});
  for (const Plane& plane : encoded.planes) {
    const PlaneSpec spec{plane.name, plane.tensor.dtype(), plane.tensor.shape()};
    const Shape stored = kPacked12.Form()->StoredShape(spec, plain.shape());
    checkpoint.Add(kPacked12.Form()->TensorName(name, plane.name),
                   plane.tensor.As(spec.dtype, stored));
  }
  return checkpoint;
}

TEST(Packed12, TensorsOfEveryRankAreFoundWithTheirShape) {
  const Fixture fixture("packed12/valid.safetensors");
  for (const auto& entry : Packed12Cases()) {
    if (entry.at("kind") != "round-trip") continue;
    const std::string name = entry.at("case");
    SCOPED_TRACE(name);
    const Tensor plain = fixture.Get(name + ".bf16");
    const test::MemoryCheckpoint checkpoint = Stored(name, plain);
    Recognition found;
    kPacked12Family.recognise(checkpoint, found);
    ASSERT_EQ(found.weights.size(), 1u);
    const FoundWeight& weight = found.weights[0];
    EXPECT_EQ(weight.name, name);
    EXPECT_EQ(weight.tensor_names.size(), 5u);
    EXPECT_EQ(weight.plain_shape.value_or(Shape{weight.rows, weight.cols}), plain.shape());
    std::vector<std::byte> words;
    for (int64_t i = 0; i < weight.stack; ++i) {
      const EncodedMatrix matrix = weight.load(i);
      weight.format->Validate(matrix, name);
      EXPECT_EQ(matrix.rows, weight.rows);
      EXPECT_EQ(matrix.cols, weight.cols);
      const auto part = DecodeWordsOf(matrix);
      words.insert(words.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(words == Copy(plain.bytes()));
  }
}

TEST(Packed12, StacksOfOddMatricesAreCutOutWithTheirEscapes) {
  const Tensor plain = LongMatrix(7 * 5 * 13).As(DType::kBF16, {7, 5, 13});
  const test::MemoryCheckpoint checkpoint = Stored("experts", plain);
  Recognition found;
  kPacked12Family.recognise(checkpoint, found);
  ASSERT_EQ(found.weights.size(), 1u);
  ASSERT_EQ(found.weights[0].stack, 7);
  for (int64_t i = 0; i < 7; ++i) {
    const EncodedMatrix matrix = found.weights[0].load(i);
    kPacked12.Validate(matrix, "experts");
    EXPECT_EQ(DecodeWordsOf(matrix), Copy(plain.Slice(i).bytes()));
  }
}

TEST(Packed12, BrokenPlanesOfACheckpointAreRefusedByName) {
  const Fixture fixture("packed12/valid.safetensors");
  const EncodedMatrix good =
      kPacked12.Encode(FlattenToMatrix(fixture.Get("window_edges.bf16").view()), {});
  for (size_t i = 0; i < good.planes.size(); ++i) {
    const std::string plane = "p12_" + good.planes[i].name;
    EncodedMatrix broken = good;
    broken.planes.erase(broken.planes.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THAT(MessageOf([&] { kPacked12.Validate(broken, "w"); }), HasSubstr(plane));
    broken = good;
    broken.planes[i].tensor = Tensor::Allocate(DType::kI8, {3});
    EXPECT_THAT(MessageOf([&] { kPacked12.Validate(broken, "w"); }), HasSubstr(plane));
  }
  EncodedMatrix broken = good;
  broken.planes[0].tensor = Tensor::Allocate(DType::kU8, {4});
  EXPECT_THAT(MessageOf([&] { kPacked12.Validate(broken, "w"); }),
              HasSubstr("w: plane \"p12_header\": byte 0: base"));
}

TEST(Packed12, ShapesThatAreNoMatrixAreNotTrusted) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  test::MemoryCheckpoint checkpoint;
  for (const char* plane : {"header", "ex"}) {
    checkpoint.Add(kPacked12.Form()->TensorName("none", plane), Tensor::Allocate(DType::kU8, {0}));
  }
  checkpoint.Add("none.p12_sm", Tensor::Share(nullptr, DType::kU8, {kHuge, 0, kHuge}, {}));
  checkpoint.Add("float.p12_sm", Tensor::Allocate(DType::kF32, {2, 2}));
  Recognition found;
  kPacked12Family.recognise(checkpoint, found);
  ASSERT_EQ(found.weights.size(), 1u);
  EXPECT_EQ(found.weights[0].stack, 1);
  EXPECT_THAT(found.notes, ::testing::ElementsAre(HasSubstr("float.p12_sm")));
  EXPECT_THROW(kPacked12.Validate(found.weights[0].load(0), "none"), Error);
}

}  // namespace
}  // namespace assay

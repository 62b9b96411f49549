#include "assay/formats/ggml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "assay/checkpoint/model.h"
#include "assay/formats/checkpoint_form.h"
#include "assay/formats/ggml_blocks.h"
#include "assay/formats/ggml_iq_grids.h"
#include "assay/numeric/bulk.h"
#include "assay/tensor/convert.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/every_target.h"
#include "tests/support/fixture.h"
#include "tests/support/ggml_checks.h"

namespace assay {
namespace {

using test::BlocksOf;
using test::BlockTypes;
using test::Fixture;
using test::MatrixOf;
using testing::HasSubstr;

class GgmlTypesTest : public testing::TestWithParam<const GgmlType*> {};

TEST_P(GgmlTypesTest, DecodeToTheBitsOfUpstream) {
  const Fixture vectors = BlocksOf(*GetParam());
  const Tensor expected = vectors.Get("decode.values");
  const EncodedMatrix encoded = MatrixOf(*GetParam(), vectors.Get("decode.blocks"));
  ASSERT_EQ(expected.shape(), (Shape{encoded.rows, GetParam()->block_values}));
  encoded.format->Validate(encoded, "w");
  test::OnEveryTargetAndThreadCount([&] {
    EXPECT_EQ(test::DifferentElements(test::DecodeAll(encoded, DType::kF32), expected.bytes(), 4),
              0);
  });
}

TEST_P(GgmlTypesTest, ARowOfBlocksDecodesAsTheBlocksOneAfterAnother) {
  const GgmlType& type = *GetParam();
  const Fixture vectors = BlocksOf(type);
  const Tensor blocks = vectors.Get("decode.blocks");
  const Tensor expected = vectors.Get("decode.values");
  const EncodedMatrix row = MatrixOf(type, blocks.As(DType::kU8, Shape{1, blocks.num_bytes()}));
  test::OnEveryTarget([&] {
    EXPECT_EQ(test::DifferentElements(test::DecodeAll(row, DType::kF32), expected.bytes(), 4), 0);
  });
  const EncodedMatrix rows = MatrixOf(type, blocks);
  std::vector<float> last(static_cast<size_t>(2 * rows.cols));
  rows.format->DecodeRows(rows, rows.rows - 2, 2, last);
  EXPECT_EQ(test::DifferentElements(std::as_bytes(std::span(last)),
                                    expected.bytes().last(last.size() * 4), 4),
            0);
}

TEST_P(GgmlTypesTest, BytesThatNoEncoderWritesDecodeToSomething) {
  // Indices never leave their tables, whatever the bytes: the sanitizers watch.
  const GgmlType& type = *GetParam();
  Tensor blocks = Tensor::Allocate(DType::kU8, Shape{64, type.block_bytes * 3});
  uint64_t state = 11;
  for (std::byte& byte : blocks.mutable_bytes()) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56);
  }
  const EncodedMatrix encoded = MatrixOf(type, blocks);
  const std::vector<std::byte> once = test::DecodeAll(encoded, DType::kF32);
  test::OnEveryTargetAndThreadCount([&] {
    EXPECT_EQ(test::DifferentValues(DType::kF32, test::DecodeAll(encoded, DType::kF32), once), 0);
  });
}

/// The blocks of the vectors, over and over.
EncodedMatrix LongRows(const GgmlType& type, int64_t rows, int64_t row_blocks) {
  const Tensor given = BlocksOf(type).Get("decode.blocks");
  Tensor blocks = Tensor::Allocate(DType::kU8, Shape{rows, row_blocks * type.block_bytes});
  for (size_t i = 0; i < blocks.bytes().size(); ++i) {
    blocks.mutable_bytes()[i] = given.bytes()[i % given.bytes().size()];
  }
  return MatrixOf(type, blocks);
}

TEST_P(GgmlTypesTest, RowsRoundedToHalvesAreTheirValuesRounded) {
  const EncodedMatrix encoded = LongRows(*GetParam(), 3, 8192 / GetParam()->block_values + 3);
  std::vector<float> values(static_cast<size_t>(2 * encoded.cols));
  encoded.format->DecodeRows(encoded, 1, 2, values);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const size_t bytes = values.size() * static_cast<size_t>(BitsOf(dtype) / 8);
    std::vector<std::byte> expected(bytes);
    Round(ElementOf(dtype), values, expected);
    test::OnEveryTargetAndThreadCount([&] {
      std::vector<std::byte> found(bytes + 1);
      const auto unaligned = std::span(found).subspan(1);
      encoded.format->DecodeRowsTo(encoded, 1, 2, dtype, unaligned);
      EXPECT_EQ(test::DifferentElements(unaligned, expected), 0) << NameOf(dtype);
    });
  }
}

TEST_P(GgmlTypesTest, BlocksTakenApartMultiplyOutToTheirValues) {
  const GgmlType& type = *GetParam();
  const EncodedMatrix encoded = LongRows(type, 1, 2048 / type.block_values + 3);
  const auto num_values = static_cast<size_t>(encoded.cols);
  std::vector<float> expected(num_values);
  encoded.format->DecodeRows(encoded, 0, 1, expected);
  test::OnEveryTarget([&] {
    std::vector<int8_t> codes(num_values);
    std::vector<float> scales(num_values / ggml_internal::kGroup);
    std::vector<float> mins(scales.size());
    ggml_internal::UnpackBlocks(
        type, reinterpret_cast<const uint8_t*>(encoded.planes[0].tensor.bytes().data()),
        num_values / static_cast<size_t>(type.block_values),
        {codes.data(), scales.data(), mins.data()});
    std::vector<float> values(num_values);
    for (size_t i = 0; i < num_values; ++i) {
      const size_t group = i / ggml_internal::kGroup;
      values[i] = scales[group] * static_cast<float>(codes[i]) - mins[group];
    }
    EXPECT_EQ(test::DifferentElements(std::as_bytes(std::span(values)),
                                      std::as_bytes(std::span(expected)), 4),
              0);
  });
}

INSTANTIATE_TEST_SUITE_P(Every, GgmlTypesTest, testing::ValuesIn(BlockTypes()),
                         [](const auto& instance) { return std::string(instance.param->name); });

/// Types of which upstream refuses some blocks: all whose scale may be infinite or NaN and which
/// files hold.
std::vector<const GgmlType*> TypesWithRefusedBlocks() {
  std::vector<const GgmlType*> types = BlockTypes();
  std::erase_if(types, [](const GgmlType* type) {
    return type->name == "Q8_1" || type->name == "Q8_K" || type->name == "NVFP4";
  });
  return types;
}

class GgmlRefusedBlocksTest : public testing::TestWithParam<const GgmlType*> {};

TEST_P(GgmlRefusedBlocksTest, ScalesThatAreNotFiniteAreTakenAsStored) {
  const Fixture vectors = BlocksOf(*GetParam());
  const EncodedMatrix encoded = MatrixOf(*GetParam(), vectors.Get("invalid.blocks"));
  std::vector<float> values(static_cast<size_t>(encoded.rows * encoded.cols));
  encoded.format->DecodeRows(encoded, 0, encoded.rows, values);
  for (int64_t row = 0; row < encoded.rows; ++row) {
    const auto block = std::span(values).subspan(static_cast<size_t>(row * encoded.cols),
                                                 static_cast<size_t>(encoded.cols));
    EXPECT_FALSE(std::all_of(block.begin(), block.end(), [](float value) {
      return std::isfinite(value);
    })) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Every, GgmlRefusedBlocksTest, testing::ValuesIn(TypesWithRefusedBlocks()),
                         [](const auto& instance) { return std::string(instance.param->name); });

TEST(Ggml, VectorsHoldRefusedBlocksOfEveryTypeThatHasThem) {
  const std::vector<const GgmlType*> types = TypesWithRefusedBlocks();
  for (const GgmlType* type : BlockTypes()) {
    EXPECT_EQ(BlocksOf(*type).Has("invalid.blocks"), std::ranges::count(types, type) == 1)
        << type->name;
  }
}

template <typename Grid>
void ExpectGrid(const Fixture& grids, const char* name, const Grid& grid) {
  const Tensor expected = grids.Get(name);
  ASSERT_EQ(expected.num_bytes(), static_cast<int64_t>(sizeof grid)) << name;
  EXPECT_EQ(test::DifferentElements(std::as_bytes(std::span(grid)), expected.bytes()), 0) << name;
}

TEST(Ggml, CodeBooksAreThoseOfUpstream) {
  const Fixture grids("ggml/blocks/iq-grids.safetensors");
  ExpectGrid(grids, "iq2xxs_grid", kIq2XxsGrid);
  ExpectGrid(grids, "iq2xs_grid", kIq2XsGrid);
  ExpectGrid(grids, "iq2s_grid", kIq2SGrid);
  ExpectGrid(grids, "iq3xxs_grid", kIq3XxsGrid);
  ExpectGrid(grids, "iq3s_grid", kIq3SGrid);
  ExpectGrid(grids, "iq1s_grid", kIq1SGrid);
}

TEST(Ggml, AWidthThatNoBlockDividesIsRefusedWithTheTypesThatFit) {
  const FormatPtr format = Format::Parse("ggml-q4_k");
  EXPECT_EQ(format->WhyNot(3, 512, DType::kBF16), std::nullopt);
  const std::string reason = format->WhyNot(3, 320, DType::kF32).value_or("");
  EXPECT_THAT(reason, HasSubstr("320 columns are not a multiple of the block of 256"));
  EXPECT_THAT(reason, HasSubstr("ggml-q4_0"));
  EXPECT_THAT(reason, HasSubstr("ggml-nvfp4"));
  EXPECT_THAT(reason, testing::Not(HasSubstr("ggml-q1_0")));
  EXPECT_THAT(format->WhyNot(3, 7, DType::kF32).value_or(""), HasSubstr("no type of blocks"));
  EXPECT_NE(format->WhyNot(3, 256, DType::kI8), std::nullopt);
}

TEST(Ggml, BlocksSmallEnoughToCheckByHandDecodeToTheirValues) {
  const auto manifest = nlohmann::json::parse(test::ReadTestData("ggml/manifest.json"));
  int checked = 0;
  for (const nlohmann::json& entry : manifest.at("special_cases")) {
    if (!entry.contains("block") || !entry.contains("values")) continue;
    const std::string hex = entry.at("block");
    const auto expected = entry.at("values").get<std::vector<float>>();
    const GgmlType& type = *FindGgmlType(entry.at("type").get<std::string>());
    Tensor block = Tensor::Allocate(DType::kU8, Shape{1, type.block_bytes});
    ASSERT_EQ(hex.size(), static_cast<size_t>(2 * type.block_bytes));
    for (size_t i = 0; i < hex.size() / 2; ++i) {
      block.mutable_bytes()[i] =
          static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    }
    EXPECT_EQ(test::DifferentElements(test::DecodeAll(MatrixOf(type, block), DType::kF32),
                                      std::as_bytes(std::span(expected)), 4),
              0)
        << entry.at("id");
    ++checked;
  }
  EXPECT_GE(checked, 3);
}

TEST(Ggml, WeightsOfAGgufFileDecodeToTheBitsOfUpstream) {
  const Model model = Model::Open(test::TestDataPath("ggml/gguf/good/all-types.gguf"));
  const Fixture expected("ggml/gguf/good/all-types.f32.safetensors");
  int weights = 0;
  for (const std::string& name : expected.Names()) {
    const Weight* weight = model.FindWeight(name);
    if (weight == nullptr || weight->plain()) continue;
    EXPECT_EQ(test::DifferentElements(test::DecodeAll(weight->Encoded(0), DType::kF32),
                                      expected.Get(name).bytes(), 4),
              0)
        << name;
    ++weights;
  }
  EXPECT_EQ(weights, 25);  // all but Q8_1 and Q8_K, which no file holds
}

/// A checkpoint of tensors of blocks, as a container lists them.
class Blocks final : public CheckpointSource {
 public:
  void Add(std::string name, const char* type, Shape shape) {
    list_.push_back({std::move(name), DType::kU8, std::move(shape), FindGgmlType(type)});
  }
  const std::vector<StoredTensor>& Tensors() const override { return list_; }
  const StoredTensor* Find(std::string_view name) const override {
    const auto found = std::find_if(list_.begin(), list_.end(),
                                    [&](const StoredTensor& s) { return s.name == name; });
    return found == list_.end() ? nullptr : &*found;
  }
  Tensor Load(std::string_view name) const override {
    const StoredTensor& stored = *Find(name);
    Tensor tensor = Tensor::Allocate(stored.dtype, stored.shape);
    const std::span<std::byte> bytes = tensor.mutable_bytes();
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i / 1440);
    return tensor;
  }
  const nlohmann::json* Config(std::string_view) const override { return nullptr; }
  const nlohmann::json* ConfigKey(std::string_view) const override { return nullptr; }
  std::string Path() const override { return "m.gguf"; }

 private:
  std::vector<StoredTensor> list_;
};

TEST(Ggml, TensorsOfBlocksAreRecognised) {
  Blocks source;
  source.Add("blk.0.attn_q.weight", "Q4_K", Shape{5, 288});
  source.Add("blk.0.ffn_up_exps.weight", "Q4_K", Shape{3, 5, 288});
  source.Add("row", "Q8_0", Shape{68});
  source.Add("four", "Q8_0", Shape{2, 3, 4, 34});
  source.Add("none", "Q8_0", Shape{0, 34});
  Recognition found;
  kGgmlFamily.recognise(source, found);
  ASSERT_EQ(found.weights.size(), 5U);
  const FoundWeight& matrix = found.weights[0];
  EXPECT_EQ(matrix.format->Name(), "ggml-q4_k");
  EXPECT_EQ(matrix.rows, 5);
  EXPECT_EQ(matrix.cols, 512);
  EXPECT_FALSE(matrix.stacked);
  const FoundWeight& stack = found.weights[1];
  EXPECT_TRUE(stack.stacked);
  EXPECT_EQ(stack.stack, 3);
  EXPECT_EQ(stack.rows, 5);
  const EncodedMatrix second = stack.load(1);
  second.format->Validate(second, "w");
  EXPECT_EQ(second.planes[0].tensor.bytes()[0], std::byte{1});
  EXPECT_EQ(found.weights[2].rows, 1);
  EXPECT_EQ(found.weights[2].cols, 64);
  EXPECT_EQ(found.weights[2].plain_shape, (Shape{64}));
  EXPECT_EQ(found.weights[3].rows, 24);
  EXPECT_EQ(found.weights[3].plain_shape, (Shape{2, 3, 4, 32}));
  EXPECT_EQ(found.weights[4].rows, 0);
}

TEST(Ggml, ATensorThatIsNoWholeBlocksIsRefused) {
  for (const Shape& shape : {Shape{2, 33}, Shape{}, Shape{int64_t{1} << 40, int64_t{17} << 30}}) {
    Blocks source;
    source.Add("w", "Q8_0", shape);
    Recognition found;
    EXPECT_THAT(test::MessageOf([&] { kGgmlFamily.recognise(source, found); }),
                HasSubstr("m.gguf: tensor \"w\""));
  }
}

}  // namespace
}  // namespace assay

#include "assay/formats/packed12.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/formats/checkpoint_form.h"
#include "assay/formats/packed12_codec.h"
#include "tests/support/every_target.h"
#include "tests/support/fixture.h"
#include "tests/support/packed12_checks.h"

namespace assay {
namespace {

using test::Copy;
using test::DecodeWordsOf;
using test::Fixture;
using test::kPacked12;
using test::LongMatrix;
using test::Packed12Cases;
using test::TensorOfWords;
using ::testing::HasSubstr;

// The message of the input error that `action` throws; empty when it throws none.
template <class Action>
std::string InputError(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    return error.what();
  }
  return {};
}

Shape ShapeOf(const nlohmann::json& entry) {
  return Shape(entry.at("shape").get<std::vector<int64_t>>());
}

TEST(Packed12, EveryVectorEncodesToItsStreamAndDecodesToItsWords) {
  const Fixture fixture("packed12/valid.safetensors");
  int round_trips = 0;
  int decode_only = 0;
  for (const auto& entry : Packed12Cases()) {
    if (entry.at("kind") == "reader") continue;
    const std::string name = entry.at("case");
    SCOPED_TRACE(name);
    const Tensor plain = fixture.Get(name + ".bf16");
    const Tensor stream = fixture.Get(name + ".stream");
    const EncodedMatrix read = Packed12FromStream(stream.bytes(), ShapeOf(entry), name);
    EXPECT_EQ(DecodeWordsOf(read), Copy(plain.bytes()));
    EXPECT_EQ(Packed12ToStream(read), Copy(stream.bytes()));
    const Packed12Info info = Packed12InfoOf(read);
    EXPECT_EQ(info.base_exponent, entry.at("base").get<int>());
    EXPECT_EQ(info.last_exponent, info.base_exponent + 14);
    EXPECT_EQ(info.escapes, entry.at("escapes").get<int64_t>());
    EXPECT_EQ(info.num_bytes, entry.at("bytes").get<int64_t>());
    EXPECT_EQ(info.num_values, entry.at("elements").get<int64_t>());
    if (entry.at("kind") == "decode-only") {
      ++decode_only;
      continue;
    }
    ++round_trips;
    const MatrixView matrix = FlattenToMatrix(plain.view());
    const EncodedMatrix encoded = kPacked12.Encode(matrix, {.tensor_name = name});
    EXPECT_EQ(Packed12ToStream(encoded), Copy(stream.bytes()));
    kPacked12.Validate(encoded, name);
    EXPECT_EQ(kPacked12.WhyKeepPlain(matrix).has_value(),
              entry.at("encoder_keeps_bf16").get<bool>());
    const auto specs = kPacked12.LayoutFor(matrix);
    ASSERT_EQ(specs.size(), encoded.planes.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      EXPECT_EQ(specs[i].name, encoded.planes[i].name);
      EXPECT_EQ(specs[i].shape, encoded.planes[i].tensor.shape());
      EXPECT_EQ(specs[i].dtype, encoded.planes[i].tensor.dtype());
    }
  }
  EXPECT_EQ(round_trips, 29);
  EXPECT_EQ(decode_only, 2);
}

TEST(Packed12, EveryStreamThatBreaksARuleIsRefusedForIt) {
  const Fixture fixture("packed12/reader.safetensors");
  int refused = 0;
  for (const auto& entry : Packed12Cases()) {
    if (entry.at("kind") != "reader") continue;
    const std::string name = entry.at("case");
    SCOPED_TRACE(name);
    const Tensor stream = fixture.Get(name);
    const std::string message =
        InputError([&] { Packed12FromStream(stream.bytes(), ShapeOf(entry), name); });
    if (entry.at("expect") == "ok") {
      EXPECT_EQ(message, "");
      continue;
    }
    ++refused;
    EXPECT_THAT(message, HasSubstr(name));
    const auto words = entry.at("words").get<std::vector<std::string>>();
    EXPECT_TRUE(words.empty() || std::ranges::any_of(words,
                                                     [&](const std::string& word) {
                                                       return Lower(message).find(word) !=
                                                              std::string::npos;
                                                     }))
        << message;
    if (entry.contains("offset")) {
      EXPECT_THAT(message, HasSubstr(fmt::format("byte {}:", entry.at("offset").get<int64_t>())));
    }
  }
  EXPECT_EQ(refused, 29);
}

// A stream does not say how many escapes it has: a prefix that ends after whole escapes can be the
// stream of another matrix, and without any it always is (+0 stands in their places). Every other
// prefix is refused. A checkpoint knows the count from its plane shapes.
TEST(Packed12, ProperPrefixesAreRefusedUnlessTheyAreTheStreamOfAnotherMatrix) {
  const Fixture fixture("packed12/valid.safetensors");
  for (const char* name :
       {"golden", "window_edges", "empty", "scalar", "odd_count", "heavy_tail"}) {
    SCOPED_TRACE(name);
    const Tensor plain = fixture.Get(fmt::format("{}.bf16", name));
    const Tensor stream = fixture.Get(fmt::format("{}.stream", name));
    const auto num_values = static_cast<size_t>(plain.shape().NumElements());
    const size_t without_escapes = 4 + num_values + (num_values + 1) / 2;
    for (size_t size = 0; size < stream.bytes().size(); ++size) {
      const auto prefix = stream.bytes().first(size);
      const auto read = [&] { return Packed12FromStream(prefix, plain.shape(), name); };
      if (size < without_escapes || (size - without_escapes) % 6 != 0) {
        EXPECT_THROW(read(), Error) << size;
        continue;
      }
      const bool accepted = InputError(read).empty();
      EXPECT_TRUE(accepted || size != without_escapes);
      if (accepted) {
        EXPECT_EQ(Packed12ToStream(read()), Copy(prefix));
        EXPECT_NE(DecodeWordsOf(read()), Copy(plain.bytes()));
      }
    }
  }
}

TEST(Packed12, RowsDecodeAlikeInAnyRange) {
  const Fixture fixture("packed12/valid.safetensors");
  for (const char* name : {"odd_columns", "heavy_tail", "rank3", "two_clusters"}) {
    SCOPED_TRACE(name);
    const Tensor plain = fixture.Get(fmt::format("{}.bf16", name));
    const int64_t cols = plain.shape()[plain.shape().rank() - 1];
    const int64_t rows = plain.shape().NumElements() / cols;
    const EncodedMatrix encoded = kPacked12.Encode(MatrixView(plain.view(), rows, cols), {});
    for (int64_t first = 0; first <= rows; ++first) {
      for (int64_t count = 0; first + count <= rows; count += 1 + rows / 3) {
        const auto begin = static_cast<size_t>(first * cols);
        const auto num_values = static_cast<size_t>(count * cols);
        std::vector<std::byte> words(2 * num_values);
        kPacked12.DecodeRowsTo(encoded, first, count, DType::kBF16, words);
        EXPECT_EQ(words, Copy(plain.bytes().subspan(2 * begin, 2 * num_values)));
        std::vector<float> floats(num_values);
        kPacked12.DecodeRows(encoded, first, count, floats);
        for (size_t i = 0; i < num_values; ++i) {
          uint32_t bits;
          std::memcpy(&bits, &floats[i], sizeof(bits));
          uint16_t word;
          std::memcpy(&word, &words[2 * i], sizeof(word));
          ASSERT_EQ(bits, uint32_t{word} << 16);
        }
      }
    }
  }
}

TEST(Packed12, WindowWithMostElementsIsChosenTheLowestOfEqualOnes) {
  packed12::ExponentCounts counts{};
  EXPECT_EQ(packed12::ChooseBase(counts), 1);
  counts[0] = 100;
  EXPECT_EQ(packed12::ChooseBase(counts), 1);
  counts[255] = 1;
  EXPECT_EQ(packed12::ChooseBase(counts), 241);
  counts[20] = 1;
  EXPECT_EQ(packed12::ChooseBase(counts), 6);
  counts[35] = 1;
  EXPECT_EQ(packed12::ChooseBase(counts), 6);
  EXPECT_EQ(packed12::CountEscapes(counts, 6), 2);
  counts[34] = 1;
  EXPECT_EQ(packed12::ChooseBase(counts), 20);
  EXPECT_EQ(packed12::CountEscapes(counts, 20), 2);
}

TEST(Packed12, SizesAreThoseOfTheFourPublishedLayers) {
  struct Point {
    int64_t rows, cols, escapes, num_bytes;
  };
  for (const auto& [rows, cols, escapes, num_bytes] :
       {Point{5376, 21504, 465653, 176202178}, Point{7168, 5376, 37640, 58028596},
        Point{5376, 28672, 390434, 233553616}, Point{14336, 5376, 157249, 116549002}}) {
    int64_t total = 0;
    for (const PlaneSpec& plane : kPacked12.Layout(rows, cols, DType::kBF16)) {
      total += *plane.shape.CheckedNumBytes(plane.dtype);
    }
    EXPECT_EQ(total + Packed12Format::kEscapeBytes * escapes, num_bytes);
  }
  EXPECT_NEAR(kPacked12.BitsPerWeight(5376, 21504), 12.0, 1e-6);
}

TEST(Packed12, OtherDtypesAndMoreThan32BitsOfValuesAreDeclined) {
  EXPECT_THAT(kPacked12.WhyNot(2, 2, DType::kF16).value_or(""), HasSubstr("BF16"));
  EXPECT_THAT(kPacked12.WhyNot(65536, 65537, DType::kBF16).value_or(""), HasSubstr("2^32"));
  EXPECT_THAT(kPacked12.WhyNot(int64_t{1} << 40, int64_t{1} << 40, DType::kBF16).value_or(""),
              HasSubstr("2^32"));
  EXPECT_FALSE(kPacked12.WhyNot(65536, 65536, DType::kBF16).has_value());
  EXPECT_FALSE(kPacked12.WhyNot(1, 7, DType::kBF16).has_value());
  EXPECT_FALSE(kPacked12.WhyNot(0, 0, DType::kBF16).has_value());
  const Tensor f16 = Tensor::Allocate(DType::kF16, {2, 2});
  EXPECT_THROW(kPacked12.Encode(MatrixView(f16.view(), 2, 2), {}), Error);
}

TEST(Packed12, ExponentsAreCountedExactlyOnEveryTarget) {
  const Tensor plain = LongMatrix(packed12::kChunkValues + 4321);
  packed12::ExponentCounts expected{};
  for (size_t i = 0; i < plain.bytes().size(); i += 2) {
    uint16_t word;
    std::memcpy(&word, plain.bytes().data() + i, sizeof(word));
    ++expected[(word >> 7) & 0xFF];
  }
  test::OnEveryTargetAndThreadCount(
      [&] { EXPECT_EQ(packed12::CountExponents(plain.bytes()), expected); });
}

// The encoder starts from a sample: the base must be that of all words, whatever a sample shows.
TEST(Packed12, TheBaseIsTheBestOneWhateverASampleShows) {
  for (const int period : {16, 256, 4096}) {
    for (const int sampled : {1, 100, 254}) {
      std::vector<uint16_t> words(static_cast<size_t>(3 * packed12::kChunkValues + 1));
      for (size_t i = 0; i < words.size(); ++i) {
        const bool first = i % static_cast<size_t>(period) < static_cast<size_t>(period / 16);
        words[i] = static_cast<uint16_t>((first ? sampled : 180) << 7 | static_cast<int>(i & 0x7F));
      }
      const auto num_values = static_cast<int64_t>(words.size());
      const Tensor plain = TensorOfWords(words, {num_values});
      const packed12::ExponentCounts counts = packed12::CountExponents(plain.bytes());
      test::OnEveryTargetAndThreadCount([&] {
        const EncodedMatrix encoded = kPacked12.Encode(MatrixView(plain.view(), 1, num_values), {});
        const int base = packed12::ChooseBase(counts);
        EXPECT_EQ(std::to_integer<int>(encoded.planes[0].tensor.bytes()[0]), base);
        EXPECT_EQ(encoded.planes[4].tensor.num_bytes(), 2 * packed12::CountEscapes(counts, base));
        EXPECT_EQ(DecodeWordsOf(encoded), Copy(plain.bytes()));
      });
    }
  }
}

RC_GTEST_PROP(Packed12, RandomWordsComeBackInAnyShape, ()) {
  const auto rows = *rc::gen::inRange<int64_t>(0, 9);
  const auto cols = *rc::gen::inRange<int64_t>(0, 150);
  const auto low = *rc::gen::inRange<int>(0, 256);
  const auto span = *rc::gen::element(1, 12, 16, 40, 256);
  const auto num_values = static_cast<size_t>(rows * cols);
  const auto words = *rc::gen::container<std::vector<uint16_t>>(
      num_values, rc::gen::map(rc::gen::arbitrary<uint16_t>(), [low, span](uint16_t word) {
        const int exponent = (low + ((word >> 7) & 0xFF) % span) & 0xFF;
        return static_cast<uint16_t>((word & 0x807F) | (exponent << 7));
      }));
  const Tensor plain = TensorOfWords(words, {rows, cols});
  const EncodedMatrix encoded = kPacked12.Encode(MatrixView(plain.view(), rows, cols), {});
  kPacked12.Validate(encoded, "random");
  RC_ASSERT(DecodeWordsOf(encoded) == Copy(plain.bytes()));
  const auto stream = Packed12ToStream(encoded);
  RC_ASSERT(DecodeWordsOf(Packed12FromStream(stream, {rows, cols}, "random")) ==
            Copy(plain.bytes()));
}

TEST(Packed12, BytesAreTheSameOnEveryTargetAndThreadCount) {
  const Tensor plain = LongMatrix(2 * packed12::kChunkValues + 77);
  const MatrixView matrix = FlattenToMatrix(plain.view());
  std::vector<std::byte> expected;
  test::OnEveryTargetAndThreadCount([&] {
    const EncodedMatrix encoded = kPacked12.Encode(matrix, {});
    const auto stream = Packed12ToStream(encoded);
    if (expected.empty()) expected = stream;
    EXPECT_TRUE(stream == expected);
    EXPECT_TRUE(DecodeWordsOf(encoded) == Copy(plain.bytes()));
    std::vector<float> floats(static_cast<size_t>(matrix.cols()));
    kPacked12.DecodeRows(encoded, 0, 1, floats);
    std::vector<float> widened(floats.size());
    matrix.ReadRows(0, 1, widened);
    EXPECT_EQ(std::memcmp(floats.data(), widened.data(), 4 * floats.size()), 0);
  });
}

}  // namespace
}  // namespace assay

#include "assay/formats/turboquant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/model.h"
#include "assay/formats/checkpoint_form.h"
#include "assay/numeric/element.h"
#include "assay/tensor/convert.h"
#include "tests/support/every_target.h"
#include "tests/support/fixture.h"
#include "tests/support/memory_checkpoint.h"
#include "tests/support/turboquant_checks.h"

namespace assay {
namespace {

using test::CheckpointOf;
using test::Copy;
using test::DecodeFloats;
using test::DecodeWords;
using test::ExpectSameBits;
using test::Fixture;
using test::GivenSigns;
using test::MatrixOf;
using ::testing::HasSubstr;

// What `action` throws, of either kind; empty when it throws nothing, as the good cases do not.
std::string MessageIfAny(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

// One test a file: each computes the two codebooks of its format.
class TurboQuantVectors : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Upstream, TurboQuantVectors,
                         testing::Values("tq2g32", "tq2g64", "tq2g128", "tq3g32", "tq3g64",
                                         "tq3g128", "tq4g32", "tq4g64", "tq4g128"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(TurboQuantVectors, EncodeAndDecodeToUpstreamsBits) {
  const std::string name = GetParam();
  const Fixture fixture("turboquant/" + name + ".safetensors");
  const FormatPtr format = Format::Parse(name);
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    SCOPED_TRACE(dtype);
    const auto get = [&](const char* key) { return fixture.Get(fmt::format("{}.{}", dtype, key)); };
    const Tensor input = get("input");
    const auto given = GivenSigns(get("tq_signs"));
    const EncodedMatrix encoded =
        format->Encode(MatrixOf(input), {.tensor_name = name, .given_planes = given});
    EXPECT_EQ(Copy(encoded.Get("packed").bytes()), Copy(get("tq_packed").bytes()));
    EXPECT_EQ(Copy(encoded.Get("scales").bytes()), Copy(get("tq_scales").bytes()));
    EXPECT_EQ(encoded.dtype, DType::kBF16);
    format->Validate(encoded, name);
    ExpectSameBits(DecodeFloats(encoded, DecodeRounding::kNone), get("decoded_f32"));
    const Tensor words = get("decoded_bf16");
    EXPECT_EQ(DecodeWords(encoded), Copy(words.bytes()));
    std::vector<float> widened(static_cast<size_t>(words.shape().NumElements()));
    ReadFloats(words.view(), 0, widened);
    const auto rounded = DecodeFloats(encoded, DecodeRounding::kCheckpoint);
    EXPECT_EQ(std::memcmp(rounded.data(), widened.data(), 4 * widened.size()), 0);
  }
}

TEST(TurboQuant, BytesAreTheSameOnEveryTargetAndThreadCount) {
  const Fixture fixture("turboquant/tq3g64.safetensors");
  const Fixture four("turboquant/tq4g128.safetensors");
  test::OnEveryTargetAndThreadCount([&] {
    for (const auto& [name, file] : {std::pair{"tq3g64", &fixture}, {"tq4g128", &four}}) {
      const auto given = GivenSigns(file->Get("bf16.tq_signs"));
      const Tensor input = file->Get("bf16.input");
      const EncodedMatrix encoded =
          Format::Parse(name)->Encode(MatrixOf(input), {.tensor_name = "w", .given_planes = given});
      EXPECT_EQ(Copy(encoded.Get("packed").bytes()), Copy(file->Get("bf16.tq_packed").bytes()));
      EXPECT_EQ(Copy(encoded.Get("scales").bytes()), Copy(file->Get("bf16.tq_scales").bytes()));
      ExpectSameBits(DecodeFloats(encoded, DecodeRounding::kNone), file->Get("bf16.decoded_f32"));
      EXPECT_EQ(DecodeWords(encoded), Copy(file->Get("bf16.decoded_bf16").bytes()));
    }
  });
}

// The specification once more, one value at a time.
struct Reference {
  const TurboQuantFormat& format;

  std::vector<float> Butterflies(std::vector<float> v) const {
    for (size_t h = 1; h < v.size(); h *= 2) {
      for (size_t i = 0; i < v.size(); ++i) {
        if ((i & h) != 0) continue;
        const float a = v[i];
        const float b = v[i + h];
        v[i] = a + b;
        v[i + h] = a - b;
      }
    }
    return v;
  }

  float Norm(std::span<const float> v) const {
    float r[8] = {};
    for (size_t i = 0; i < v.size(); ++i) {
      const float square = v[i] * v[i];
      r[i % 8] = i < 8 ? square : r[i % 8] + square;
    }
    const float sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    return std::max(std::sqrt(sum), 1e-10f);
  }

  // Codes of one group and its f16 norm.
  std::pair<std::vector<int>, uint16_t> Encode(std::span<const float> w,
                                               std::span<const int8_t> signs) const {
    std::vector<float> v(w.size());
    for (size_t i = 0; i < v.size(); ++i) v[i] = w[i] * static_cast<float>(signs[i]);
    v = Butterflies(v);
    for (float& x : v) x /= std::sqrt(static_cast<float>(v.size()));
    const float norm = Norm(v);
    const auto& boundaries = format.EncoderCodebook().boundaries;
    std::vector<int> codes;
    for (const float x : v) {
      codes.push_back(static_cast<int>(std::count_if(boundaries.begin() + 1, boundaries.end() - 1,
                                                     [&](float b) { return b < x / norm; })));
    }
    return {codes, FloatToF16(norm)};
  }

  std::vector<float> Decode(std::span<const int> codes, uint16_t scale,
                            std::span<const int8_t> signs) const {
    std::vector<float> v;
    for (const int code : codes) {
      v.push_back(format.DecoderCodebook().centroids[static_cast<size_t>(code)] *
                  F16ToFloat(scale));
    }
    v = Butterflies(v);
    for (size_t i = 0; i < v.size(); ++i) {
      v[i] = v[i] * (1.0f / std::sqrt(static_cast<float>(v.size())));
      v[i] = v[i] * static_cast<float>(signs[i]);
    }
    return v;
  }
};

int CodeAt(const EncodedMatrix& encoded, int stored_bits, int64_t index) {
  const int64_t per_byte = 8 / stored_bits;
  const auto byte =
      std::to_integer<int>(encoded.Get("packed").bytes()[static_cast<size_t>(index / per_byte)]);
  return byte >> (index % per_byte * stored_bits) & ((1 << stored_bits) - 1);
}

RC_GTEST_PROP(TurboQuant, RandomGroupsFollowTheSpecification, ()) {
  const auto [bits, group_size] =
      *rc::gen::element(std::pair(2, 32), std::pair(3, 128), std::pair(4, 64));
  const auto rows = *rc::gen::inRange<int64_t>(1, 4);
  const auto groups = *rc::gen::inRange<int64_t>(1, 4);
  const auto format = TurboQuantFormat::Make(bits, group_size);
  const int64_t cols = groups * group_size;
  const float magnitude = std::ldexp(1.0f, *rc::gen::inRange(-40, 12));
  // Small integers make rotated values that fall on 0 and groups that are all zero.
  const auto integers = *rc::gen::container<std::vector<int>>(
      static_cast<size_t>(rows * cols),
      *rc::gen::element(rc::gen::inRange(-500, 500), rc::gen::inRange(-1, 2), rc::gen::just(0)));
  Tensor input = Tensor::Allocate(DType::kF32, {rows, cols});
  for (size_t i = 0; i < integers.size(); ++i) {
    input.mutable_as<float>()[i] = static_cast<float>(integers[i]) * magnitude / 500.0f;
  }
  const EncodedMatrix encoded = format->Encode(MatrixOf(input), {.tensor_name = "random"});
  const auto signs = TurboQuantSigns("random", cols);
  const auto decoded = DecodeFloats(encoded, DecodeRounding::kNone);
  const Reference reference{*format};
  for (int64_t g = 0; g < rows * groups; ++g) {
    const auto at = static_cast<size_t>(g * group_size);
    const auto size = static_cast<size_t>(group_size);
    const auto group_signs =
        std::span(signs).subspan(static_cast<size_t>(g % groups * group_size), size);
    const auto [codes, scale] = reference.Encode(
        std::span<const float>(input.mutable_as<float>()).subspan(at, size), group_signs);
    uint16_t stored;
    std::memcpy(&stored, encoded.Get("scales").bytes().data() + 2 * g, sizeof(stored));
    RC_ASSERT(stored == scale);
    for (size_t i = 0; i < size; ++i) {
      RC_ASSERT(CodeAt(encoded, format->stored_bits(), static_cast<int64_t>(at + i)) == codes[i]);
    }
    const auto values = reference.Decode(codes, scale, group_signs);
    RC_ASSERT(std::memcmp(values.data(), decoded.data() + at, 4 * size) == 0);
  }
}

// Upstream's decoder once had up − lo in the butterflies: values came out with the sign
// (−1)^popcount(i).
TEST(TurboQuant, OneCoefficientDecodesWithTheFixedButterfly) {
  const auto format = TurboQuantFormat::Make(4, 32);
  Tensor input = Tensor::Allocate(DType::kF32, {1, 32});
  for (float& value : input.mutable_as<float>()) value = 1.0f;
  Tensor signs = Tensor::Allocate(DType::kI8, {32});
  for (int8_t& sign : signs.mutable_as<int8_t>()) sign = 1;
  const auto given = GivenSigns(signs);
  const EncodedMatrix encoded =
      format->Encode(MatrixOf(input), {.tensor_name = "w", .given_planes = given});
  EXPECT_EQ(CodeAt(encoded, 4, 0), 15);
  for (int64_t i = 1; i < 32; ++i) EXPECT_EQ(CodeAt(encoded, 4, i), 7);
  // The other 31 coefficients decode to the lower centroid next to 0; beyond position 0 they
  // cancel, and the first one adds the same to every position.
  const auto& centroids = format->DecoderCodebook().centroids;
  const float root = std::sqrt(32.0f);
  const float expected = (centroids[15] - centroids[7]) * (RoundToF16(root) / root);
  const auto decoded = DecodeFloats(encoded, DecodeRounding::kNone);
  for (size_t i = 1; i < 32; ++i) EXPECT_NEAR(decoded[i], expected, 1e-6f) << i;
}

TEST(TurboQuant, WhatCannotBeEncodedIsRefusedWhereItStands) {
  const Fixture fixture("turboquant/refuse-encode.safetensors");
  int cases = 0;
  for (const auto& entry : nlohmann::json::parse(test::ReadTestData("turboquant/CASES.json"))) {
    if (entry.at("kind") != "encode") continue;
    ++cases;
    const std::string name = entry.at("case");
    SCOPED_TRACE(name);
    const auto format = TurboQuantFormat::Make(entry.at("bits"), entry.at("group_size"));
    const Tensor input = fixture.Get(name);
    const std::string message =
        MessageIfAny([&] { format->Encode(MatrixOf(input), {.tensor_name = "a.weight"}); });
    EXPECT_THAT(message, HasSubstr("a.weight"));
    for (const std::string word : entry.at("words")) EXPECT_THAT(Lower(message), HasSubstr(word));
    if (entry.contains("row")) {
      EXPECT_THAT(message, HasSubstr(fmt::format("row {},", entry.at("row").get<int>())));
    }
    if (entry.contains("col")) {
      EXPECT_THAT(message, HasSubstr(fmt::format("column {}:", entry.at("col").get<int>())));
    }
    if (entry.contains("group")) {
      EXPECT_THAT(message, HasSubstr(fmt::format("group {} ", entry.at("group").get<int>())));
    }
  }
  EXPECT_EQ(cases, 6);
}

TEST(TurboQuant, BrokenPlanesOfACheckpointAreRefusedWhereTheyBreak) {
  const Fixture fixture("turboquant/refuse-decode.safetensors");
  int cases = 0;
  for (const auto& entry : nlohmann::json::parse(test::ReadTestData("turboquant/CASES.json"))) {
    if (entry.at("kind") != "decode") continue;
    ++cases;
    const std::string name = entry.at("case");
    SCOPED_TRACE(name);
    const test::MemoryCheckpoint checkpoint =
        CheckpointOf(fixture, name,
                     {{"quant_type", "turboquant"},
                      {"bits", entry.at("bits")},
                      {"group_size", entry.at("group_size")}});
    const std::string message = MessageIfAny([&] {
      Recognition found;
      kTurboQuantFamily.recognise(checkpoint, found);
      ASSERT_EQ(found.weights.size(), 1u);
      EXPECT_EQ(found.weights[0].name, "a.weight");
      const EncodedMatrix encoded = found.weights[0].load(0);
      encoded.format->Validate(encoded, "a.weight");
      EXPECT_EQ(DecodeWords(encoded).size(), 4u * 64 * 2);
    });
    EXPECT_EQ(message.empty(), entry.at("expect") == "ok") << message;
    for (const std::string word : entry.at("words")) EXPECT_THAT(Lower(message), HasSubstr(word));
    if (entry.contains("row")) {
      EXPECT_THAT(message, HasSubstr(fmt::format("row {},", entry.at("row").get<int>())));
    }
    if (entry.contains("col")) {
      EXPECT_THAT(message, HasSubstr(fmt::format("column {}:", entry.at("col").get<int>())));
    }
    if (entry.contains("group")) {
      EXPECT_THAT(message, HasSubstr(fmt::format("group {}:", entry.at("group").get<int>())));
    }
  }
  EXPECT_EQ(cases, 15);
}

TEST(TurboQuant, SignsThatAreGivenMustFitAndBeSigns) {
  const auto format = TurboQuantFormat::Make(4, 32);
  const Tensor input = Tensor::Allocate(DType::kF32, {1, 32});
  for (const Tensor& signs :
       {Tensor::Allocate(DType::kI8, {32}), Tensor::Allocate(DType::kI8, {31}),
        Tensor::Allocate(DType::kU8, {32})}) {
    const auto given = GivenSigns(signs);
    EXPECT_THAT(MessageIfAny([&] {
                  format->Encode(MatrixOf(input), {.tensor_name = "w", .given_planes = given});
                }),
                HasSubstr("w: tq_signs"));
  }
}

// numpy.random.RandomState(zlib.crc32(b"model.layers.0.mlp.up_proj.weight")).choice([-1, 1], 128)
TEST(TurboQuant, DrawnSignsAreThoseOfNumpyUnderTheNamesCrc) {
  const Fixture shard("turboquant/model-tq3g32/model-00002-of-00002.safetensors");
  const Tensor signs = shard.Get("model.layers.0.mlp.up_proj.tq_signs");
  const auto drawn = TurboQuantSigns("model.layers.0.mlp.up_proj.weight", 128);
  EXPECT_EQ(std::memcmp(drawn.data(), signs.bytes().data(), drawn.size()), 0);
}

TEST(TurboQuant, SizesOnDiskCountScalesAndSigns) {
  // 4 bits and an f16 per 128 values; a byte per column, shared by all rows.
  EXPECT_DOUBLE_EQ(TurboQuantFormat::Make(4, 128)->BitsPerWeight(4096, 4096),
                   4 + 16.0 / 128 + 8.0 / 4096);
  EXPECT_DOUBLE_EQ(TurboQuantFormat::Make(3, 32)->BitsPerWeight(4096, 4096),
                   4 + 16.0 / 32 + 8.0 / 4096);
  EXPECT_DOUBLE_EQ(TurboQuantFormat::Make(2, 64)->BitsPerWeight(4096, 4096),
                   2 + 16.0 / 64 + 8.0 / 4096);
  EXPECT_THAT(TurboQuantFormat::Make(4, 128)->WhyNot(4, 96, DType::kBF16).value_or(""),
              HasSubstr("group sizes that do: 32"));
  EXPECT_THAT(TurboQuantFormat::Make(4, 128)->WhyNot(4, 128, DType::kI8).value_or(""),
              HasSubstr("I8"));
}

}  // namespace
}  // namespace assay

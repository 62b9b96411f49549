// What all formats of small-float blocks promise, whatever their rules.

#include "assay/formats/block_format.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "assay/base/parallel.h"
#include "assay/formats/microscaling.h"
#include "assay/formats/mlx_fp.h"
#include "assay/formats/nvfp4.h"
#include "assay/numeric/element.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/every_target.h"

namespace assay {
namespace {

using test::DecodeAll;
using test::MessageOf;

std::vector<std::string> AllNames() {
  std::vector<std::string> names;
  for (const FormatFamily* family : {&kMicroscalingFamily, &kNvfp4Family, &kMlxFpFamily}) {
    for (std::string& name : family->names()) names.push_back(std::move(name));
  }
  return names;
}

/// Finite values of every magnitude the dtype has, by blocks of a common one: subnormals, zeros of
/// both signs, ties, single outliers, constants.
Tensor Mixture(DType dtype, int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Tensor tensor = Tensor::Allocate(dtype, {rows, cols});
  const int reach = dtype == DType::kF16 ? 14 : 125;
  for (int64_t i = 0; i < rows * cols; ++i) {
    const int64_t block = i / 16;
    const int exponent =
        static_cast<int>((block * 7919 + seed) % static_cast<uint32_t>(2 * reach)) - reach;
    float value = std::ldexp(normal(engine), exponent - 2);
    switch (block % 9) {
      case 0:
        value = engine() % 2 == 0 ? 0.0F : -0.0F;
        break;
      case 1:
        value = std::ldexp(static_cast<float>(engine() % 33) / 8.0F - 2.0F, exponent / 2);
        break;
      case 2:
        value = std::ldexp(value, -reach / 2 - 20);
        break;
      case 3:
        value = -5.0F;
        break;
      case 4:
        if (i % 16 == 7) value = std::ldexp(1.5F, reach - 1);
        break;
      default:
        break;
    }
    if (dtype == DType::kF32) {
      tensor.mutable_as<float>()[static_cast<size_t>(i)] = value;
    } else {
      tensor.mutable_as<uint16_t>()[static_cast<size_t>(i)] =
          dtype == DType::kBF16 ? FloatToBF16(value) : FloatToF16(value);
    }
  }
  return tensor;
}

EncodedMatrix Encode(const std::string& name, const Tensor& x) {
  return Format::Parse(name)->Encode(MatrixView(x.view(), x.shape()[0], x.shape()[1]),
                                     {.tensor_name = "x"});
}

TEST(BlockFormats, EveryTargetAndThreadCountGivesTheSameBits) {
  // Odd numbers of blocks, and more rows than one chunk takes.
  constexpr int64_t kRows = 105;
  constexpr int64_t kCols = 160;
  const int threads_before = NumThreads();
  const Tensor inputs[] = {Mixture(DType::kF32, kRows, kCols, 3),
                           Mixture(DType::kBF16, kRows, kCols, 3),
                           Mixture(DType::kF16, kRows, kCols, 3)};
  size_t turn = 0;
  for (const std::string& name : AllNames()) {
    const Tensor& x = inputs[turn++ % 3];
    const DType dtype = x.dtype();
    std::optional<EncodedMatrix> first;
    std::vector<std::vector<std::byte>> decoded;
    int threads = 0;
    test::OnEveryTarget([&] {
      SetNumThreads(threads++ % 3 + 1);
      const EncodedMatrix encoded = Encode(name, x);
      std::vector<std::vector<std::byte>> now = {DecodeAll(encoded, encoded.dtype)};
      std::vector<float> widened(static_cast<size_t>(kRows * kCols));
      for (const DecodeRounding rounding : {DecodeRounding::kCheckpoint, DecodeRounding::kNone}) {
        encoded.format->DecodeRows(encoded, 0, kRows, widened, rounding);
        const auto bytes = std::as_bytes(std::span(widened));
        now.emplace_back(bytes.begin(), bytes.end());
      }
      if (!first) {
        first = encoded;
        decoded = now;
        return;
      }
      for (size_t i = 0; i < encoded.planes.size(); ++i) {
        EXPECT_EQ(test::DifferentElements(encoded.planes[i].tensor.bytes(),
                                          first->planes[i].tensor.bytes()),
                  0)
            << name << " " << NameOf(dtype) << " " << encoded.planes[i].name;
      }
      EXPECT_TRUE(now == decoded) << name << " " << NameOf(dtype);
    });
  }
  SetNumThreads(threads_before);
}

TEST(BlockFormats, ElementsAreThoseOfTheScalarConversions) {
  struct Scalar {
    BlockElement element;
    uint8_t (*encode)(float);
    float (*decode)(uint8_t);
  };
  const Scalar scalars[] = {{BlockElement::kE2M1, FloatToE2M1, E2M1ToFloat},
                            {BlockElement::kE2M3, FloatToE2M3, E2M3ToFloat},
                            {BlockElement::kE3M2, FloatToE3M2, E3M2ToFloat},
                            {BlockElement::kE4M3, FloatToE4M3Saturating, E4M3ToFloat},
                            {BlockElement::kE5M2, FloatToE5M2Saturating, E5M2ToFloat}};
  // Every finite bf16 value.
  std::vector<float> values;
  for (uint32_t word = 0; word < 0x10000; ++word) {
    const float value = BF16ToFloat(static_cast<uint16_t>(word));
    if (std::isfinite(value)) values.push_back(value);
  }
  ASSERT_EQ(values.size() % 32, 0u);
  const std::vector<float> ones(values.size() / 32, 1.0F);
  for (const Scalar& scalar : scalars) {
    test::OnEveryTarget([&] {
      std::vector<uint8_t> codes(values.size());
      EncodeBlocks(scalar.element, ElementRounding::kNearestEven, {}, values, 32, ones, codes);
      int64_t different = 0;
      for (size_t i = 0; i < values.size(); ++i) different += codes[i] != scalar.encode(values[i]);
      EXPECT_EQ(different, 0);
      std::vector<uint8_t> all(256);
      for (size_t c = 0; c < all.size(); ++c) {
        all[c] = static_cast<uint8_t>(c & ((1u << FactsOf(scalar.element).bits) - 1));
      }
      std::array<float, 256> scale_values{};
      scale_values[1] = 1.0F;
      const std::vector<std::byte> scales(8, std::byte{1});
      std::vector<float> decoded(256);
      DecodeBlocks(scalar.element, all, 32, scales, scale_values, DType::kF32, DType::kF32,
                   std::as_writable_bytes(std::span(decoded)));
      for (size_t c = 0; c < all.size(); ++c) {
        const float expected = scalar.decode(all[c]);
        EXPECT_TRUE(std::bit_cast<uint32_t>(decoded[c]) == std::bit_cast<uint32_t>(expected) ||
                    (std::isnan(decoded[c]) && std::isnan(expected)))
            << "code " << c;
      }
    });
  }
}

TEST(BlockFormats, PackingIsAnLsbFirstBitStream) {
  std::mt19937 engine(5);
  for (const int bits : {4, 6, 8}) {
    for (const size_t count : {16u, 32u, 48u, 272u}) {
      std::vector<uint8_t> codes(count);
      for (uint8_t& code : codes) code = static_cast<uint8_t>(engine() & ((1u << bits) - 1));
      std::vector<std::byte> packed(count * static_cast<size_t>(bits) / 8);
      test::OnEveryTarget([&] {
        PackCodes(bits, codes, packed);
        for (size_t bit = 0; bit < packed.size() * 8; ++bit) {
          const size_t in_code = bit % static_cast<size_t>(bits);
          const unsigned code = codes[bit / static_cast<size_t>(bits)];
          const unsigned expected = code >> in_code & 1u;
          ASSERT_EQ(std::to_integer<unsigned>(packed[bit / 8]) >> (bit % 8) & 1u, expected);
        }
        std::vector<uint8_t> unpacked(count);
        UnpackCodes(bits, packed, unpacked);
        EXPECT_EQ(unpacked, codes);
      });
    }
  }
}

RC_GTEST_PROP(BlockFormats, AnOcpElementIsWithinHalfAStepUnlessItSaturates, ()) {
  const auto seed = *rc::gen::arbitrary<uint32_t>();
  const std::vector<std::string> names = {"mxfp4", "mxfp6e2m3", "mxfp6e3m2",
                                          "mxfp8", "mxfp8e5m2", "mxint8"};
  const std::string name = *rc::gen::elementOf(names);
  const Tensor x = Mixture(DType::kF32, 3, 96, seed);
  const EncodedMatrix encoded = Encode(name, x);
  const BlockElementFacts facts =
      FactsOf(dynamic_cast<const BlockFormat&>(*encoded.format).element());
  std::vector<float> original(3 * 96);
  std::vector<float> decoded(3 * 96);
  MatrixView(x.view(), 3, 96).ReadRows(0, 3, original);
  encoded.format->DecodeRows(encoded, 0, 3, decoded);
  for (size_t i = 0; i < original.size(); ++i) {
    const double scale =
        std::ldexp(1.0, std::to_integer<int>(encoded.Get("scales").bytes()[i / 32]) - 127);
    const double max = static_cast<double>(facts.max) * scale;
    const double v = original[i];
    RC_ASSERT(std::signbit(original[i]) == std::signbit(decoded[i]) || facts.max < 2);
    if (std::abs(v) >= max) {
      RC_ASSERT(std::abs(static_cast<double>(decoded[i])) == max);
      continue;
    }
    // The step below the largest binade is at most 2^(emax − mantissa bits) of the scale; the
    // relative bound holds above the subnormals, the absolute one everywhere.
    const double step = std::ldexp(scale, facts.emax - facts.mantissa_bits);
    RC_ASSERT(std::abs(v - static_cast<double>(decoded[i])) <= step / 2);
  }
}

RC_GTEST_PROP(BlockFormats, EncodingWhatWasDecodedChangesNothing, ()) {
  const auto seed = *rc::gen::arbitrary<uint32_t>();
  const std::vector<std::string> names = {"mxfp4", "mxfp6e2m3", "mxfp6e3m2",
                                          "mxfp8", "mxfp8e5m2", "mxint8"};
  const std::string name = *rc::gen::elementOf(names);
  const EncodedMatrix once = Encode(name, Mixture(DType::kF32, 2, 64, seed));
  Tensor decoded = Tensor::Allocate(DType::kF32, {2, 64});
  once.format->DecodeRows(once, 0, 2, decoded.mutable_as<float>());
  const EncodedMatrix twice = Encode(name, decoded);
  std::vector<float> again(2 * 64);
  twice.format->DecodeRows(twice, 0, 2, again);
  RC_ASSERT(std::ranges::equal(again, decoded.mutable_as<float>()));
}

TEST(BlockFormats, AFormatSaysWhatItCannotHold) {
  const FormatPtr mx = Format::Parse("mxfp4");
  EXPECT_FALSE(mx->WhyNot(2, 64, DType::kBF16));
  EXPECT_EQ(mx->WhyNot(2, 65, DType::kBF16), "65 columns are not a multiple of the block of 32");
  EXPECT_EQ(mx->WhyNot(2, 64, DType::kI32), "dtype I32; expected F32, F16 or BF16");
  EXPECT_TRUE(mx->WhyNot(int64_t{1} << 40, int64_t{1} << 40, DType::kBF16).has_value());
  EXPECT_TRUE(mx->WhyNot(-1, 64, DType::kBF16).has_value());
}

TEST(BlockFormats, EmptyMatricesAreHeld) {
  for (const std::string& name : AllNames()) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{0, 64}, {3, 0}, {0, 0}}) {
      const Tensor x = Tensor::Allocate(DType::kBF16, {rows, cols});
      const EncodedMatrix encoded = Encode(name, x);
      encoded.format->Validate(encoded, "x");
      EXPECT_TRUE(DecodeAll(encoded, DType::kF32).empty()) << name;
    }
  }
}

TEST(BlockFormats, HostilePlanesAreRefused) {
  for (const std::string& name : AllNames()) {
    const EncodedMatrix good = Encode(name, Mixture(DType::kBF16, 4, 64, 1));
    for (size_t p = 0; p < good.planes.size(); ++p) {
      EncodedMatrix missing = good;
      missing.planes.erase(missing.planes.begin() + static_cast<std::ptrdiff_t>(p));
      EXPECT_NE(MessageOf([&] { missing.format->Validate(missing, "w"); }).find("missing"),
                std::string::npos);
      EncodedMatrix wrong = good;
      wrong.planes[p].tensor = Tensor::Allocate(DType::kI16, {4, 3});
      EXPECT_NE(MessageOf([&] { wrong.format->Validate(wrong, "w"); }).find("expected"),
                std::string::npos);
    }
    EncodedMatrix ragged = good;
    ragged.cols = 63;
    EXPECT_FALSE(MessageOf([&] { ragged.format->Validate(ragged, "w"); }).empty());
    ragged.cols = int64_t{1} << 62;
    ragged.rows = 32;
    EXPECT_FALSE(MessageOf([&] { ragged.format->Validate(ragged, "w"); }).empty());
  }
}

TEST(BlockFormats, EveryByteDecodesWithoutFault) {
  std::mt19937 engine(11);
  for (const std::string& name : AllNames()) {
    EncodedMatrix encoded = Encode(name, Tensor::Allocate(DType::kBF16, {8, 64}));
    for (Plane& plane : encoded.planes) {
      for (std::byte& byte : plane.tensor.mutable_bytes()) byte = std::byte(engine() & 0xFF);
    }
    encoded.format->Validate(encoded, "x");
    EXPECT_EQ(DecodeAll(encoded, encoded.dtype).size(),
              static_cast<size_t>(8 * 64 * BitsOf(encoded.dtype) / 8));
  }
}

}  // namespace
}  // namespace assay

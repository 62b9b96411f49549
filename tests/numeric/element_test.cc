#include "assay/numeric/element.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>

#include "tests/numeric/elements.h"
#include "tests/support/fixture.h"

namespace assay {
namespace {

using test::Codes;
using test::Fixture;
using test::IsNaN;
using test::kAllElements;
using test::kByteElements;

std::string EncodeFile(Element element) {
  return "elements/encode_" + std::string(NameOf(element)) + ".safetensors";
}

enum class NaNInputs { kCompare, kSkip };

/// Counts codes of `column` that differ from convert(x); reports the first few.
template <typename Convert>
void ExpectColumn(Element element, const std::string& column, const Convert& convert,
                  NaNInputs nan_inputs = NaNInputs::kCompare) {
  const Fixture fixture(EncodeFile(element));
  const std::vector<uint32_t> inputs = Codes(fixture.Get("x_bits"));
  const std::vector<uint32_t> expected = Codes(fixture.Get("codes." + column));
  ASSERT_EQ(inputs.size(), expected.size());
  ASSERT_GE(inputs.size(), 20000u);
  int mismatches = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (nan_inputs == NaNInputs::kSkip && IsNaN(inputs[i])) continue;
    const uint32_t found = convert(std::bit_cast<float>(inputs[i]));
    if (found == expected[i]) continue;
    if (++mismatches <= 5) {
      ADD_FAILURE() << NameOf(element) << " " << column << ": input " << std::hex << inputs[i]
                    << ": expected " << expected[i] << ", found " << found;
    }
  }
  EXPECT_EQ(mismatches, 0) << NameOf(element) << " " << column;
}

TEST(Element, EveryCodeDecodesAsTheTables) {
  const Fixture tables("elements/decode_tables.safetensors");
  for (const Element element : kAllElements) {
    const std::string name = std::string(NameOf(element)) + ".f32_bits";
    if (element == Element::kF32 || element == Element::kBF16) continue;
    const std::vector<uint32_t> expected = Codes(tables.Get(name));
    ASSERT_EQ(expected.size(), size_t{1} << BitsOf(element));
    for (uint32_t code = 0; code < expected.size(); ++code) {
      const auto found = std::bit_cast<uint32_t>(ToFloat(element, code));
      if (IsNaN(expected[code])) {
        EXPECT_TRUE(IsNaN(found)) << name << " " << code;
      } else {
        EXPECT_EQ(found, expected[code]) << name << " " << code;
      }
    }
  }
}

TEST(Element, TorchAndMlxTablesAgree) {
  const Fixture tables("elements/decode_tables.safetensors");
  for (const std::string& name : tables.Names()) {
    if (name.ends_with(".f32_bits")) continue;
    for (const Element element : kByteElements) {
      if (!name.starts_with(std::string(NameOf(element)) + ".")) continue;
      const std::vector<uint32_t> expected = Codes(tables.Get(name));
      for (uint32_t code = 0; code < expected.size(); ++code) {
        const auto found = std::bit_cast<uint32_t>(ToFloat(element, code));
        EXPECT_TRUE(found == expected[code] || (IsNaN(found) && IsNaN(expected[code])))
            << name << " " << code;
      }
    }
  }
}

TEST(Element, BF16IsTheUpperHalfOfF32) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = BF16ToFloat(static_cast<uint16_t>(code));
    ASSERT_EQ(std::bit_cast<uint32_t>(value), code << 16);
  }
}

TEST(Element, E8M0EndsAreASubnormalAndNaN) {
  EXPECT_EQ(E8M0ToFloat(0), std::ldexp(1.0f, -127));
  EXPECT_TRUE(std::isnan(E8M0ToFloat(0xFF)));
}

TEST(Element, NonSaturatingCodesAreThoseOfMlDtypes) {
  for (const Element element : kByteElements) {
    ExpectColumn(element, "ml_dtypes", [&](float x) { return FromFloat(element, x); });
  }
}

TEST(Element, SaturatingCodesAreClampThenCast) {
  for (const Element element : kByteElements) {
    ExpectColumn(element, "clamp", [&](float x) { return FromFloatSaturating(element, x); });
  }
}

TEST(Element, BF16IsThatOfGguf) {
  ExpectColumn(Element::kBF16, "gguf", [](float x) { return FloatToBF16(x); });
}

TEST(Element, F16IsThatOfF16C) {
  ExpectColumn(Element::kF16, "torch", [](float x) { return FloatToF16(x); });
}

TEST(Element, NamedUpstreamVariantsAreTheirColumns) {
  ExpectColumn(Element::kE8M0, "torch", [](float x) { return FloatToE8M0AsTorch(x); });
  ExpectColumn(Element::kE4M3, "mlx", [](float x) { return FloatToE4M3AsMlx(x); });
  ExpectColumn(Element::kE4M3, "torch", [](float x) { return FloatToE4M3Saturating(x); });
}

TEST(Element, OtherOraclesAgreeOnEverythingButNaN) {
  const auto agree = [](Element element, std::initializer_list<const char*> columns) {
    for (const char* column : columns) {
      ExpectColumn(
          element, column, [&](float x) { return FromFloat(element, x); }, NaNInputs::kSkip);
    }
  };
  agree(Element::kBF16, {"ml_dtypes", "mlx", "torch"});
  agree(Element::kF16, {"mlx", "numpy"});
  agree(Element::kE5M2, {"torch"});
  agree(Element::kE4M3Fnuz, {"torch"});
  agree(Element::kE5M2Fnuz, {"torch"});
  agree(Element::kE2M1, {"torchao"});
  agree(Element::kE2M3, {"torchao"});
  agree(Element::kE3M2, {"torchao"});
}

TEST(Element, EveryCodeOfAtMost16BitsSurvivesTheRoundTrip) {
  for (const Element element : kAllElements) {
    if (element == Element::kF32) continue;
    int mismatches = 0;
    for (uint32_t code = 0; code < 1u << BitsOf(element); ++code) {
      const float value = ToFloat(element, code);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(ToFloat(element, FromFloat(element, value)))) << NameOf(element);
        continue;
      }
      if (FromFloat(element, value) != code) ++mismatches;
      // Infinity saturates; every finite value is left alone.
      if (std::isfinite(value) && FromFloatSaturating(element, value) != code) ++mismatches;
    }
    EXPECT_EQ(mismatches, 0) << NameOf(element);
  }
}

TEST(Element, NaNKeepsSignAndUpperPayloadIn16Bits) {
  const auto nan = std::bit_cast<float>(0xFFA12345u);
  EXPECT_EQ(FloatToBF16(nan), 0xFFE1u);
  EXPECT_EQ(FloatToF16(nan), 0xFF09u);
  EXPECT_EQ(std::bit_cast<uint32_t>(F16ToFloat(0xFD09)), 0xFFE12000u);
}

TEST(Element, MaxIsTheLargestFiniteValue) {
  for (const Element element : kAllElements) {
    if (element == Element::kF32) continue;
    float largest = 0;
    for (uint32_t code = 0; code < 1u << BitsOf(element); ++code) {
      const float value = ToFloat(element, code);
      if (std::isfinite(value)) largest = std::max(largest, value);
    }
    EXPECT_EQ(MaxOf(element), largest) << NameOf(element);
  }
}

RC_GTEST_PROP(Element, TheChosenCodeIsANearestValue, (uint32_t bits)) {
  const auto x = std::bit_cast<float>((bits & 0xC7FFFFFFu) | 0x38000000u);
  RC_PRE(std::isfinite(x));
  for (const Element element : kByteElements) {
    if (element == Element::kE8M0) continue;
    const float found = ToFloat(element, FromFloatSaturating(element, x));
    const double error = std::abs(static_cast<double>(found) - static_cast<double>(x));
    for (uint32_t code = 0; code < 1u << BitsOf(element); ++code) {
      const float value = ToFloat(element, code);
      if (!std::isfinite(value)) continue;
      RC_ASSERT(error <= std::abs(static_cast<double>(value) - static_cast<double>(x)));
    }
  }
}

}  // namespace
}  // namespace assay

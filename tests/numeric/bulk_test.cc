#include "assay/numeric/bulk.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>

#include "assay/base/error.h"
#include "tests/numeric/elements.h"
#include "tests/support/every_target.h"

namespace assay {
namespace {

using test::HardValues;
using test::kAllElements;
using test::OnEveryTarget;

uint32_t CodeAt(const std::byte* bytes, int bits, size_t index) {
  uint32_t code = 0;
  for (size_t bit = 0; bit < static_cast<size_t>(bits); ++bit) {
    const size_t at = index * static_cast<size_t>(bits) + bit;
    const uint32_t value = static_cast<uint32_t>(bytes[at / 8] >> (at % 8)) & 1;
    code |= value << bit;
  }
  return code;
}

void ExpectWidens(Element element, std::span<const std::byte> codes, size_t num_values) {
  std::vector<float> out(num_values);
  Widen(element, codes, out);
  for (size_t i = 0; i < num_values; ++i) {
    const float expected = ToFloat(element, CodeAt(codes.data(), BitsOf(element), i));
    ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(expected))
        << NameOf(element) << " element " << i;
  }
}

TEST(Bulk, EveryCodeWidensAsTheScalarOnEveryTarget) {
  for (const Element element : kAllElements) {
    // Twice all codes in order, so that each meets several lanes, plus a tail.
    const int bits = BitsOf(element);
    const size_t num_codes = bits >= 16 ? 0x10000 : size_t{2} << bits;
    const size_t num_values = num_codes + 5;
    std::vector<std::byte> codes(NumBytesFor(bits, num_values) + 1);
    for (size_t i = 0; i < num_values; ++i) {
      const auto code = static_cast<uint64_t>(i) & ((uint64_t{1} << bits) - 1);
      const size_t at = i * static_cast<size_t>(bits);
      for (size_t bit = 0; bit < static_cast<size_t>(bits); ++bit) {
        // One byte off, so that 16-bit codes are never aligned.
        codes[1 + (at + bit) / 8] |= static_cast<std::byte>((code >> bit & 1) << (at + bit) % 8);
      }
    }
    OnEveryTarget([&] { ExpectWidens(element, std::span(codes).subspan(1), num_values); });
  }
}

TEST(Bulk, HardValuesRoundAsTheScalarOnEveryTarget) {
  for (const Element element : kAllElements) {
    const std::vector<float> values = HardValues(element);
    const int bits = BitsOf(element);
    OnEveryTarget([&] {
      for (const bool saturating : {false, true}) {
        std::vector<std::byte> codes(NumBytesFor(bits, values.size()) + 1);
        const auto out = std::span(codes).subspan(1);
        (saturating ? RoundSaturating : Round)(element, values, out);
        for (size_t i = 0; i < values.size(); ++i) {
          const uint32_t expected =
              saturating ? FromFloatSaturating(element, values[i]) : FromFloat(element, values[i]);
          ASSERT_EQ(CodeAt(out.data(), bits, i), expected)
              << NameOf(element) << (saturating ? " saturating" : "") << " of bits " << std::hex
              << std::bit_cast<uint32_t>(values[i]);
        }
      }
    });
  }
}

TEST(Bulk, EveryLengthTouchesOnlyItsBytes) {
  for (const Element element : kAllElements) {
    const int bits = BitsOf(element);
    OnEveryTarget([&] {
      for (size_t length = 0; length < 70; ++length) {
        std::vector<float> values(length);
        for (size_t i = 0; i < length; ++i) values[i] = static_cast<float>(i) / 8 - 3;
        const size_t num_bytes = NumBytesFor(bits, length);
        std::vector<std::byte> codes(num_bytes + 8, std::byte{0xA5});
        Round(element, values, codes);
        for (size_t i = num_bytes; i < codes.size(); ++i) ASSERT_EQ(codes[i], std::byte{0xA5});
        codes.resize(num_bytes);
        ExpectWidens(element, codes, length);
      }
    });
  }
}

TEST(Bulk, TooFewBytesAreAnError) {
  std::vector<std::byte> codes(5);
  std::vector<float> values(7);
  for (const Element element : {Element::kE3M2, Element::kE4M3, Element::kBF16}) {
    EXPECT_THROW(Widen(element, codes, values), Error);
    EXPECT_THROW(Round(element, values, codes), Error);
  }
}

RC_GTEST_PROP(Bulk, RandomBitsRoundAlikeOnEveryTarget, (const std::vector<uint32_t>& bits)) {
  std::vector<float> values(bits.size());
  if (!bits.empty()) std::memcpy(values.data(), bits.data(), bits.size() * sizeof(uint32_t));
  for (const Element element : kAllElements) {
    OnEveryTarget([&] {
      std::vector<std::byte> codes(NumBytesFor(BitsOf(element), values.size()));
      Round(element, values, codes);
      for (size_t i = 0; i < values.size(); ++i) {
        RC_ASSERT(CodeAt(codes.data(), BitsOf(element), i) == FromFloat(element, values[i]));
      }
    });
  }
}

}  // namespace
}  // namespace assay

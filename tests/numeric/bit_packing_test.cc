#include "assay/numeric/bit_packing.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "assay/base/error.h"

namespace assay {
namespace {

std::vector<std::byte> PackBitByBit(int bits, const std::vector<uint8_t>& codes) {
  const auto width = static_cast<size_t>(bits);
  std::vector<std::byte> bytes(NumBytesFor(bits, codes.size()));
  for (size_t i = 0; i < codes.size() * width; ++i) {
    const int bit = codes[i / width] >> (i % width) & 1;
    bytes[i / 8] |= static_cast<std::byte>(bit << i % 8);
  }
  return bytes;
}

TEST(BitPacking, ThreeBitCodesRunFromTheLeastSignificantBit) {
  const std::vector<uint8_t> codes = {5, 6, 7};
  std::vector<std::byte> bytes(2);
  PackBits(3, codes, bytes);
  EXPECT_EQ(bytes[0], std::byte{0b11'110'101});
  EXPECT_EQ(bytes[1], std::byte{0b1});
}

RC_GTEST_PROP(BitPacking, PacksAsBitByBitAndUnpacksFromAnyCode, (std::vector<uint8_t> codes)) {
  const int bits = *rc::gen::inRange(1, 9);
  const std::vector<std::byte> expected = PackBitByBit(bits, codes);
  std::vector<std::byte> bytes(expected.size() + 3, std::byte{0x5A});
  PackBits(bits, codes, bytes);
  for (size_t i = 0; i < expected.size(); ++i) RC_ASSERT(bytes[i] == expected[i]);
  for (size_t i = expected.size(); i < bytes.size(); ++i) RC_ASSERT(bytes[i] == std::byte{0x5A});

  const size_t first = *rc::gen::inRange<size_t>(0, codes.size() + 1);
  const size_t count = *rc::gen::inRange<size_t>(0, codes.size() - first + 1);
  std::vector<uint8_t> found(count);
  UnpackBits(bits, expected, first, found);
  for (size_t i = 0; i < count; ++i) {
    RC_ASSERT(found[i] == (codes[first + i] & ((1u << bits) - 1)));
  }
}

TEST(BitPacking, LongStreamsOfEveryWidthRoundTrip) {
  for (int bits = 1; bits <= 8; ++bits) {
    std::vector<uint8_t> codes(1003);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 89 + i / 7);
    std::vector<std::byte> bytes(NumBytesFor(bits, codes.size()));
    PackBits(bits, codes, bytes);
    EXPECT_EQ(bytes, PackBitByBit(bits, codes));
    std::vector<uint8_t> found(codes.size());
    UnpackBits(bits, bytes, 0, found);
    for (size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(found[i], codes[i] & ((1u << bits) - 1));
  }
}

TEST(BitPacking, WidthsAndLengthsAreChecked) {
  std::vector<uint8_t> codes(8);
  std::vector<std::byte> bytes(3);
  EXPECT_THROW(PackBits(0, codes, bytes), Error);
  EXPECT_THROW(PackBits(9, codes, bytes), Error);
  EXPECT_THROW(PackBits(4, codes, bytes), Error);
  EXPECT_THROW(UnpackBits(3, bytes, 1, codes), Error);
  EXPECT_THROW(UnpackBits(3, bytes, 9, {}), Error);
  EXPECT_NO_THROW(UnpackBits(3, bytes, 0, codes));
}

}  // namespace
}  // namespace assay

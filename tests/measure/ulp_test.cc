#include "assay/measure/ulp.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "assay/base/error.h"

namespace assay {
namespace {

template <typename T>
std::vector<int64_t> Places(DType dtype, const std::vector<T>& codes) {
  std::vector<int64_t> out(codes.size());
  UlpOrder(dtype, std::as_bytes(std::span(codes)), 0, out);
  return out;
}

TEST(Ulp, BothZerosShareOnePlaceAndNeighboursTouchIt) {
  EXPECT_EQ(Places<uint16_t>(DType::kBF16, {0x8001, 0x8000, 0x0000, 0x0001}),
            (std::vector<int64_t>{-1, 0, 0, 1}));
}

TEST(Ulp, InfinityIsOneBeyondTheLargestFinite) {
  const auto bf16 = Places<uint16_t>(DType::kBF16, {0x7F7F, 0x7F80, 0x7F81});
  EXPECT_EQ(bf16[1] - bf16[0], 1);
  EXPECT_EQ(bf16[2], kUnordered);
  const auto f32 = Places<uint32_t>(DType::kF32, {0xFF7FFFFF, 0xFF800000, 0xFFC00000});
  EXPECT_EQ(f32[0] - f32[1], 1);
  EXPECT_EQ(f32[2], kUnordered);
}

TEST(Ulp, EveryCodeOfAnEightBitTypeIsOrderedByValueOrIsNan) {
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  const auto nans = [&](DType dtype) {
    int count = 0;
    for (const int64_t place : Places(dtype, codes)) count += place == kUnordered ? 1 : 0;
    return count;
  };
  EXPECT_EQ(nans(DType::kF8E4M3), 2);
  EXPECT_EQ(nans(DType::kF8E5M2), 6);
  EXPECT_EQ(nans(DType::kF8E4M3Fnuz), 1);
  EXPECT_EQ(nans(DType::kF8E5M2Fnuz), 1);
  EXPECT_EQ(nans(DType::kF8E8M0), 1);
  EXPECT_EQ(nans(DType::kU8), 0);
}

TEST(Ulp, PackedTypesAreReadLeastSignificantBitsFirst) {
  std::vector<int64_t> out(4);
  const std::vector<uint8_t> nibbles = {0x91, 0x7F};
  UlpOrder(DType::kF4, std::as_bytes(std::span(nibbles)), 0, out);
  EXPECT_EQ(out, (std::vector<int64_t>{1, -1, -7, 7}));
  // Codes 1, 33 (−1), 31, 63 (−31) in three bytes.
  const uint32_t packed = 1u | 33u << 6 | 31u << 12 | 63u << 18;
  std::vector<uint8_t> sixes(3);
  std::memcpy(sixes.data(), &packed, 3);
  UlpOrder(DType::kF6E2M3, std::as_bytes(std::span(sixes)), 0, out);
  EXPECT_EQ(out, (std::vector<int64_t>{1, -1, 31, -31}));
}

TEST(Ulp, IntegersStandAtTheirValue) {
  EXPECT_EQ(Places<int8_t>(DType::kI8, {-128, 127}), (std::vector<int64_t>{-128, 127}));
  const auto u64 = Places<uint64_t>(DType::kU64, {1, ~uint64_t{0}});
  EXPECT_EQ(UlpDistance(u64[0], u64[1]), ~uint64_t{0} - 1);
}

TEST(Ulp, ReadingBeyondTheBytesIsRefused) {
  std::vector<int64_t> out(3);
  const std::vector<uint8_t> bytes(4);
  EXPECT_THROW(UlpOrder(DType::kBF16, std::as_bytes(std::span(bytes)), 0, out), Error);
  EXPECT_THROW(UlpOrder(DType::kC64, {}, 0, {}), Error);
}

TEST(UlpHistogram, BucketsDoubleAndNanPairsAreEqual) {
  const std::vector<int64_t> a = {0, 0, 0, 0, 0, 0, kUnordered, kUnordered};
  const std::vector<int64_t> b = {0, -1, 2, 3, -4, 5, kUnordered, 7};
  UlpHistogram histogram;
  histogram.Add(a, b);
  EXPECT_EQ(histogram.counts()[0], 2);
  EXPECT_EQ(histogram.counts()[1], 1);
  EXPECT_EQ(histogram.counts()[2], 1);
  EXPECT_EQ(histogram.counts()[3], 2);
  EXPECT_EQ(histogram.counts()[4], 1);
  EXPECT_EQ(histogram.num_unordered(), 1);
  EXPECT_EQ(histogram.max_ulp(), 5u);
}

TEST(UlpHistogram, BucketBoundsLeaveNoGap) {
  for (size_t bucket = 1; bucket < UlpHistogram::kNumBuckets; ++bucket) {
    EXPECT_EQ(UlpHistogram::FirstOf(bucket), UlpHistogram::LastOf(bucket - 1) + 1) << bucket;
  }
  UlpHistogram histogram;
  const std::vector<int64_t> lowest = {kUnordered + 1};
  const std::vector<int64_t> highest = {std::numeric_limits<int64_t>::max()};
  histogram.Add(lowest, highest);
  EXPECT_EQ(histogram.counts()[UlpHistogram::kNumBuckets - 1], 1);
}

}  // namespace
}  // namespace assay

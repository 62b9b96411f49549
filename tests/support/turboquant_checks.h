#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "assay/formats/format.h"
#include "tests/support/bits.h"
#include "tests/support/fixture.h"
#include "tests/support/memory_checkpoint.h"

/// What the tests of TurboQuant's codec and of its checkpoints share.
namespace assay::test {

inline MatrixView MatrixOf(const Tensor& tensor) {
  return MatrixView(tensor.view(), tensor.shape()[0], tensor.shape()[1]);
}

inline std::vector<Plane> GivenSigns(Tensor signs) { return {{"signs", std::move(signs)}}; }

inline std::vector<float> DecodeFloats(const EncodedMatrix& encoded, DecodeRounding rounding) {
  std::vector<float> out(static_cast<size_t>(encoded.rows * encoded.cols));
  encoded.format->DecodeRows(encoded, 0, encoded.rows, out, rounding);
  return out;
}

inline std::vector<std::byte> DecodeWords(const EncodedMatrix& encoded) {
  std::vector<std::byte> out(static_cast<size_t>(2 * encoded.rows * encoded.cols));
  encoded.format->DecodeRowsTo(encoded, 0, encoded.rows, DType::kBF16, out);
  return out;
}

inline void ExpectSameBits(std::span<const float> actual, const Tensor& expected) {
  ASSERT_EQ(actual.size_bytes(), expected.bytes().size());
  EXPECT_EQ(std::memcmp(actual.data(), expected.bytes().data(), actual.size_bytes()), 0);
}

/// A checkpoint of one weight "a" whose planes are the fixture's `prefix`.tq_….
inline MemoryCheckpoint CheckpointOf(const Fixture& fixture, const std::string& prefix,
                                     nlohmann::json config) {
  MemoryCheckpoint checkpoint;
  for (const char* plane : {"tq_packed", "tq_scales", "tq_signs"}) {
    checkpoint.Add(fmt::format("a.{}", plane), fixture.Get(fmt::format("{}.{}", prefix, plane)));
  }
  checkpoint.AddConfig("turboquant_config.json", std::move(config));
  return checkpoint;
}

}  // namespace assay::test

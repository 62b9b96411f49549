#pragma once

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "assay/formats/packed12.h"
#include "assay/formats/packed12_codec.h"
#include "tests/support/bits.h"
#include "tests/support/fixture.h"

/// What the tests of packed12's codec and of its checkpoints share.
namespace assay::test {

inline const Packed12Format kPacked12;

inline std::vector<std::byte> DecodeWordsOf(const EncodedMatrix& encoded) {
  std::vector<std::byte> words(static_cast<size_t>(2 * encoded.rows * encoded.cols));
  kPacked12.DecodeRowsTo(encoded, 0, encoded.rows, DType::kBF16, words);
  return words;
}

inline Tensor TensorOfWords(std::span<const uint16_t> words, Shape shape) {
  Tensor tensor = Tensor::Allocate(DType::kBF16, std::move(shape));
  std::ranges::copy(std::as_bytes(words), tensor.mutable_bytes().begin());
  return tensor;
}

inline nlohmann::json Packed12Cases() {
  return nlohmann::json::parse(ReadTestData("packed12/CASES.json"));
}

/// Long enough for several chunks and every vector width, with escapes at both chunk ends.
inline Tensor LongMatrix(int64_t num_values) {
  std::vector<uint16_t> words(static_cast<size_t>(num_values));
  uint32_t state = 1;
  for (uint16_t& word : words) {
    state = state * 1664525u + 1013904223u;
    const uint32_t exponent = (state >> 10) % 300 == 0 ? state >> 24 : 110 + (state >> 20) % 14;
    word = static_cast<uint16_t>((state & 0x807F) | exponent << 7);
  }
  const auto chunk = static_cast<size_t>(packed12::kChunkValues);
  for (const size_t at : {size_t{0}, chunk - 1, chunk, 2 * chunk - 1, words.size() - 1}) {
    if (at < words.size()) words[at] = 0x7F80;
  }
  return TensorOfWords(words, {num_values});
}

}  // namespace assay::test

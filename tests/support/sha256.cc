#include "tests/support/sha256.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace assay::test {
namespace {

// The first 32 bits of the fraction of `root`.
uint32_t FractionBits(long double root) {
  return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
}

struct Constants {
  std::array<uint32_t, 8> state{};
  std::array<uint32_t, 64> round{};

  Constants() {
    size_t found = 0;
    for (int candidate = 2; found < round.size(); ++candidate) {
      bool prime = true;
      for (int divisor = 2; divisor * divisor <= candidate; ++divisor) {
        prime = prime && candidate % divisor != 0;
      }
      if (!prime) continue;
      const auto value = static_cast<long double>(candidate);
      if (found < state.size()) state[found] = FractionBits(std::sqrt(value));
      round[found++] = FractionBits(std::cbrt(value));
    }
  }
};

void AddBlock(const Constants& constants, std::span<const uint8_t> block,
              std::array<uint32_t, 8>& state) {
  std::array<uint32_t, 64> words{};
  for (size_t i = 0; i < 16; ++i) {
    for (size_t k = 0; k < 4; ++k) words[i] = words[i] << 8 | block[4 * i + k];
  }
  for (size_t i = 16; i < words.size(); ++i) {
    const uint32_t a = words[i - 15];
    const uint32_t b = words[i - 2];
    words[i] = words[i - 16] + words[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  std::array<uint32_t, 8> v = state;
  for (size_t i = 0; i < words.size(); ++i) {
    const uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
    const uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
    const uint32_t first = v[7] + (std::rotr(v[4], 6) ^ std::rotr(v[4], 11) ^ std::rotr(v[4], 25)) +
                           choice + constants.round[i] + words[i];
    const uint32_t second =
        (std::rotr(v[0], 2) ^ std::rotr(v[0], 13) ^ std::rotr(v[0], 22)) + majority;
    v = {first + second, v[0], v[1], v[2], v[3] + first, v[4], v[5], v[6]};
  }
  for (size_t i = 0; i < state.size(); ++i) state[i] += v[i];
}

}  // namespace

std::string Sha256(std::span<const std::byte> bytes) {
  static const Constants constants;
  std::vector<uint8_t> padded;
  for (const std::byte byte : bytes) padded.push_back(std::to_integer<uint8_t>(byte));
  padded.push_back(0x80);
  while (padded.size() % 64 != 56) padded.push_back(0);
  for (int shift = 56; shift >= 0; shift -= 8) {
    padded.push_back(static_cast<uint8_t>(uint64_t{bytes.size()} * 8 >> shift));
  }
  std::array<uint32_t, 8> state = constants.state;
  for (size_t first = 0; first < padded.size(); first += 64) {
    AddBlock(constants, std::span(padded).subspan(first, 64), state);
  }
  std::string text;
  for (const uint32_t word : state) text += fmt::format("{:08x}", word);
  return text;
}

}  // namespace assay::test

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace assay::packed12 {

/// How often each biased exponent occurs.
using ExponentCounts = std::array<uint64_t, 256>;

/// Words per chunk of a parallel pass. Even, so that a chunk starts on a whole byte of codes.
inline constexpr int64_t kChunkValues = int64_t{1} << 16;

/// Counts the exponents of bf16 words (2 bytes each, any alignment) on all threads.
ExponentCounts CountExponents(std::span<const std::byte> words);

/// The lowest base in 1…241 whose 15 exponents occur most often.
int ChooseBase(const ExponentCounts& counts) noexcept;

/// Words that have no code under `base`.
int64_t CountEscapes(const ExponentCounts& counts, int base) noexcept;

/// What stands beside the planes of one value each.
struct Escaped {
  int base = 1;
  std::vector<std::byte> indices;  ///< u32 each
  std::vector<std::byte> values;   ///< bf16 each
};

/// Writes the planes of `words` under ChooseBase's base, on all threads: `sm` a byte and `ex` half
/// a byte for each. The words are read from memory once, unless a sample of them misleads.
///
/// Requires spans of exactly the right sizes.
/// Accuracy: exact, the same bytes on every instruction set and thread count.
Escaped EncodeWords(std::span<const std::byte> words, std::span<std::byte> sm,
                    std::span<std::byte> ex);

/// The planes of one matrix that passed validation.
struct InputPlanes {
  int base = 1;
  std::span<const std::byte> sm;
  std::span<const std::byte> ex;
  std::span<const std::byte> escape_indices;
  std::span<const std::byte> escape_values;
};

/// Words [first, first + count), 2 bytes each, on all threads.
/// Requires the range within the planes and out of the right size.
void DecodeWords(const InputPlanes& planes, int64_t first, int64_t count, std::span<std::byte> out);

/// The same widened to f32.
void DecodeFloats(const InputPlanes& planes, int64_t first, int64_t count, std::span<float> out);

}  // namespace assay::packed12

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

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

/// Where the planes of one matrix are to be written. Spans as Packed12Format lays them out.
struct OutputPlanes {
  std::span<std::byte> sm;
  std::span<std::byte> ex;
  std::span<std::byte> escape_indices;
  std::span<std::byte> escape_values;
};

/// Writes the planes of `words` under `base`, on all threads.
/// Requires spans of exactly the right sizes. Errors: internal.
/// Accuracy: exact, the same bytes on every instruction set and thread count.
void EncodeWords(std::span<const std::byte> words, int base, const OutputPlanes& out);

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

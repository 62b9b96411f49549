#include "assay/formats/packed12_codec.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <vector>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/formats/packed12_chunks.h"

namespace assay::packed12 {
namespace {

const uint8_t* Bytes(std::span<const std::byte> bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}
uint8_t* Bytes(std::span<std::byte> bytes) { return reinterpret_cast<uint8_t*>(bytes.data()); }

// The base that one word in 16 would choose.
// Why so many: two bases differ by their rarest exponents.
int GuessBase(std::span<const std::byte> words) {
  constexpr size_t kBlockBytes = 512;
  constexpr size_t kStride = 16 * kBlockBytes;
  ExponentCounts counts{};
  for (size_t block = 0; block < words.size(); block += kStride) {
    for (size_t at = block; at + 2 <= std::min(words.size(), block + kBlockBytes); at += 2) {
      uint16_t word;
      std::memcpy(&word, words.data() + at, sizeof(word));
      ++counts[(word >> 7) & 0xFF];
    }
  }
  return ChooseBase(counts);
}

uint32_t IndexAt(std::span<const std::byte> indices, size_t k) {
  uint32_t index;
  std::memcpy(&index, indices.data() + 4 * k, sizeof(index));
  return index;
}

// First escape whose index is not below `position`.
size_t FirstEscapeFrom(std::span<const std::byte> indices, uint64_t position) {
  size_t low = 0;
  size_t high = indices.size() / 4;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (IndexAt(indices, middle) < position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// exponents[c] is what code c means.
std::array<uint8_t, 16> ExponentTable(int base) {
  std::array<uint8_t, 16> exponents{};
  for (size_t code = 1; code < exponents.size(); ++code) {
    exponents[code] = static_cast<uint8_t>(static_cast<size_t>(base) + code - 1);
  }
  return exponents;
}

// The exponents of words whose codes were just written, while those are in the cache.
ExponentCounts CountCodes(const uint8_t* codes, size_t num_values, int base,
                          std::span<const std::byte> escape_values) {
  // Pairs of codes, which halves the updates, in two tables that take turns, so that equal
  // neighbours do not wait for each other's store.
  std::array<uint32_t, 512> pairs{};
  const size_t num_bytes = CeilDiv(num_values, size_t{2});
  size_t i = 0;
  for (; i + 8 <= num_bytes; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, codes + i, sizeof(eight));
    for (int k = 0; k < 8; k += 2) {
      ++pairs[eight & 0xFF];
      ++pairs[256 + ((eight >> 8) & 0xFF)];
      eight >>= 16;
    }
  }
  for (; i < num_bytes; ++i) ++pairs[codes[i]];
  const std::array<uint8_t, 16> exponents = ExponentTable(base);
  ExponentCounts counts{};
  for (size_t pair = 0; pair < 256; ++pair) {
    const uint64_t count = uint64_t{pairs[pair]} + pairs[256 + pair];
    counts[exponents[pair & 0xF]] += count;
    counts[exponents[pair >> 4]] += count;
  }
  // Code 0, of exponent 0, also fills the last byte and stands for escapes.
  counts[0] -= 2 * num_bytes - num_values + escape_values.size() / 2;
  for (size_t k = 0; k < escape_values.size(); k += 2) {
    uint16_t word;
    std::memcpy(&word, escape_values.data() + k, sizeof(word));
    ++counts[(word >> 7) & 0xFF];
  }
  return counts;
}

// Encodes words [first, last), a chunk, and counts their exponents. `chunk` takes the escapes.
ExponentCounts EncodeAndCount(std::span<const std::byte> words, int64_t first, int64_t last,
                              int base, uint8_t* sm, uint8_t* ex, Escaped& chunk) {
  thread_local std::vector<std::byte> indices;
  thread_local std::vector<std::byte> values;
  indices.resize(4 * kChunkValues);
  values.resize(2 * kChunkValues);
  const auto num_values = static_cast<size_t>(last - first);
  const size_t count =
      EncodeChunk(words.data() + 2 * first, num_values, base, static_cast<uint32_t>(first), sm, ex,
                  indices.data(), values.data());
  chunk.indices.assign(indices.data(), indices.data() + 4 * count);
  chunk.values.assign(values.data(), values.data() + 2 * count);
  return CountCodes(ex, num_values, base, chunk.values);
}

void Add(const ExponentCounts& part, ExponentCounts& total) {
  for (size_t e = 0; e < total.size(); ++e) total[e] += part[e];
}

// decode(chunk's planes, its place in out) for each chunk, then patch(word, place) per escape.
template <class Decode, class Patch>
void ForEachChunk(const InputPlanes& planes, int64_t first, int64_t count, const Decode& decode,
                  const Patch& patch) {
  ParallelFor(0, count, kChunkValues, [&](int64_t begin, int64_t end) {
    const auto at = static_cast<size_t>(first + begin);
    decode(Bytes(planes.sm) + at, Bytes(planes.ex) + at / 2, at % 2 != 0,
           static_cast<size_t>(end - begin), static_cast<size_t>(begin));
    const size_t num_escapes = planes.escape_indices.size() / 4;
    const auto past = static_cast<uint64_t>(first + end);
    for (size_t k = FirstEscapeFrom(planes.escape_indices, at); k < num_escapes; ++k) {
      const uint64_t index = IndexAt(planes.escape_indices, k);
      if (index >= past) break;
      uint16_t word;
      std::memcpy(&word, planes.escape_values.data() + 2 * k, sizeof(word));
      patch(word, static_cast<size_t>(index - static_cast<uint64_t>(first)));
    }
  });
}

}  // namespace

ExponentCounts CountExponents(std::span<const std::byte> words) {
  const int guess = GuessBase(words);
  ExponentCounts total{};
  std::mutex mutex;
  ParallelFor(0, static_cast<int64_t>(words.size() / 2), kChunkValues,
              [&](int64_t first, int64_t last) {
                thread_local std::vector<uint8_t> sm;
                thread_local std::vector<uint8_t> ex;
                sm.resize(kChunkValues);
                ex.resize(kChunkValues / 2);
                Escaped unused;
                const ExponentCounts here =
                    EncodeAndCount(words, first, last, guess, sm.data(), ex.data(), unused);
                const std::lock_guard lock(mutex);
                Add(here, total);
              });
  return total;
}

int ChooseBase(const ExponentCounts& counts) noexcept {
  uint64_t inside = 0;
  for (size_t e = 1; e <= 15; ++e) inside += counts[e];
  uint64_t most = inside;
  int base = 1;
  for (size_t b = 2; b <= 241; ++b) {
    inside += counts[b + 14] - counts[b - 1];
    if (inside > most) {
      most = inside;
      base = static_cast<int>(b);
    }
  }
  return base;
}

int64_t CountEscapes(const ExponentCounts& counts, int base) noexcept {
  uint64_t escapes = 0;
  for (size_t e = 1; e < counts.size(); ++e) {
    const int code = static_cast<int>(e) - base + 1;
    if (code < 1 || code > 15) escapes += counts[e];
  }
  return static_cast<int64_t>(escapes);
}

Escaped EncodeWords(std::span<const std::byte> words, std::span<std::byte> sm,
                    std::span<std::byte> ex) {
  const auto num_values = static_cast<int64_t>(words.size() / 2);
  // Where each chunk's escapes go depends on those before it: encode every chunk with its escapes
  // in a list of its own, then join. Escapes are few; the lists cost nothing beside the planes.
  std::vector<Escaped> chunks(static_cast<size_t>(CeilDiv(num_values, kChunkValues)));
  Escaped all;
  all.base = GuessBase(words);
  for (;;) {
    ExponentCounts counts{};
    std::mutex mutex;
    ParallelFor(0, num_values, kChunkValues, [&](int64_t first, int64_t last) {
      Escaped& chunk = chunks[static_cast<size_t>(first / kChunkValues)];
      const ExponentCounts here = EncodeAndCount(words, first, last, all.base, Bytes(sm) + first,
                                                 Bytes(ex) + first / 2, chunk);
      const std::lock_guard lock(mutex);
      Add(here, counts);
    });
    const int best = ChooseBase(counts);
    if (best == all.base) break;
    all.base = best;
  }
  for (const Escaped& chunk : chunks) {
    all.indices.insert(all.indices.end(), chunk.indices.begin(), chunk.indices.end());
    all.values.insert(all.values.end(), chunk.values.begin(), chunk.values.end());
  }
  return all;
}

void DecodeWords(const InputPlanes& planes, int64_t first, int64_t count,
                 std::span<std::byte> out) {
  const auto exponents = ExponentTable(planes.base);
  ForEachChunk(
      planes, first, count,
      [&](const uint8_t* sm, const uint8_t* ex, bool high, size_t num_values, size_t at) {
        DecodeChunk(sm, ex, high, num_values, exponents.data(), out.data() + 2 * at);
      },
      [&](uint16_t word, size_t at) { std::memcpy(out.data() + 2 * at, &word, sizeof(word)); });
}

void DecodeFloats(const InputPlanes& planes, int64_t first, int64_t count, std::span<float> out) {
  const auto exponents = ExponentTable(planes.base);
  ForEachChunk(
      planes, first, count,
      [&](const uint8_t* sm, const uint8_t* ex, bool high, size_t num_values, size_t at) {
        DecodeChunk(sm, ex, high, num_values, exponents.data(), out.data() + at);
      },
      [&](uint16_t word, size_t at) {
        out[at] = std::bit_cast<float>(static_cast<uint32_t>(word) << 16);
      });
}

}  // namespace assay::packed12

#include "assay/measure/read_probe.h"

#include <atomic>
#include <cstring>

#include "assay/base/parallel.h"

namespace assay {
namespace {

// Many independent lanes: the compiler turns them into whole vectors, and no sum waits for the
// last one.
inline __attribute__((always_inline)) uint64_t SumInLanes(const uint64_t* words, int64_t count) {
  constexpr int64_t kLanes = 64;
  uint64_t sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += words[i + lane];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  for (; i < count; ++i) total += words[i];
  return total;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) uint64_t SumAvx512(const uint64_t* words, int64_t count) {
  return SumInLanes(words, count);
}
__attribute__((target("avx2"))) uint64_t SumAvx2(const uint64_t* words, int64_t count) {
  return SumInLanes(words, count);
}
#endif

// A result that is used, so that no read is optimised away.
std::atomic<uint64_t> total_read{0};

}  // namespace

uint64_t SumOfWords(const uint64_t* words, int64_t count) noexcept {
#if defined(__x86_64__)
  // The roof is the CPU's, whichever target the kernels were forced to.
  if (__builtin_cpu_supports("avx512f")) return SumAvx512(words, count);
  if (__builtin_cpu_supports("avx2")) return SumAvx2(words, count);
#endif
  return SumInLanes(words, count);
}

ReadProbe::ReadProbe(int64_t piece_bytes, int64_t num_pieces)
    : piece_bytes_(piece_bytes),
      num_pieces_(num_pieces),
      words_(static_cast<size_t>(piece_bytes * num_pieces) / sizeof(uint64_t)) {
  // Each thread writes what it reads first, and no two pages hold the same words.
  constexpr int64_t kPage = 512;
  const auto count = static_cast<int64_t>(words_.size());
  ParallelFor(0, count, kPage * 512, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      words_.data()[i] = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u;
    }
  });
}

void ReadProbe::ReadWords(int64_t first, int64_t count) {
  constexpr int64_t kChunk = int64_t{1} << 18;  // 2 MiB
  const int64_t grain = NumThreads() == 1 ? count : kChunk;
  ParallelFor(first, first + count, grain, [&](int64_t begin, int64_t end) {
    total_read.fetch_add(SumOfWords(words_.data() + begin, end - begin), std::memory_order_relaxed);
  });
}

void ReadProbe::Read(int64_t piece) {
  const int64_t words = piece_bytes_ / static_cast<int64_t>(sizeof(uint64_t));
  ReadWords(piece % num_pieces_ * words, words);
}

void ReadProbe::ReadAll() { ReadWords(0, static_cast<int64_t>(words_.size())); }

}  // namespace assay

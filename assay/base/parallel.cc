#include "assay/base/parallel.h"

#include <atomic>
#include <exception>
#include <limits>
#include <mutex>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "assay/base/checked.h"
#include "assay/base/error.h"

namespace assay {
namespace {

int DefaultThreads() noexcept {
#ifdef _OPENMP
  return omp_get_num_procs();
#else
  return 1;
#endif
}

std::atomic<int>& Threads() noexcept {
  static std::atomic<int> threads{DefaultThreads()};
  return threads;
}

}  // namespace

int NumThreads() noexcept { return Threads().load(std::memory_order_relaxed); }

void SetNumThreads(int num_threads) {
  if (num_threads < 1) ThrowUsage("threads: expected at least 1, found {}", num_threads);
  Threads().store(num_threads, std::memory_order_relaxed);
}

void ParallelFor(int64_t begin, int64_t end, int64_t grain,
                 const std::function<void(int64_t, int64_t)>& body) {
  if (begin >= end) return;
  if (grain < 1) ThrowInternal("ParallelFor: grain {} is not positive", grain);
  const int64_t num_chunks = CeilDiv(end - begin, grain);
  std::exception_ptr failure;
  int64_t failed_chunk = std::numeric_limits<int64_t>::max();
  std::mutex mutex;
  const auto run = [&](int64_t chunk) {
    try {
      const int64_t first = begin + chunk * grain;
      body(first, end - first < grain ? end : first + grain);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (chunk < failed_chunk) {
        failed_chunk = chunk;
        failure = std::current_exception();
      }
    }
  };
  const int threads = NumThreads();
  if (num_chunks == 1 || threads == 1) {
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) run(chunk);
  } else {
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
#endif
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) run(chunk);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace assay

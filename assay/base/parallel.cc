#include "assay/base/parallel.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <vector>

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

double Seconds(clockid_t clock) noexcept {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::atomic<WorkerWatch::State*> active_watch{nullptr};

}  // namespace

struct WorkerWatch::State {
  /// The two clocks of the calling thread.
  struct ThreadTime {
    double wall = Seconds(CLOCK_MONOTONIC);
    double cpu = Seconds(CLOCK_THREAD_CPUTIME_ID);
  };
  /// On a cache line of its own: each worker writes one.
  struct alignas(64) Worker {
    double lost = 0;
  };

  ThreadTime begin;
  std::vector<Worker> workers;
  ThreadTime in_loops{0, 0};  ///< of the calling thread, loops and the wait at their end
};

int64_t RowsPerChunk(int64_t cols, int64_t num_values) noexcept {
  return std::max<int64_t>(1, num_values / std::max<int64_t>(1, cols));
}

WorkerWatch::WorkerWatch() : state_(std::make_unique<State>()) {
  state_->workers.resize(static_cast<size_t>(NumThreads()));
  State* none = nullptr;
  if (!active_watch.compare_exchange_strong(none, state_.get())) {
    ThrowInternal("a WorkerWatch exists already");
  }
}

WorkerWatch::~WorkerWatch() { active_watch.store(nullptr); }

double WorkerWatch::LostSeconds() const {
  const State::ThreadTime now;
  double most = 0;
  for (const State::Worker& worker : state_->workers) most = std::max(most, worker.lost);
  const double wall = now.wall - state_->begin.wall - state_->in_loops.wall;
  const double cpu = now.cpu - state_->begin.cpu - state_->in_loops.cpu;
  return most + std::max(0.0, wall - cpu);
}

namespace {

#ifdef _OPENMP
/// The loop of ParallelFor, with the clocks of every worker read around its share.
template <typename Run>
void WatchedLoop(WorkerWatch::State& watch, int64_t num_chunks, int threads, const Run& run) {
  const WorkerWatch::State::ThreadTime begin;
#pragma omp parallel num_threads(threads)
  {
    const WorkerWatch::State::ThreadTime start;
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) run(chunk);
    const WorkerWatch::State::ThreadTime end;
    const auto worker = static_cast<size_t>(omp_get_thread_num());
    if (worker < watch.workers.size()) {
      watch.workers[worker].lost += end.wall - begin.wall - (end.cpu - start.cpu);
    }
  }
  const WorkerWatch::State::ThreadTime end;
  watch.in_loops.wall += end.wall - begin.wall;
  watch.in_loops.cpu += end.cpu - begin.cpu;
}
#endif

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
    WorkerWatch::State* const watch = active_watch.load(std::memory_order_acquire);
    // A loop inside a loop runs on its worker alone, whose clocks the outer one reads.
    if (watch != nullptr && omp_in_parallel() == 0) {
      WatchedLoop(*watch, num_chunks, threads, run);
      if (failure) std::rethrow_exception(failure);
      return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
#endif
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) run(chunk);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace assay

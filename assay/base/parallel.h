#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace assay {

/// Threads that ParallelFor uses. Default: the CPUs this process may run on.
int NumThreads() noexcept;

/// Requires num_threads ≥ 1. Errors: usage.
void SetNumThreads(int num_threads);

/// Calls body(first, last) for consecutive chunks of [begin, end), each at most `grain` long and
/// cut at multiples of `grain` from `begin`: the chunks are the same for every thread count, so a
/// result that is reduced chunk by chunk in index order is too.
/// Errors: the first exception (in chunk order among those that were thrown) is rethrown here.
void ParallelFor(int64_t begin, int64_t end, int64_t grain,
                 const std::function<void(int64_t first, int64_t last)>& body);

/// A grain for rows of `cols` values: as many as hold about num_values, at least one.
int64_t RowsPerChunk(int64_t cols, int64_t num_values) noexcept;

/// Tells how long threads that had work were kept from a CPU: wall time minus CPU time of each
/// worker of ParallelFor inside its loops (a late start included), and of the calling thread
/// between them. Covers what the calling thread runs while this lives.
/// Why: on a shared machine a sample of which one worker was preempted measures the neighbours.
/// Values: waiting for a disk or a lock counts as well, waiting for other workers does not.
/// Threads: one at a time in a process, used by the thread that made it.
class WorkerWatch {
 public:
  struct State;

  /// Errors: internal when there is one already.
  WorkerWatch();
  ~WorkerWatch();
  WorkerWatch(const WorkerWatch&) = delete;
  WorkerWatch& operator=(const WorkerWatch&) = delete;

  /// Of the worker that lost most, plus what the calling thread lost between loops, until now.
  double LostSeconds() const;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace assay

#pragma once

#include <cstdint>
#include <functional>

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

}  // namespace assay

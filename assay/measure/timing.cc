#include "assay/measure/timing.h"

#include <time.h>

#include <algorithm>
#include <cmath>

#include "assay/base/parallel.h"

namespace assay {

int64_t TimingSamples::num_preempted() const noexcept {
  return std::count_if(samples_.begin(), samples_.end(),
                       [](const TimingSample& sample) { return sample.preempted; });
}

std::vector<double> TimingSamples::Sorted() const {
  const bool all = num_preempted() == static_cast<int64_t>(samples_.size());
  std::vector<double> sorted;
  for (const TimingSample& sample : samples_) {
    if (all || !sample.preempted) sorted.push_back(sample.ms);
  }
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

double TimingSamples::Quantile(double fraction) const {
  const std::vector<double> sorted = Sorted();
  if (sorted.empty()) return 0;
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(position));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - std::floor(position)) * (sorted[above] - sorted[below]);
}

bool WasPreempted(double seconds, double lost_seconds) noexcept {
  constexpr double kShare = 0.05;
  constexpr double kWakeUp = 1e-4;
  return lost_seconds > std::max(kShare * seconds, kWakeUp);
}

TimingSample TimeOnce(const std::function<void()>& body) {
  const WorkerWatch watch;
  const Stopwatch stopwatch;
  body();
  const double seconds = stopwatch.Seconds();
  return {seconds * 1e3, WasPreempted(seconds, watch.LostSeconds())};
}

TimingSample TimeOnceInCpuTime(const std::function<void()>& body) {
  const auto cpu_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const Stopwatch stopwatch;
  const double begin = cpu_seconds();
  body();
  const double seconds = cpu_seconds() - begin;
  return {seconds * 1e3, 2 * seconds < stopwatch.Seconds()};
}

TimingSamples TimeRepeats(int warmups, int repeats, const std::function<void()>& body) {
  for (int i = 0; i < warmups; ++i) body();
  TimingSamples samples;
  for (int i = 0; i < repeats; ++i) {
    const Stopwatch stopwatch;
    body();
    samples.Add(stopwatch.Milliseconds());
  }
  return samples;
}

}  // namespace assay

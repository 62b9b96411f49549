#include "assay/measure/timing.h"

#include <algorithm>
#include <cmath>

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

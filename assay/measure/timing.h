#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace assay {

/// Wall time since it was made or restarted, by steady_clock.
class Stopwatch {
 public:
  void Restart() noexcept { start_ = std::chrono::steady_clock::now(); }
  double Seconds() const noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  double Milliseconds() const noexcept { return Seconds() * 1e3; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// One timed call.
struct TimingSample {
  double ms = 0;
  bool preempted = false;  ///< a worker lost its CPU meanwhile: kept, but left out of the figures
};

/// Repeated timings of one thing, in the order they were taken.
/// Values: figures are over the samples that were not preempted, or over all of them when every one
///         was. Without samples they are 0.
class TimingSamples {
 public:
  void Add(double ms, bool preempted = false) { samples_.push_back({ms, preempted}); }

  const std::vector<TimingSample>& samples() const noexcept { return samples_; }
  int64_t num_preempted() const noexcept;

  /// The middle one, or the mean of the middle two.
  double Median() const { return Quantile(0.5); }
  double Min() const { return Quantile(0.0); }
  double Max() const { return Quantile(1.0); }
  /// Linear between the two nearest samples. Requires 0 ≤ fraction ≤ 1.
  double Quantile(double fraction) const;

 private:
  std::vector<double> Sorted() const;

  std::vector<TimingSample> samples_;
};

/// True when a thread was kept from its CPU for so long that the sample says nothing: over a
/// twentieth of it, and over a tenth of a millisecond, which waking a thread may take.
bool WasPreempted(double seconds, double lost_seconds) noexcept;

/// One call of `body`, timed, with every worker's CPU time held against it (WorkerWatch).
TimingSample TimeOnce(const std::function<void()>& body);

/// The same in CPU time of the calling thread, which leaves out what neighbours took; a sample of
/// which they took over half counts as preempted all the same, for what they did to the caches.
/// Requires a body that does all its work on this thread.
TimingSample TimeOnceInCpuTime(const std::function<void()>& body);

/// Calls `body` `warmups` times untimed, then `repeats` times timed.
TimingSamples TimeRepeats(int warmups, int repeats, const std::function<void()>& body);

}  // namespace assay

#include "assay/studies/bench_speed.h"

#include <algorithm>
#include <cstring>

namespace assay {

double BenchRoof::LeastMs(double num_bytes, double num_operations) const {
  const double read_ms = read_gb_per_s > 0 ? num_bytes / read_gb_per_s * 1e-6 : 0;
  const double multiply_ms = peak_gflops > 0 ? num_operations / peak_gflops * 1e-6 : 0;
  return std::max(read_ms, multiply_ms);
}

BenchSpeed SpeedOf(double median_ms, int64_t num_bytes, double num_operations,
                   const BenchRoof& roof) {
  BenchSpeed speed;
  const auto bytes = static_cast<double>(num_bytes);
  speed.roof_ms = roof.LeastMs(bytes, num_operations);
  speed.bound_by_read = roof.LeastMs(bytes, 0) >= roof.LeastMs(0, num_operations);
  if (median_ms <= 0) return speed;
  speed.gb_per_s = bytes / median_ms * 1e-6;
  speed.gflops = num_operations / median_ms * 1e-6;
  speed.fraction_of_roof = speed.roof_ms / median_ms;
  speed.above_roof = speed.fraction_of_roof > 1;
  return speed;
}

uint64_t ChecksumOf(std::span<const std::byte> bytes) noexcept {
  uint64_t hash = 0xCBF29CE484222325u;
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t count = std::min(bytes.size(), sizeof(word));
    std::memcpy(&word, bytes.data(), count);
    hash = (hash ^ word) * 0x100000001B3u;
    bytes = bytes.subspan(count);
  }
  return hash;
}

void AddBenchSpeeds(double gemm_operations, double peak_operations, BenchReport& report) {
  // The fastest tenth: a roof is what the machine can do, not what it does while disturbed.
  const auto per_second = [](double amount, const TimingSamples& samples) {
    const auto all = static_cast<int64_t>(samples.samples().size());
    const double ms = samples.num_preempted() < all ? samples.Quantile(0.1) : samples.Min();
    return ms > 0 ? amount / ms * 1e-6 : 0;
  };
  TimingSamples gemm;
  TimingSamples peak;
  for (const BenchOperator& op : report.operators) {
    for (const TimingSample& sample : op.gemm.samples()) gemm.Add(sample.ms, sample.preempted);
    for (const TimingSample& sample : op.peak.samples()) peak.Add(sample.ms, sample.preempted);
  }
  for (BenchOperator& op : report.operators) {
    op.roof.read_gb_per_s = per_second(static_cast<double>(op.probe_bytes), op.read);
    op.roof.gemm_gflops = per_second(gemm_operations, gemm);
    op.roof.peak_gflops = std::max(op.roof.gemm_gflops, per_second(peak_operations, peak));
  }
  for (BenchTrial& trial : report.trials) {
    const BenchOperator& op = report.operators[trial.op];
    const double weights = static_cast<double>(op.shape.k) * static_cast<double>(op.shape.n);
    trial.speed = SpeedOf(trial.samples.Median(), trial.bytes_per_call,
                          2.0 * static_cast<double>(op.shape.m) * weights, op.roof);
  }
}

}  // namespace assay

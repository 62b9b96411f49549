#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "assay/base/progress.h"
#include "assay/measure/error_stats.h"
#include "assay/measure/timing.h"
#include "assay/studies/bench_shapes.h"

namespace assay {

/// What to ask: what does a product cost in these formats, and how far is that from what the
/// machine can do?
struct BenchOptions {
  std::vector<std::string> variants;  ///< specs of ParseBenchVariant
  std::vector<BenchShape> shapes;     ///< with synthetic weights
  std::string model;                  ///< file or folder whose weights are timed too; empty: none
  std::vector<std::string> tensors;   ///< globs over its weights' names; empty: all
  int64_t tokens = 1;                 ///< M of the model's weights
  int warmup = 2;                     ///< rounds that are not counted
  /// Rounds that are: samples of each variant. Up to three times as many are run until half of
  /// these were not preempted.
  int repeats = 15;
  bool hot = false;  ///< weights as the last call left them in the caches
  uint64_t seed = 42;
  int64_t memory_bytes = 0;  ///< most to use; 0: three quarters of what is free
  int64_t cold_bytes = 0;    ///< read between two uses of a copy; 0: twice the last-level cache
  bool cpu_time = false;     ///< of the only thread, instead of wall time
  /// Times one call. Empty: TimeOnce, or TimeOnceInCpuTime.
  std::function<TimingSample(const std::function<void()>& body)> timer;
  ProgressSink progress;  ///< items: calls
};

/// The speeds that nothing on this machine passes, from probes that took turns with the variants.
struct BenchRoof {
  double read_gb_per_s = 0;  ///< a plain sum over memory (hot: over as much as the smallest weight)
  double gemm_gflops = 0;    ///< the dense library's product
  double peak_gflops = 0;    ///< the larger of that and the multiplying instructions alone

  /// Milliseconds below which such a call cannot be done.
  double LeastMs(double num_bytes, double num_operations) const;
};

/// Where a time stands under the roof.
struct BenchSpeed {
  double gb_per_s = 0;
  double gflops = 0;
  double roof_ms = 0;           ///< LeastMs
  bool bound_by_read = true;    ///< reading takes longer than multiplying
  double fraction_of_roof = 0;  ///< roof_ms / median
  /// The time is shorter than the roof allows: one of the two is wrong, and the speeds are no fact.
  bool above_roof = false;
};

BenchSpeed SpeedOf(double median_ms, int64_t num_bytes, double num_operations,
                   const BenchRoof& roof);

/// One variant of one operator.
struct BenchTrial {
  size_t op = 0;  ///< index into BenchReport::operators
  BenchVariant variant;
  std::string format;    ///< its name, also of a stored weight
  double encode_s = 0;   ///< none for a stored weight
  double prepare_s = 0;  ///< Matmul::pack_seconds
  int64_t weight_bytes = 0;
  int64_t prepared_bytes = 0;  ///< held beside the planes after a call
  double bits_per_weight = 0;
  std::vector<std::pair<std::string, double>> figures;  ///< Format::Figures
  std::optional<bool> bits_identical;                   ///< lossless formats: decoded and compared
  TimingSamples samples;
  /// y rounded to bf16 against the bf16 product rounded to bf16, and both in f32 as they are.
  ErrorStats error;
  ErrorStats error_f32;
  uint64_t checksum = 0;       ///< ChecksumOf the f32 y
  std::string implementation;  ///< what ran
  int64_t bytes_per_call = 0;  ///< planes of the weight and x, each read once
  BenchSpeed speed;
};

/// One product, with what was measured beside its variants.
struct BenchOperator {
  BenchShape shape;
  std::string source;       ///< where the weight comes from
  int64_t copies = 1;       ///< of each variant's weight, used in turn
  int64_t cold_bytes = 0;   ///< read between two uses of a copy; 0 when hot
  bool walks = false;       ///< part of them by a walk over other memory before each round
  bool cold_enough = true;  ///< cold_bytes reach what was asked for
  int64_t probe_bytes = 0;  ///< of one reading of the read probe
  int64_t rounds = 0;       ///< that count
  TimingSamples read;
  TimingSamples gemm;
  TimingSamples peak;
  BenchRoof roof;
};

struct BenchSkipped {
  std::string op;
  std::string variant;
  std::string reason;
};

struct BenchReport {
  BenchOptions options;
  std::vector<BenchOperator> operators;
  std::vector<BenchTrial> trials;  ///< by operator, variants in the order asked for
  std::vector<BenchSkipped> skipped;
  std::vector<std::string> notes;
  std::string gemm_implementation;
  std::string peak_instructions;
  double seconds = 0;
};

/// Rounds in which every variant and every probe takes its turn; each sample on another copy of the
/// weight, so that it comes from memory unless `hot`.
/// Values:   synthetic weights W[n, k] = 0.02 · 2^round(r_n) · g, rounded to bf16, r and g from
///           NormalGenerator(seed): rows of unlike scale give packed12 the escapes of real layers;
///           x: N(0, 1) rounded to bf16, seed + 1. A model's weights are decoded and rounded to
///           bf16 unless they are bf16.
/// Errors:   usage for unknown variants, no shape, and shapes that do not fit the memory; input for
///           a model's faults.
BenchReport RunBench(const BenchOptions& options);

/// FNV-1a over 64-bit words, the last one padded with zeros.
uint64_t ChecksumOf(std::span<const std::byte> bytes) noexcept;

}  // namespace assay

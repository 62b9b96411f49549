#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace assay {

/// One level of cache, as the first CPU sees it.
struct CacheLevel {
  int level = 0;
  std::string type;  ///< "Data", "Instruction", "Unified"
  int64_t num_bytes = 0;
};

/// The machine a report was made on: what a reader needs to judge its times.
struct Machine {
  std::string cpu;           ///< "Intel(R) Xeon(R) Processor", "unknown" when not told
  std::string architecture;  ///< "x86_64", "aarch64"
  std::vector<std::string>
      features;      ///< instruction sets that matter here, as the kernel names them
  std::string isa;   ///< the one this run's kernels were compiled for: "avx512"
  int num_cpus = 0;  ///< CPUs this process may run on
  int threads = 0;   ///< threads in use
  std::vector<CacheLevel> caches;
  int64_t memory_bytes = 0;
  std::string os;        ///< "Linux 6.1.0"
  std::string compiler;  ///< "gcc 12.2.0"
  /// Measured in the same run, by studies that state speeds as ratios to them.
  std::optional<double> read_gb_per_s;
  std::optional<double> gemm_gflops;

  /// Bytes of the largest cache; 0 when unknown.
  int64_t LastCacheBytes() const noexcept;
};

/// Bytes that can be allocated now without swapping, within the process's control group; 0 when
/// the system does not tell.
int64_t FreeMemoryBytes();

/// Reads what the system tells; nothing is measured. Missing facts are left empty.
Machine DescribeMachine();

}  // namespace assay

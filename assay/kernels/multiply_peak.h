#pragma once

#include <cstdint>
#include <string>

namespace assay {

/// What the multiplying instructions of this machine do when nothing is loaded or stored: the roof
/// of every product, however it is computed.
/// Why:    a dense library's speed is no roof, since kernels of our own pass it.
/// Values: the fastest kind that a kernel for the active target may use: bf16 tiles (AMX), int8 dot
///         products (AVX-512 VNNI), else f32 multiply-adds.
struct MultiplyPeak {
  std::string instructions;  ///< "AMX bf16 tiles"
  /// Runs a fixed amount of work on every thread, some milliseconds; returns its operations, two
  /// for each multiply-add.
  int64_t (*run)();
};

MultiplyPeak FindMultiplyPeak();

}  // namespace assay

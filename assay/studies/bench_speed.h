#pragma once

#include "assay/studies/bench.h"

namespace assay {

/// Fills the roofs of all operators and the speeds of all trials out of their samples.
/// Multiplying does not depend on the shape: all samples of the run tell its roof, so that one
/// disturbed operator does not lower its own. `gemm_operations` and `peak_operations` are those of
/// one sample.
void AddBenchSpeeds(double gemm_operations, double peak_operations, BenchReport& report);

}  // namespace assay

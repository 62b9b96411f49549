#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "assay/formats/format.h"
#include "assay/kernels/matmul.h"

namespace assay {

/// One product to time: y[M, N] = x[M, K] · W[N, K]ᵀ.
struct BenchShape {
  std::string name;  ///< of the operator: "attn.qkv_proj"; empty when the shape says it all
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
};

/// "M,K,N"; a `*` for M stands for `tokens`. Errors: usage, naming what was expected.
BenchShape ParseBenchShape(std::string_view text, int64_t tokens);

/// Lines "NAME M,K,N" (a name without blanks), empty ones, and comments from `#` to the end.
/// Errors: input, naming the line.
std::vector<BenchShape> ReadBenchShapes(const std::string& path, int64_t tokens);

/// What computes it: a format and a strategy.
struct BenchVariant {
  std::string spec;  ///< as reports name it: "affine4g64:fused", "bf16"
  FormatPtr format;  ///< null: the weight as the model holds it
  Strategy strategy = Strategy::kFused;
};

/// "FORMAT", "FORMAT:STRATEGY", or "stored" for the format; fused when no strategy is named. A
/// format's own colons stay with it: "mxfp4:ceil:fused-a8". Errors: usage.
BenchVariant ParseBenchVariant(std::string_view spec);

}  // namespace assay

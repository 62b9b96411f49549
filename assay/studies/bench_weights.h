#pragma once

#include <cstdint>
#include <span>

#include "assay/checkpoint/weight.h"
#include "assay/formats/format.h"
#include "assay/studies/bench.h"
#include "assay/tensor/tensor.h"

namespace assay {

/// The bf16 weight [rows, cols] of a bare shape, as RunBench states it. Uses all threads; the same
/// bits for any number of them.
Tensor SyntheticBenchWeight(int64_t rows, int64_t cols, uint64_t seed);

/// x [rows, cols]: N(0, 1) from NormalGenerator(seed), rounded to bf16.
Tensor SyntheticBenchInput(int64_t rows, int64_t cols, uint64_t seed);

/// Matrix 0 of a weight, decoded and rounded to bf16.
Tensor LoadBenchWeight(const Weight& weight);

/// The same planes in memory of their own, on large pages where the system grants them.
EncodedMatrix CopyOfPlanes(const EncodedMatrix& weight);

/// Whether decoding to bf16 gives `source` back, bit for bit. Requires a bf16 source of its shape.
bool DecodesTo(const EncodedMatrix& encoded, const Tensor& source);

/// Memory a shape takes at least with these variants: one copy of everything. In double: three
/// sizes of 2^30 multiply.
double LeastBenchBytes(const BenchShape& shape, std::span<const BenchVariant> variants);

}  // namespace assay

// packed12 on one thread: bytes per second of bf16.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <random>

#include "assay/base/parallel.h"
#include "assay/formats/packed12.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

constexpr int64_t kRows = 4096;
constexpr int64_t kCols = 4096;

// N(0, 0.02), as most layers are: 0.003 % of escapes below the window.
Tensor GaussianLayer() {
  Tensor tensor = Tensor::Allocate(DType::kBF16, {kRows, kCols});
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  for (uint16_t& word : tensor.mutable_as<uint16_t>()) word = FloatToBF16(normal(generator));
  return tensor;
}

const Tensor& Layer() {
  static const Tensor layer = GaussianLayer();
  return layer;
}

void CountBytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * Layer().num_bytes());
}

void Packed12Encode(benchmark::State& state) {
  SetNumThreads(1);
  const Packed12Format format;
  const MatrixView matrix = FlattenToMatrix(Layer().view());
  for (auto _ : state) benchmark::DoNotOptimize(format.Encode(matrix, {}));
  CountBytes(state);
}
BENCHMARK(Packed12Encode)->Unit(benchmark::kMillisecond);

void Packed12LayoutFor(benchmark::State& state) {
  SetNumThreads(1);
  const Packed12Format format;
  const MatrixView matrix = FlattenToMatrix(Layer().view());
  for (auto _ : state) benchmark::DoNotOptimize(format.LayoutFor(matrix));
  CountBytes(state);
}
BENCHMARK(Packed12LayoutFor)->Unit(benchmark::kMillisecond);

void Packed12DecodeToBF16(benchmark::State& state) {
  SetNumThreads(1);
  const Packed12Format format;
  const EncodedMatrix encoded = format.Encode(FlattenToMatrix(Layer().view()), {});
  Tensor out = Tensor::Allocate(DType::kBF16, Layer().shape());
  for (auto _ : state) {
    format.DecodeRowsTo(encoded, 0, kRows, DType::kBF16, out.mutable_bytes());
    benchmark::ClobberMemory();
  }
  CountBytes(state);
}
BENCHMARK(Packed12DecodeToBF16)->Unit(benchmark::kMillisecond);

void Packed12DecodeToF32(benchmark::State& state) {
  SetNumThreads(1);
  const Packed12Format format;
  const EncodedMatrix encoded = format.Encode(FlattenToMatrix(Layer().view()), {});
  Tensor out = Tensor::Allocate(DType::kF32, Layer().shape());
  for (auto _ : state) {
    format.DecodeRows(encoded, 0, kRows, out.mutable_as<float>());
    benchmark::ClobberMemory();
  }
  CountBytes(state);
}
BENCHMARK(Packed12DecodeToF32)->Unit(benchmark::kMillisecond);

// The roof: a copy of the same bf16 bytes.
void Packed12CopyOfBF16(benchmark::State& state) {
  Tensor out = Tensor::Allocate(DType::kBF16, Layer().shape());
  for (auto _ : state) {
    std::memcpy(out.mutable_bytes().data(), Layer().bytes().data(), Layer().bytes().size());
    benchmark::ClobberMemory();
  }
  CountBytes(state);
}
BENCHMARK(Packed12CopyOfBF16)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace assay

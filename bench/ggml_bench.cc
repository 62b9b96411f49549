// Speed of ggml's block types, in GB/s of the f32 weights that are encoded or come out of decoding.
// One thread, 4 MiB of weights. bench/peers/ggml_blocks.py times ggml beside them.
//   ASSAY_TARGET=avx2 assay_bench --benchmark_filter='(Encode|Decode)Ggml'

#include <benchmark/benchmark.h>

#include <random>
#include <string>

#include "assay/base/parallel.h"
#include "assay/base/target.h"
#include "assay/formats/catalogue.h"
#include "assay/formats/ggml.h"

namespace assay {
namespace {

constexpr int64_t kRows = 256;
constexpr int64_t kCols = 4096;
constexpr int64_t kF32Bytes = kRows * kCols * 4;

const Tensor& Weights() {
  static const Tensor weights = [] {
    Tensor tensor = Tensor::Allocate(DType::kF32, {kRows, kCols});
    std::mt19937 engine(42);
    std::normal_distribution<float> normal(0.0F, 0.02F);
    for (float& value : tensor.mutable_as<float>()) value = normal(engine);
    return tensor;
  }();
  return weights;
}

void EncodeGgml(benchmark::State& state, const std::string& name) {
  SetNumThreads(1);
  const FormatPtr format = Format::Parse(name);
  const MatrixView matrix(Weights().view(), kRows, kCols);
  for (auto _ : state) benchmark::DoNotOptimize(format->Encode(matrix, {.tensor_name = "w"}));
  state.SetBytesProcessed(state.iterations() * kF32Bytes);
}

/// Blocks of zeros: no decoder's speed depends on what they hold.
void DecodeGgml(benchmark::State& state, const std::string& name) {
  SetNumThreads(1);
  const FormatPtr format = Format::Parse(name);
  const PlaneSpec plane = format->Layout(kRows, kCols, DType::kF32)[0];
  const EncodedMatrix encoded{format,
                              kRows,
                              kCols,
                              DType::kF32,
                              {{plane.name, Tensor::Allocate(plane.dtype, plane.shape)}}};
  std::vector<float> out(static_cast<size_t>(kRows * kCols));
  for (auto _ : state) {
    format->DecodeRows(encoded, 0, kRows, out);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kF32Bytes);
}

const bool kRegistered = [] {
  SelectTargetFromEnvironment();
  for (const std::string& name : kGgmlFamily.names()) {
    if (Format::Parse(name)->CanEncode()) {
      benchmark::RegisterBenchmark(("EncodeGgml/" + name).c_str(), EncodeGgml, name);
    }
    benchmark::RegisterBenchmark(("DecodeGgml/" + name).c_str(), DecodeGgml, name);
  }
  return true;
}();

}  // namespace
}  // namespace assay

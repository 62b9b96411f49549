// Speed of the cache equations, in GB/s of the f32 values that go in. One thread, 4 MiB of them.
// A simulation is what an in-place kernel does: encode, then decode to bf16.
//   ASSAY_TARGET=avx2 assay_bench --benchmark_filter=Cache

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "assay/base/parallel.h"
#include "assay/base/target.h"
#include "assay/formats/format.h"
#include "assay/numeric/random.h"

namespace assay {
namespace {

constexpr int64_t kRows = 2048;
constexpr int64_t kCols = 512;
constexpr int64_t kF32Bytes = kRows * kCols * 4;

MatrixView Captures() {
  static const Tensor captures = [] {
    Tensor tensor = Tensor::Allocate(DType::kF32, {kRows, kCols});
    NormalGenerator(42).Fill(tensor.mutable_as<float>());
    return tensor;
  }();
  return MatrixView(captures.view(), kRows, kCols);
}

void SimulateCache(benchmark::State& state, const std::string& name) {
  SetNumThreads(1);
  const FormatPtr format = Format::Parse(name);
  const MatrixView captures = Captures();
  std::vector<std::byte> out(static_cast<size_t>(kF32Bytes / 2));
  for (auto _ : state) {
    const EncodedMatrix encoded = format->Encode(captures, {.tensor_name = "kv"});
    format->DecodeRowsTo(encoded, 0, kRows, DType::kBF16, out);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kF32Bytes);
}

void EncodeCache(benchmark::State& state, const std::string& name) {
  SetNumThreads(1);
  const FormatPtr format = Format::Parse(name);
  const MatrixView captures = Captures();
  for (auto _ : state) benchmark::DoNotOptimize(format->Encode(captures, {.tensor_name = "kv"}));
  state.SetBytesProcessed(state.iterations() * kF32Bytes);
}

const bool kRegistered = [] {
  SelectTargetFromEnvironment();
  for (const std::string name :
       {"ds41-window-fp8", "ds41-main-fp4", "ds41-index-fp4", "ds4-window-fp8", "ds4-index-fp4"}) {
    benchmark::RegisterBenchmark(("SimulateCache/" + name).c_str(), SimulateCache, name);
    benchmark::RegisterBenchmark(("EncodeCache/" + name).c_str(), EncodeCache, name);
  }
  return true;
}();

}  // namespace
}  // namespace assay

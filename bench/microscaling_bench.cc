// Speed of the small-float block formats, in GB/s of the bf16 weights that are encoded or come out
// of decoding. One thread, 4 MiB of weights, second cache and beyond.
//   ASSAY_TARGET=avx2 assay_bench --benchmark_filter='(Encode|Decode)Blocks'

#include <benchmark/benchmark.h>

#include <random>
#include <string>

#include "assay/base/parallel.h"
#include "assay/base/target.h"
#include "assay/formats/format.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

constexpr int64_t kRows = 512;
constexpr int64_t kCols = 4096;
constexpr int64_t kBF16Bytes = kRows * kCols * 2;

const Tensor& Weights() {
  static const Tensor weights = [] {
    Tensor tensor = Tensor::Allocate(DType::kBF16, {kRows, kCols});
    std::mt19937 engine(42);
    std::normal_distribution<float> normal(0.0F, 0.02F);
    for (uint16_t& word : tensor.mutable_as<uint16_t>()) {
      word = FloatToBF16(normal(engine));
    }
    return tensor;
  }();
  return weights;
}

void EncodeBlocks(benchmark::State& state, const std::string& name) {
  SetNumThreads(1);
  const FormatPtr format = Format::Parse(name);
  const MatrixView matrix(Weights().view(), kRows, kCols);
  for (auto _ : state) benchmark::DoNotOptimize(format->Encode(matrix, {.tensor_name = "w"}));
  state.SetBytesProcessed(state.iterations() * kBF16Bytes);
}

void DecodeBlocks(benchmark::State& state, const std::string& name) {
  SetNumThreads(1);
  const FormatPtr format = Format::Parse(name);
  const MatrixView matrix(Weights().view(), kRows, kCols);
  EncodedMatrix encoded = format->Encode(matrix, {.tensor_name = "w"});
  std::vector<std::byte> out(static_cast<size_t>(kBF16Bytes));
  for (auto _ : state) {
    format->DecodeRowsTo(encoded, 0, kRows, DType::kBF16, out);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kBF16Bytes);
}

const bool kRegistered = [] {
  SelectTargetFromEnvironment();
  for (const std::string name :
       {"mxfp4", "mxfp4:rceil", "mxfp4:modelopt", "mxfp6e2m3", "mxfp6e3m2", "mxfp8", "mxfp8e5m2",
        "mxint8", "nvfp4", "nvfp4:ct", "mlx-mxfp4", "mlx-mxfp8", "mlx-nvfp4"}) {
    benchmark::RegisterBenchmark(("EncodeBlocks/" + name).c_str(), EncodeBlocks, name);
    benchmark::RegisterBenchmark(("DecodeBlocks/" + name).c_str(), DecodeBlocks, name);
  }
  return true;
}();

}  // namespace
}  // namespace assay

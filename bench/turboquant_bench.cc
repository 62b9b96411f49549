// TurboQuant on one thread: bytes per second of bf16.

#include <benchmark/benchmark.h>

#include <random>

#include "assay/base/parallel.h"
#include "assay/formats/turboquant.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

constexpr int64_t kRows = 2048;
constexpr int64_t kCols = 4096;

const Tensor& Layer() {
  static const Tensor layer = [] {
    Tensor tensor = Tensor::Allocate(DType::kBF16, {kRows, kCols});
    std::mt19937 generator(1);
    std::normal_distribution<float> normal(0.0f, 0.02f);
    for (uint16_t& word : tensor.mutable_as<uint16_t>()) word = FloatToBF16(normal(generator));
    return tensor;
  }();
  return layer;
}

std::shared_ptr<const TurboQuantFormat> FormatOf(const benchmark::State& state) {
  return TurboQuantFormat::Make(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
}

void CountBytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * Layer().num_bytes());
}

void TurboQuantEncode(benchmark::State& state) {
  SetNumThreads(1);
  const auto format = FormatOf(state);
  const MatrixView matrix(Layer().view(), kRows, kCols);
  format->EncoderCodebook();
  for (auto _ : state) benchmark::DoNotOptimize(format->Encode(matrix, {.tensor_name = "w"}));
  CountBytes(state);
}
BENCHMARK(TurboQuantEncode)->ArgsProduct({{2, 3, 4}, {32, 128}})->Unit(benchmark::kMillisecond);

void TurboQuantDecodeToBF16(benchmark::State& state) {
  SetNumThreads(1);
  const auto format = FormatOf(state);
  const EncodedMatrix encoded =
      format->Encode(MatrixView(Layer().view(), kRows, kCols), {.tensor_name = "w"});
  Tensor out = Tensor::Allocate(DType::kBF16, Layer().shape());
  for (auto _ : state) {
    format->DecodeRowsTo(encoded, 0, kRows, DType::kBF16, out.mutable_bytes());
    benchmark::ClobberMemory();
  }
  CountBytes(state);
}
BENCHMARK(TurboQuantDecodeToBF16)
    ->ArgsProduct({{2, 3, 4}, {32, 128}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace assay

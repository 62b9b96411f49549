// Encode and decode of fp8 blocks and of the integer families, per core: bytes are those of the
// bf16 side.

#include <benchmark/benchmark.h>

#include <vector>

#include "assay/base/parallel.h"
#include "assay/formats/format.h"
#include "assay/numeric/element.h"
#include "assay/numeric/random.h"

namespace assay {
namespace {

constexpr int64_t kRows = 512;
constexpr int64_t kCols = 4096;

Tensor NormalWeights() {
  Tensor values = Tensor::Allocate(DType::kBF16, Shape{kRows, kCols});
  NormalGenerator normal(1);
  for (uint16_t& word : values.mutable_as<uint16_t>()) word = FloatToBF16(normal.Next());
  return values;
}

void Encode(benchmark::State& state, const char* name) {
  SetNumThreads(1);
  const Tensor values = NormalWeights();
  const FormatPtr format = Format::Parse(name);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        format->Encode(MatrixView(values.view(), kRows, kCols), {.tensor_name = "w"}));
  }
  state.SetBytesProcessed(state.iterations() * values.num_bytes());
}

void Decode(benchmark::State& state, const char* name) {
  SetNumThreads(1);
  const Tensor values = NormalWeights();
  const EncodedMatrix encoded =
      Format::Parse(name)->Encode(MatrixView(values.view(), kRows, kCols), {.tensor_name = "w"});
  std::vector<std::byte> out(static_cast<size_t>(values.num_bytes()));
  for (auto _ : state) {
    encoded.format->DecodeRowsTo(encoded, 0, kRows, DType::kBF16, out);
    benchmark::DoNotOptimize(out.data());
  }
  state.SetBytesProcessed(state.iterations() * values.num_bytes());
}

BENCHMARK_CAPTURE(Encode, fp8_block128, "fp8-block128");
BENCHMARK_CAPTURE(Encode, fp8_block32_ue8m0, "fp8-block32:ue8m0");
BENCHMARK_CAPTURE(Decode, fp8_block128, "fp8-block128");
BENCHMARK_CAPTURE(Encode, int4g128, "int4g128");
BENCHMARK_CAPTURE(Encode, nf4, "nf4");
BENCHMARK_CAPTURE(Decode, int4g128, "int4g128");
BENCHMARK_CAPTURE(Decode, nf4, "nf4");

}  // namespace
}  // namespace assay

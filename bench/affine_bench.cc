// Encode and decode of the affine formats beside a memory copy of the same matrix.
// Ratios hold within one interleaved run:
//   assay_bench --benchmark_filter='Affine|Copy' --benchmark_enable_random_interleaving=true
//     --benchmark_repetitions=9 --benchmark_report_aggregates_only=true
// bytes_per_second counts the unpacked side: values in for encode, out for decode.

#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "assay/base/parallel.h"
#include "assay/formats/affine.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/random.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

constexpr int64_t kRows = 4096;
constexpr int64_t kCols = 4096;

const Tensor& Values(DType dtype) {
  static const auto make = [](DType type) {
    Tensor tensor = Tensor::Allocate(type, Shape{kRows, kCols});
    std::vector<float> values(static_cast<size_t>(kRows * kCols));
    NormalGenerator(42).Fill(values);
    Round(ElementOf(type), values, tensor.mutable_bytes());
    return tensor;
  };
  static const Tensor bf16 = make(DType::kBF16);
  static const Tensor f16 = make(DType::kF16);
  static const Tensor f32 = make(DType::kF32);
  return dtype == DType::kBF16 ? bf16 : dtype == DType::kF16 ? f16 : f32;
}

void Copy(benchmark::State& state) {
  const Tensor& from = Values(DType::kBF16);
  std::vector<std::byte> to(from.bytes().size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.bytes().data(), to.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * from.num_bytes());
}

void Encode(benchmark::State& state, int bits, int group_size, DType dtype) {
  SetNumThreads(1);
  const auto format = AffineFormat::Make(bits, group_size);
  const MatrixView matrix(Values(dtype).view(), kRows, kCols);
  for (auto _ : state) {
    benchmark::DoNotOptimize(format->Encode(matrix, {.tensor_name = "bench"}));
  }
  state.SetBytesProcessed(state.iterations() * Values(dtype).num_bytes());
}

void Decode(benchmark::State& state, int bits, int group_size, DType dtype) {
  SetNumThreads(1);
  const auto format = AffineFormat::Make(bits, group_size);
  const MatrixView matrix(Values(DType::kBF16).view(), kRows, kCols);
  const EncodedMatrix encoded = format->Encode(matrix, {.tensor_name = "bench"});
  std::vector<std::byte> out(static_cast<size_t>(kRows * kCols * BitsOf(dtype) / 8));
  for (auto _ : state) {
    format->DecodeRowsTo(encoded, 0, kRows, dtype, out);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(out.size()));
}

const int kRegistered = [] {
  benchmark::RegisterBenchmark("CopyBF16", Copy)->UseRealTime();
  for (const int bits : AffineFormat::kBits) {
    for (const int group_size : AffineFormat::kGroupSizes) {
      const std::string name = AffineFormat(bits, group_size).Name();
      if (group_size != 64 && bits != 4) continue;
      benchmark::RegisterBenchmark(("AffineEncode/" + name + "/bf16").c_str(), Encode, bits,
                                   group_size, DType::kBF16)
          ->UseRealTime();
      benchmark::RegisterBenchmark(("AffineDecode/" + name + "/bf16").c_str(), Decode, bits,
                                   group_size, DType::kBF16)
          ->UseRealTime();
    }
  }
  for (const DType dtype : {DType::kF16, DType::kF32}) {
    const std::string type(NameOf(dtype));
    benchmark::RegisterBenchmark(("AffineEncode/affine4g64/" + type).c_str(), Encode, 4, 64, dtype)
        ->UseRealTime();
  }
  benchmark::RegisterBenchmark("AffineDecode/affine4g64/f32", Decode, 4, 64, DType::kF32)
      ->UseRealTime();
  return 0;
}();

}  // namespace
}  // namespace assay

// Every format of the catalogue: Encode/NAME, Decode/NAME (to bf16) and Gemv/NAME (one row of x,
// the fused strategy), one thread. bytes_per_second counts the bf16 side, so that a row divided by
// CopyBF16's is a share of a memory copy; ratios hold within one interleaved run:
//   ASSAY_TARGET=avx2 assay_bench --benchmark_filter='(Encode|Decode)/affine4g64$|CopyBF16'
//     --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
// Products stand here hot and alone; `assay bench` times them cold, with the machine's limits.

#include <benchmark/benchmark.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "assay/base/parallel.h"
#include "assay/base/target.h"
#include "assay/formats/catalogue.h"
#include "assay/kernels/matmul.h"
#include "assay/studies/bench_weights.h"

namespace assay {
namespace {

struct Size {
  int64_t rows;
  int64_t cols;
};

// Of equal volume; formats of fixed row lengths (cache equations) take one of the later ones.
constexpr std::array<Size, 3> kSizes = {{{1024, 4096}, {8192, 512}, {32768, 128}}};
constexpr int64_t kBF16Bytes = 1024 * 4096 * 2;

std::optional<Size> SizeFor(const Format& format) {
  for (const Size& size : kSizes) {
    if (!format.WhyNot(size.rows, size.cols, DType::kBF16)) return size;
  }
  return std::nullopt;
}

MatrixView Weights(const Size& size) {
  static const Tensor weights = SyntheticBenchWeight(kSizes[0].rows, kSizes[0].cols, 42);
  return {weights.As(DType::kBF16, Shape{size.rows, size.cols}).view(), size.rows, size.cols};
}

EncodedMatrix Encoded(const std::string& name, const Size& size) {
  return Format::Parse(name)->Encode(Weights(size), {.tensor_name = "bench"});
}

void CountBytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * kBF16Bytes);
}

void CopyBF16(benchmark::State& state) {
  SetNumThreads(1);
  const std::span<const std::byte> from = Weights(kSizes[0]).RowBytes(0, kSizes[0].rows);
  std::vector<std::byte> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), to.size());
    benchmark::ClobberMemory();
  }
  CountBytes(state);
}

void Encode(benchmark::State& state, const std::string& name, Size size) {
  SetNumThreads(1);
  const FormatPtr format = Format::Parse(name);
  const MatrixView weights = Weights(size);
  format->Encode(weights, {.tensor_name = "bench"});  // tables that the first call makes
  for (auto _ : state) benchmark::DoNotOptimize(format->Encode(weights, {.tensor_name = "bench"}));
  CountBytes(state);
}

void Decode(benchmark::State& state, const std::string& name, Size size) {
  SetNumThreads(1);
  const EncodedMatrix encoded = Encoded(name, size);
  std::vector<std::byte> out(static_cast<size_t>(kBF16Bytes));
  encoded.format->DecodeRowsTo(encoded, 0, size.rows, DType::kBF16, out);
  for (auto _ : state) {
    encoded.format->DecodeRowsTo(encoded, 0, size.rows, DType::kBF16, out);
    benchmark::ClobberMemory();
  }
  CountBytes(state);
}

void Gemv(benchmark::State& state, const std::string& name, Size size) {
  SetNumThreads(1);
  const auto matmul = MakeMatmul(Encoded(name, size), Strategy::kFused);
  const Tensor x = SyntheticBenchInput(1, size.cols, 43);
  std::vector<float> y(static_cast<size_t>(size.rows));
  const auto out = std::as_writable_bytes(std::span(y));
  matmul->Run(1, x.bytes(), out);
  for (auto _ : state) {
    matmul->Run(1, x.bytes(), out);
    benchmark::ClobberMemory();
  }
  CountBytes(state);
  state.SetLabel(matmul->Implementation());
}

const bool kRegistered = [] {
  SelectTargetFromEnvironment();
  benchmark::RegisterBenchmark("CopyBF16", CopyBF16);
  using Row = void (*)(benchmark::State&, const std::string&, Size);
  const std::pair<const char*, Row> rows[] = {
      {"Encode/", Encode}, {"Decode/", Decode}, {"Gemv/", Gemv}};
  for (const FormatFamily* family : FormatCatalogue()) {
    for (const std::string& name : family->names()) {
      const FormatPtr format = Format::Parse(name);
      const std::optional<Size> size = SizeFor(*format);
      if (!format->CanEncode() || !size) continue;
      for (const auto& [prefix, row] : rows) {
        benchmark::RegisterBenchmark((prefix + name).c_str(), row, name, *size)
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace assay

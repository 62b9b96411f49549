// Widening and rounding of every element type, in L2 and from memory, beside a copy of the floats.
//   assay_bench --benchmark_filter='Widen|Round|CopyFloats'
//     --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
// bytes_per_second counts the f32 side. One thread. ASSAY_TARGET is not read here: the best target.

#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "assay/numeric/bulk.h"
#include "assay/numeric/hadamard.h"
#include "assay/numeric/random.h"

namespace assay {
namespace {

constexpr int64_t kInCache = int64_t{1} << 16;
constexpr int64_t kInMemory = int64_t{1} << 24;

std::vector<float> NormalValues(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  NormalGenerator(1).Fill(values);
  return values;
}

void SetFloats(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          static_cast<int64_t>(sizeof(float)));
}

void CopyFloats(benchmark::State& state) {
  const std::vector<float> from = NormalValues(state.range(0));
  std::vector<float> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  SetFloats(state);
}

void WidenElements(benchmark::State& state, Element element) {
  std::vector<float> values = NormalValues(state.range(0));
  std::vector<std::byte> codes(NumBytesFor(BitsOf(element), values.size()));
  Round(element, values, codes);
  for (auto _ : state) {
    Widen(element, codes, values);
    benchmark::ClobberMemory();
  }
  SetFloats(state);
}

void RoundElements(benchmark::State& state, Element element) {
  const std::vector<float> values = NormalValues(state.range(0));
  std::vector<std::byte> codes(NumBytesFor(BitsOf(element), values.size()));
  for (auto _ : state) {
    Round(element, values, codes);
    benchmark::ClobberMemory();
  }
  SetFloats(state);
}

void Hadamard(benchmark::State& state) {
  std::vector<float> values(kInCache);
  const auto block = static_cast<size_t>(state.range(0));
  // Of zeros: twice is the size times the input, which would overflow within a few rounds.
  for (auto _ : state) {
    WalshHadamardBlocks(block, values);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kInCache * static_cast<int64_t>(sizeof(float)));
}

void Normal(benchmark::State& state) {
  NormalGenerator generator(1);
  for (auto _ : state) benchmark::DoNotOptimize(generator.Next());
  state.SetItemsProcessed(state.iterations());
}

const int kRegistered = [] {
  for (const int64_t count : {kInCache, kInMemory}) {
    benchmark::RegisterBenchmark("CopyFloats", CopyFloats)->Arg(count);
    for (const Element element :
         {Element::kBF16, Element::kF16, Element::kE4M3, Element::kE5M2, Element::kE4M3Fnuz,
          Element::kE5M2Fnuz, Element::kE8M0, Element::kE2M1, Element::kE2M3, Element::kE3M2}) {
      const std::string name(NameOf(element));
      benchmark::RegisterBenchmark(("Widen/" + name).c_str(), WidenElements, element)->Arg(count);
      benchmark::RegisterBenchmark(("Round/" + name).c_str(), RoundElements, element)->Arg(count);
    }
  }
  benchmark::RegisterBenchmark("Hadamard", Hadamard)->Arg(32)->Arg(64)->Arg(128);
  benchmark::RegisterBenchmark("Normal", Normal);
  return 0;
}();

}  // namespace
}  // namespace assay

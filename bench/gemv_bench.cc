// Interleaved ratios of products with one weight matrix: every variant once per round, weights
// cold.
//
//   build/dev/bench/assay_gemv_bench --shape 16384,4096 --m 1 --threads 2 --rounds 40 bf16
//   affine4g64
//
// A variant is FORMAT[:STRATEGY]. Its weights exist in so many copies that a copy comes back only
// after more than --cold MiB of other weights were read. Two variants are always there: "read",
// a plain sum over as many bytes (the roof), and the first variant named, to which ratios refer.

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/base/aligned_buffer.h"
#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/base/target.h"
#include "assay/kernels/matmul.h"
#include "assay/numeric/bulk.h"

namespace assay {
namespace {

struct Options {
  int64_t rows = 16384;
  int64_t cols = 4096;
  int64_t m = 1;
  int rounds = 40;
  int64_t cold_mib = 640;
  bool small_pages = false;
  std::vector<std::string> variants;
};

double Now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Sample {
  double seconds;
  bool preempted;
};

struct Variant {
  std::string name;
  int64_t bytes = 0;
  std::function<void(size_t copy)> run;
  std::function<std::string()> what;
  std::vector<Sample> samples;
  std::vector<std::unique_ptr<Matmul>> copies;
  double pack_gbps = 0;
};

/// Cheap deterministic values, near enough to normal: the sum of four bytes.
void FillBF16(std::span<std::byte> bytes) {
  uint64_t state = 0x9E3779B97F4A7C15ull;
  for (size_t i = 0; i + 2 <= bytes.size(); i += 2) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const float value = static_cast<float>(
        static_cast<int>(state & 255) + static_cast<int>(state >> 8 & 255) +
        static_cast<int>(state >> 16 & 255) + static_cast<int>(state >> 24 & 255) - 510);
    const uint16_t word = FloatToBF16(value * 1e-4f);
    std::memcpy(bytes.data() + i, &word, sizeof(word));
  }
}

EncodedMatrix CopyOf(const EncodedMatrix& weight, bool small_pages) {
  EncodedMatrix copy = weight;
  for (Plane& plane : copy.planes) {
    const auto bytes = plane.tensor.bytes();
    std::shared_ptr<std::byte> memory;
    if (small_pages) {
      memory = {static_cast<std::byte*>(std::aligned_alloc(64, (bytes.size() + 127) / 64 * 64)),
                std::free};
    } else {
      memory = AllocateAligned(bytes.size() + 64);
    }
    std::ranges::copy(bytes, memory.get());
    plane.tensor = Tensor::Share(memory, plane.tensor.dtype(), plane.tensor.shape(),
                                 {memory.get(), bytes.size()});
  }
  return copy;
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
uint64_t
SumOf(const uint64_t* words, size_t count) {
  uint64_t sums[64] = {};
  for (size_t i = 0; i + 64 <= count; i += 64) {
    for (size_t j = 0; j < 64; ++j) sums[j] += words[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

double Median(std::vector<double> values, double quantile = 0.5) {
  if (values.empty()) return 0;
  const auto at = static_cast<size_t>(static_cast<double>(values.size()) * quantile);
  std::ranges::nth_element(values, values.begin() + static_cast<int64_t>(at));
  return values[at];
}

std::vector<double> Kept(const Variant& variant) {
  std::vector<double> kept;
  for (const Sample& sample : variant.samples) {
    if (!sample.preempted) kept.push_back(sample.seconds);
  }
  if (kept.size() < 3) {
    kept.clear();
    for (const Sample& sample : variant.samples) kept.push_back(sample.seconds);
  }
  return kept;
}

void Measure(Variant& variant, size_t copy, int threads) {
  const double cpu = Now(CLOCK_PROCESS_CPUTIME_ID);
  const double begin = Now(CLOCK_MONOTONIC);
  variant.run(copy);
  const double seconds = Now(CLOCK_MONOTONIC) - begin;
  const double used = Now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  // One thread: its CPU time leaves out what neighbours took. More: such samples are dropped.
  variant.samples.push_back(threads == 1 ? Sample{used, used < 0.5 * seconds}
                                         : Sample{seconds, used < 0.95 * seconds * threads});
}

std::vector<int64_t> Numbers(std::string_view text) {
  std::vector<int64_t> numbers;
  while (!text.empty()) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) ThrowUsage("expected a number, found \"{}\"", text);
    numbers.push_back(value);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (!text.empty()) text.remove_prefix(1);
  }
  return numbers;
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto value = [&] { return Numbers(i + 1 < argc ? argv[++i] : ""); };
    if (argument == "--shape") {
      const auto shape = value();
      options.rows = shape.at(0);
      options.cols = shape.at(1);
    } else if (argument == "--m") {
      options.m = value().at(0);
    } else if (argument == "--rounds") {
      options.rounds = static_cast<int>(value().at(0));
    } else if (argument == "--threads") {
      SetNumThreads(static_cast<int>(value().at(0)));
    } else if (argument == "--cold") {
      options.cold_mib = value().at(0);
    } else if (argument == "--small-pages") {
      options.small_pages = true;
    } else {
      options.variants.emplace_back(argument);
    }
  }
  if (options.variants.empty()) options.variants = {"bf16", "affine4g64"};
  return options;
}

void Print(std::vector<Variant>& variants, const Options& options) {
  const double read = static_cast<double>(variants[0].bytes) / Median(Kept(variants[0]));
  const double read_best = static_cast<double>(variants[0].bytes) / Median(Kept(variants[0]), 0.1);
  const Variant& base = variants[1];
  const double base_seconds = Median(Kept(base));
  const double base_best = Median(Kept(base), 0.1);
  fmt::print("{:<26} {:>8} {:>7} {:>6} {:>7} {:>8} {:>7} {:>8} {:>5} {:>7}\n", "variant", "ms",
             "GB/s", "read", "ratio", "best ms", "read", "ratio", "drop", "pack");
  for (const Variant& variant : variants) {
    const double seconds = Median(Kept(variant));
    const double best = Median(Kept(variant), 0.1);
    const auto bytes = static_cast<double>(variant.bytes);
    const auto dropped = std::ranges::count_if(variant.samples, &Sample::preempted);
    fmt::print(
        "{:<26} {:>8.3f} {:>7.2f} {:>6.3f} {:>7.3f} {:>8.3f} {:>7.3f} {:>8.3f} {:>5} {:>7.1f}  "
        "{}\n",
        variant.name, seconds * 1e3, bytes / seconds * 1e-9, bytes / seconds / read,
        base_seconds / seconds, best * 1e3, bytes / best / read_best, base_best / best, dropped,
        variant.pack_gbps, variant.what());
  }
  fmt::print(
      "N={} K={} M={} threads={} target={}; ratio = time of {} / time; best = fastest "
      "tenth; drop = preempted samples left out\n",
      options.rows, options.cols, options.m, NumThreads(), ActiveTargetName(), base.name);
}

/// "mxfp4:ceil:fused-a8" → format and strategy; fused when none is named.
std::pair<std::string, Strategy> ParseVariant(const std::string& spec) {
  const size_t colon = spec.rfind(':');
  if (colon != std::string::npos) {
    for (const Strategy strategy :
         {Strategy::kReference, Strategy::kDequantGemm, Strategy::kFused, Strategy::kFusedA8}) {
      if (NameOf(strategy) == spec.substr(colon + 1)) return {spec.substr(0, colon), strategy};
    }
  }
  return {spec, Strategy::kFused};
}

int Main(int argc, char** argv) {
  SelectTargetFromEnvironment();
  const Options options = Parse(argc, argv);
  Tensor source = Tensor::Allocate(DType::kBF16, Shape{options.rows, options.cols});
  FillBF16(source.mutable_bytes());
  Tensor x = Tensor::Allocate(DType::kBF16, Shape{options.m, options.cols});
  FillBF16(x.mutable_bytes());
  AlignedBuffer<float> y(static_cast<size_t>(options.m * options.rows));

  std::vector<Variant> variants(1);
  std::vector<EncodedMatrix> encoded;
  int64_t per_round = 0;
  for (const std::string& spec : options.variants) {
    encoded.push_back(Format::Parse(ParseVariant(spec).first)
                          ->Encode(MatrixView(source.view(), options.rows, options.cols),
                                   {.tensor_name = "bench.weight"}));
    Variant variant;
    variant.name = spec;
    variant.bytes = encoded.back().NumBytes();
    per_round += variant.bytes;
    variants.push_back(std::move(variant));
  }
  const auto copies = static_cast<size_t>((options.cold_mib << 20) / per_round + 1);
  for (size_t v = 1; v < variants.size(); ++v) {
    Variant& variant = variants[v];
    const Strategy strategy = ParseVariant(variant.name).second;
    for (size_t c = 0; c < copies; ++c) {
      variant.copies.push_back(MakeMatmul(CopyOf(encoded[v - 1], options.small_pages), strategy));
    }
    variant.pack_gbps = static_cast<double>(variant.bytes) * 1e-9 /
                        std::max(1e-9, variant.copies.back()->pack_seconds());
    variant.run = [&variant, &x, &y, &options](size_t copy) {
      variant.copies[copy]->Run(options.m, x.bytes(),
                                std::as_writable_bytes(std::span(y.data(), y.size())));
    };
    variant.what = [&variant] { return variant.copies.front()->Implementation(); };
  }
  encoded.clear();

  constexpr size_t kReadBytes = size_t{128} << 20;
  const size_t read_copies =
      std::max<size_t>(1, static_cast<size_t>(options.cold_mib << 20) / kReadBytes);
  AlignedBuffer<uint64_t> roof(read_copies * kReadBytes / 8);
  std::memset(roof.data(), 1, roof.num_bytes());
  volatile uint64_t sink = 0;
  variants[0].name = "read";
  variants[0].bytes = kReadBytes;
  variants[0].what = [] { return std::string(); };
  variants[0].run = [&](size_t copy) {
    const uint64_t* words = roof.data() + copy % read_copies * (kReadBytes / 8);
    constexpr int64_t kChunk = int64_t{1} << 18;
    ParallelFor(0, kReadBytes / 8, NumThreads() == 1 ? kReadBytes / 8 : kChunk * 8,
                [&](int64_t first, int64_t last) {
                  sink = sink + SumOf(words + first, static_cast<size_t>(last - first));
                });
  };
  for (int round = -2; round < options.rounds; ++round) {
    for (Variant& variant : variants) {
      Measure(variant, static_cast<size_t>(round + 2) % copies, NumThreads());
      if (round < 0) variant.samples.clear();
    }
  }
  Print(variants, options);
  return 0;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  try {
    return assay::Main(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

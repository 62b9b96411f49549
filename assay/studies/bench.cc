#include "assay/studies/bench.h"

#include <algorithm>
#include <memory>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/glob.h"
#include "assay/base/parallel.h"
#include "assay/base/text.h"
#include "assay/checkpoint/model.h"
#include "assay/formats/plain.h"
#include "assay/kernels/gemm_probe.h"
#include "assay/kernels/multiply_peak.h"
#include "assay/measure/machine.h"
#include "assay/measure/read_probe.h"
#include "assay/numeric/element.h"
#include "assay/studies/bench_speed.h"
#include "assay/studies/bench_weights.h"

namespace assay {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kPage = 4096;

/// A variant at work: its trial, and as many copies of its weight as take turns.
struct Contender {
  BenchTrial trial;
  EncodedMatrix encoded;
  std::vector<std::unique_ptr<Matmul>> copies;

  /// One copy of the weight and what its product holds.
  int64_t bytes_per_copy() const { return trial.weight_bytes + trial.prepared_bytes; }
};

class BenchStudy {
 public:
  explicit BenchStudy(const BenchOptions& options) : options_(options) {
    report_.options = options;
    if (options.variants.empty()) ThrowUsage("nothing to time: no variant");
    for (const std::string& spec : options.variants) {
      variants_.push_back(ParseBenchVariant(spec));
      if (!variants_.back().format && options.model.empty()) {
        ThrowUsage("{}: a model is needed that holds the weight", spec);
      }
    }
    if (options.cpu_time && NumThreads() != 1) {
      ThrowUsage("CPU time stands for the time of a call with one thread only, found {}",
                 NumThreads());
    }
    if (!options.timer) report_.options.timer = options.cpu_time ? TimeOnceInCpuTime : TimeOnce;
    memory_ = options.memory_bytes;
    if (memory_ == 0) memory_ = FreeMemoryBytes() / 4 * 3;
    cold_ = options.cold_bytes;
    if (cold_ == 0) cold_ = 2 * std::max(DescribeMachine().LastCacheBytes(), 16 * kMiB);
    peak_ = FindMultiplyPeak();
    report_.gemm_implementation = gemm_.Name();
    report_.peak_instructions = peak_.instructions;
  }

  BenchReport Run() {
    const Stopwatch stopwatch;
    std::vector<const Weight*> weights;
    std::optional<Model> model;
    if (!options_.model.empty()) {
      model.emplace(Model::Open(options_.model));
      weights = SelectWeights(*model);
    }
    const size_t num_operators = options_.shapes.size() + weights.size();
    if (num_operators == 0) ThrowUsage("nothing to time: expected a shape or a model");
    // Before any work: the last shape of a long list should not fail an hour later.
    for (const BenchShape& shape : options_.shapes) RequireMemory(shape);
    for (const Weight* weight : weights) RequireMemory(ShapeOf(*weight));
    progress_.num_items = static_cast<int64_t>(num_operators * variants_.size()) *
                          (options_.warmup + options_.repeats);
    for (const BenchShape& shape : options_.shapes) {
      Measure(shape, fmt::format("synthetic, seed {}", options_.seed), nullptr);
    }
    for (const Weight* weight : weights) {
      Measure(ShapeOf(*weight), weight->format()->Name(), weight);
    }
    if (model) model->Verify();
    if (report_.trials.empty()) {
      const BenchSkipped& skipped = report_.skipped.at(0);
      ThrowUsage("nothing was timed: {}: {}: {}", skipped.op, skipped.variant, skipped.reason);
    }
    AddBenchSpeeds(GemmProbe::Operations(), peak_operations_, report_);
    report_.seconds = stopwatch.Seconds();
    return std::move(report_);
  }

 private:
  BenchShape ShapeOf(const Weight& weight) const {
    return {weight.name(), options_.tokens, weight.cols(), weight.rows()};
  }

  std::vector<const Weight*> SelectWeights(const Model& model) {
    std::vector<const Weight*> weights;
    for (const Weight& weight : model.Weights()) {
      if (!options_.tensors.empty() && !GlobMatchAny(options_.tensors, weight.name())) continue;
      if (weight.num_values() == 0) continue;
      weights.push_back(&weight);
      if (weight.stack() > 1) {
        report_.notes.push_back(
            fmt::format("{}: the first of its {} matrices", weight.name(), weight.stack()));
      }
    }
    if (weights.empty()) {
      ThrowUsage("{}: no weight {}", options_.model,
                 options_.tensors.empty() ? "in it" : "fits --tensor");
    }
    return weights;
  }

  void RequireMemory(const BenchShape& shape) const {
    const double least = LeastBenchBytes(shape, variants_);
    if (memory_ <= 0 || least <= static_cast<double>(memory_)) return;
    ThrowUsage(
        "shape {},{},{}: {:.1f} GB are needed for {} variants, {:.1f} GB may be used; fewer "
        "variants at a time, or a smaller M, need less",
        shape.m, shape.k, shape.n, least / 1e9, variants_.size(),
        static_cast<double>(memory_) / 1e9);
  }

  void Measure(const BenchShape& shape, std::string source, const Weight* weight) {
    BenchOperator op;
    op.shape = shape;
    op.source = std::move(source);
    if (op.shape.name.empty()) {
      op.shape.name = fmt::format("{}x{}", shape.k, shape.n);
    }
    const Tensor values = weight != nullptr ? LoadBenchWeight(*weight)
                                            : SyntheticBenchWeight(shape.n, shape.k, options_.seed);
    x_ = SyntheticBenchInput(shape.m, shape.k, options_.seed + 1);
    y_.Resize(static_cast<size_t>(shape.m * shape.n));
    reference_.Resize(y_.size());
    {
      const EncodedMatrix plain =
          PlainFormat(DType::kBF16)
              ->Encode(MatrixView(values.view(), shape.n, shape.k), {.tensor_name = shape.name});
      RunOnce(*MakeMatmul(plain, Strategy::kFused), shape.m, reference_);
    }
    std::vector<Contender> contenders;
    for (const BenchVariant& variant : variants_) {
      const auto reason = WhyNot(variant, shape);
      if (reason) {
        report_.skipped.push_back({op.shape.name, variant.spec, *reason});
        progress_.num_items -= options_.warmup + options_.repeats;
        continue;
      }
      contenders.push_back(Prepare(variant, op.shape, values, weight));
    }
    if (!contenders.empty()) RunRounds(op, contenders);
    for (Contender& contender : contenders) {
      contender.trial.op = report_.operators.size();
      contender.trial.implementation = contender.copies.front()->Implementation();
      report_.trials.push_back(std::move(contender.trial));
    }
    report_.operators.push_back(std::move(op));
  }

  static std::optional<std::string> WhyNot(const BenchVariant& variant, const BenchShape& shape) {
    if (!variant.format) return std::nullopt;
    return variant.format->WhyNot(shape.n, shape.k, DType::kBF16);
  }

  static void RunBytes(Matmul& matmul, int64_t m, const Tensor& x, AlignedBuffer<float>& y) {
    matmul.Run(m, x.bytes(), std::as_writable_bytes(std::span(y.data(), y.size())));
  }
  void RunOnce(Matmul& matmul, int64_t m, AlignedBuffer<float>& y) { RunBytes(matmul, m, x_, y); }

  /// Encodes, makes the first copy, and holds one product against the bf16 one.
  Contender Prepare(const BenchVariant& variant, const BenchShape& shape, const Tensor& values,
                    const Weight* weight) {
    Contender contender;
    BenchTrial& trial = contender.trial;
    trial.variant = variant;
    EncodedMatrix& encoded = contender.encoded;
    if (variant.format) {
      const Stopwatch stopwatch;
      encoded = variant.format->Encode(MatrixView(values.view(), shape.n, shape.k),
                                       {.tensor_name = shape.name});
      trial.encode_s = stopwatch.Seconds();
    } else {
      encoded = weight->Encoded(0);
    }
    encoded = CopyOfPlanes(encoded);
    trial.format = encoded.format->Name();
    trial.weight_bytes = encoded.NumBytes();
    trial.bits_per_weight =
        8.0 * static_cast<double>(trial.weight_bytes) / static_cast<double>(shape.k * shape.n);
    trial.bytes_per_call = trial.weight_bytes + x_.num_bytes();
    trial.figures = encoded.format->Figures(encoded);
    if (encoded.format->Lossless() && encoded.dtype == DType::kBF16) {
      trial.bits_identical = DecodesTo(encoded, values);
    }
    contender.copies.push_back(MakeMatmul(encoded, variant.strategy));
    Matmul& matmul = *contender.copies.front();
    trial.prepare_s = matmul.pack_seconds();
    RunOnce(matmul, shape.m, y_);
    trial.prepared_bytes = matmul.prepared_bytes();
    const std::span<float> y(y_.data(), y_.size());
    const std::span<float> reference(reference_.data(), reference_.size());
    trial.checksum = ChecksumOf(std::as_bytes(y));
    trial.error_f32 = MeasureErrors(y, reference);
    trial.error = RoundedErrors(y, reference);
    return contender;
  }

  static ErrorStats RoundedErrors(std::span<const float> y, std::span<const float> reference) {
    constexpr size_t kChunk = size_t{1} << 16;
    std::vector<float> a;
    std::vector<float> b;
    ErrorSums sums;
    const auto round = [](std::span<const float> from, std::vector<float>& to) {
      to.assign(from.begin(), from.end());
      for (float& value : to) value = RoundToBF16(value);
    };
    for (size_t first = 0; first < y.size(); first += kChunk) {
      const size_t count = std::min(kChunk, y.size() - first);
      round(y.subspan(first, count), a);
      round(reference.subspan(first, count), b);
      sums.Add(a, b);
    }
    return sums.Stats();
  }

  /// As many copies as it takes to read cold_ bytes before one comes back, or a walk over other
  /// memory where that would be too many or would not fit.
  void MakeCopies(BenchOperator& op, std::vector<Contender>& contenders, int64_t free_bytes) {
    constexpr int64_t kMostCopies = 16;
    int64_t per_round = op.probe_bytes;
    int64_t per_copy = 0;
    int64_t largest = 0;
    for (const Contender& contender : contenders) {
      per_round += contender.trial.weight_bytes;
      per_copy += contender.bytes_per_copy();
      largest = std::max(largest, contender.trial.weight_bytes);
    }
    const int64_t needed = CeilDiv(cold_ + largest, per_round);
    const int64_t fit = 1 + std::max<int64_t>(0, free_bytes) / per_copy;
    op.copies = needed <= std::min(kMostCopies, fit) ? needed : 1;
    op.walks = op.copies < needed;
    op.cold_bytes = op.copies * per_round - largest;
    for (Contender& contender : contenders) {
      while (static_cast<int64_t>(contender.copies.size()) < op.copies) {
        contender.copies.push_back(
            MakeMatmul(CopyOfPlanes(contender.encoded), contender.trial.variant.strategy));
      }
      contender.encoded = {};
    }
  }

  void RunRounds(BenchOperator& op, std::vector<Contender>& contenders) {
    int64_t smallest = contenders.front().trial.weight_bytes;
    int64_t used = static_cast<int64_t>(LeastBenchBytes(op.shape, variants_));
    for (const Contender& contender : contenders) {
      smallest = std::min(smallest, contender.trial.weight_bytes);
      used += contender.trial.prepared_bytes;
    }
    const int64_t free_bytes = memory_ > 0 ? memory_ - used : cold_ * 8;
    // Hot, the roof is what the level of cache gives that the smallest weight stays in.
    op.probe_bytes = options_.hot ? smallest : std::min(cold_ / 4, 128 * kMiB);
    op.probe_bytes = CeilDiv(op.probe_bytes, kPage) * kPage;
    int64_t pieces = 1;
    if (!options_.hot) {
      const int64_t wanted = CeilDiv(cold_, op.probe_bytes);
      pieces = std::clamp<int64_t>(free_bytes / op.probe_bytes, 1, wanted);
    }
    ReadProbe probe(op.probe_bytes, pieces);
    if (!options_.hot) {
      MakeCopies(op, contenders, free_bytes - pieces * op.probe_bytes);
      if (op.walks) op.cold_bytes += pieces * op.probe_bytes;
      op.cold_enough = op.cold_bytes >= cold_;
    }
    // The multiplying roofs hardly move: a few samples of them do.
    constexpr int kRoofSamples = 5;
    const int every = std::max(1, options_.repeats / kRoofSamples);
    // On a busy machine more rounds are run, until half of those asked for were left alone.
    constexpr int kMostTimes = 3;
    for (int round = -options_.warmup;
         round < options_.repeats ||
         (round < kMostTimes * options_.repeats && !EnoughKept(contenders));
         ++round) {
      const bool counts = round >= 0;
      const int64_t turn = round + options_.warmup;
      if (op.walks) probe.ReadAll();
      if (options_.hot) probe.Read(0);
      Time(counts, op.read, [&] { probe.Read(turn); });
      for (Contender& contender : contenders) {
        Matmul& matmul = *contender.copies[static_cast<size_t>(turn % op.copies)];
        if (options_.hot) RunOnce(matmul, op.shape.m, y_);
        Time(counts, contender.trial.samples, [&] { RunOnce(matmul, op.shape.m, y_); });
        progress_.items_done = std::min(progress_.items_done + 1, progress_.num_items);
        if (options_.progress) options_.progress(progress_);
      }
      if (turn % every != 0) continue;
      Time(counts, op.gemm, [&] { gemm_.Run(); });
      Time(counts, op.peak, [&] { peak_operations_ = static_cast<double>(peak_.run()); });
    }
    op.rounds = static_cast<int64_t>(op.read.samples().size());
  }

  bool EnoughKept(const std::vector<Contender>& contenders) const {
    return std::ranges::all_of(contenders, [&](const Contender& contender) {
      const TimingSamples& samples = contender.trial.samples;
      const auto kept = static_cast<int64_t>(samples.samples().size()) - samples.num_preempted();
      return 2 * kept >= options_.repeats;
    });
  }

  void Time(bool counts, TimingSamples& samples, const std::function<void()>& body) {
    if (!counts) return body();
    const TimingSample sample = report_.options.timer(body);
    samples.Add(sample.ms, sample.preempted);
  }

  const BenchOptions& options_;
  BenchReport report_;
  std::vector<BenchVariant> variants_;
  int64_t memory_ = 0;  ///< most to use; 0: not known
  int64_t cold_ = 0;
  GemmProbe gemm_;
  MultiplyPeak peak_;
  double peak_operations_ = 0;
  Tensor x_;
  AlignedBuffer<float> y_;
  AlignedBuffer<float> reference_;
  Progress progress_;
};

}  // namespace

BenchReport RunBench(const BenchOptions& options) { return BenchStudy(options).Run(); }

}  // namespace assay

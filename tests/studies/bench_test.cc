#include "assay/studies/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/report/bench_report.h"
#include "assay/studies/bench_baseline.h"
#include "assay/studies/bench_weights.h"
#include "tests/support/paths.h"
#include "tests/support/run_cli.h"

namespace assay {
namespace {

using testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

// Every call takes as long as the script says, over and over; the body runs too.
struct FakeClock {
  std::vector<TimingSample> script;
  size_t calls = 0;

  std::function<TimingSample(const std::function<void()>&)> Timer() {
    return [this](const std::function<void()>& body) {
      body();
      return script[calls++ % script.size()];
    };
  }
};

BenchOptions Tiny(std::vector<std::string> variants) {
  BenchOptions options;
  options.variants = std::move(variants);
  options.shapes = {{"", 2, 256, 64}};
  options.warmup = 1;
  options.repeats = 5;
  options.cold_bytes = 2 * kMiB;
  return options;
}

std::string ErrorOf(const std::function<void()>& body, ErrorKind kind) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(BenchShape, IsThreeNumbers) {
  const BenchShape shape = ParseBenchShape("1, 4096,16384", 7);
  EXPECT_EQ(shape.m, 1);
  EXPECT_EQ(shape.k, 4096);
  EXPECT_EQ(shape.n, 16384);
  EXPECT_EQ(ParseBenchShape("*,64,32", 7).m, 7);
  for (const char* wrong : {"", "1", "1,2", "1,2,3,4", "0,2,3", "-1,2,3", "a,2,3", "1,2,3x",
                            "1,*,3", "1,2,99999999999", "1,2,99999999999999999999", ",,"}) {
    EXPECT_THAT(ErrorOf([&] { ParseBenchShape(wrong, 1); }, ErrorKind::kUsage),
                HasSubstr("expected M,K,N"));
  }
}

TEST(BenchShape, FilesNameTheLineThatIsWrong) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("shapes.txt");
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  write("# layers\n\n  q 1,64,32 # a comment\r\nv\t*,8,8");
  const std::vector<BenchShape> shapes = ReadBenchShapes(path, 3);
  ASSERT_EQ(shapes.size(), 2u);
  EXPECT_EQ(shapes[0].name, "q");
  EXPECT_EQ(shapes[0].n, 32);
  EXPECT_EQ(shapes[1].name, "v");
  EXPECT_EQ(shapes[1].m, 3);
  write("q 1,64,32\nv 1,8\n");
  EXPECT_THAT(ErrorOf([&] { ReadBenchShapes(path, 1); }, ErrorKind::kInput), HasSubstr("line 2"));
  write("1,64,32\n");
  EXPECT_THAT(ErrorOf([&] { ReadBenchShapes(path, 1); }, ErrorKind::kInput), HasSubstr("line 1"));
  write("# nothing\n");
  EXPECT_THAT(ErrorOf([&] { ReadBenchShapes(path, 1); }, ErrorKind::kInput), HasSubstr("no shape"));
}

TEST(BenchShape, TheFilesOfTheRepositoryAreRead) {
  const std::string folder = test::SourcePath("bench/shapes/");
  EXPECT_EQ(ReadBenchShapes(folder + "packed12-report.txt", 1).size(), 4u);
  EXPECT_GE(ReadBenchShapes(folder + "models.txt", 1).size(), 25u);
}

TEST(BenchVariant, IsAFormatAndAStrategy) {
  EXPECT_EQ(ParseBenchVariant("affine4g64").strategy, Strategy::kFused);
  EXPECT_EQ(ParseBenchVariant("affine4g64:dequant_gemm").strategy, Strategy::kDequantGemm);
  const BenchVariant colons = ParseBenchVariant("mxfp4:ceil:fused-a8");
  EXPECT_EQ(colons.format->Name(), "mxfp4:ceil");
  EXPECT_EQ(colons.strategy, Strategy::kFusedA8);
  EXPECT_EQ(colons.spec, "mxfp4:ceil:fused-a8");
  EXPECT_EQ(ParseBenchVariant("stored:reference").format, nullptr);
  ErrorOf([] { ParseBenchVariant("affine4g64:magic"); }, ErrorKind::kUsage);
  ErrorOf([] { ParseBenchVariant("gptq4g128"); }, ErrorKind::kUsage);
}

TEST(Bench, EveryVariantHasASampleForEveryRoundAndPreemptedOnesDoNotCount) {
  // read, bf16, affine, then the two multiplying probes, in each of 5 rounds.
  FakeClock clock{{{1.0, false}, {2.0, false}, {3.0, true}, {1.0, false}, {1.0, false}}};
  BenchOptions options = Tiny({"bf16", "affine4g64"});
  options.timer = clock.Timer();
  const BenchReport report = RunBench(options);
  ASSERT_EQ(report.trials.size(), 2u);
  // Not one sample of the second variant was left alone: three times the rounds were tried.
  EXPECT_EQ(report.operators[0].rounds, 15);
  for (const BenchTrial& trial : report.trials) EXPECT_EQ(trial.samples.samples().size(), 15u);
  EXPECT_EQ(report.trials[0].samples.num_preempted(), 0);
  EXPECT_EQ(report.trials[0].samples.Median(), 2.0);
  EXPECT_EQ(report.trials[1].samples.num_preempted(), 15);
  const std::string text = BenchText(report, nullptr, DescribeMachine(), true, {});
  EXPECT_THAT(text, HasSubstr("15 of 30 samples were preempted and left out"));
  EXPECT_THAT(text, HasSubstr("3.00 ms*"));
}

TEST(Bench, StopsAtTheRoundsAskedForWhenHalfOfThemAreClean) {
  FakeClock clock{{{1.0, false},
                   {2.0, true},
                   {1.0, false},
                   {1.0, false},
                   {1.0, false},
                   {8.0, false},
                   {1.0, false},
                   {1.0, false}}};
  BenchOptions options = Tiny({"bf16"});
  options.repeats = 6;
  options.timer = clock.Timer();
  const BenchReport report = RunBench(options);
  EXPECT_EQ(report.operators[0].rounds, 6);
  EXPECT_EQ(report.trials[0].samples.num_preempted(), 3);
  EXPECT_EQ(report.trials[0].samples.Median(), 8.0);
}

TEST(Bench, ErrorsAreThoseOfTheFormat) {
  const BenchReport report =
      RunBench(Tiny({"bf16", "packed12", "affine8g64", "affine4g64", "affine4g64:reference"}));
  ASSERT_EQ(report.trials.size(), 5u);
  const BenchTrial& bf16 = report.trials[0];
  EXPECT_EQ(bf16.error.max_abs, 0);
  EXPECT_EQ(bf16.error.equal_fraction, 1);
  EXPECT_EQ(bf16.weight_bytes, 2 * 256 * 64);
  EXPECT_EQ(bf16.bytes_per_call, bf16.weight_bytes + 2 * 2 * 256);
  EXPECT_EQ(report.trials[1].bits_identical, true);
  EXPECT_LT(*report.trials[1].error_f32.relative_rmse, 1e-6);
  EXPECT_FALSE(report.trials[2].bits_identical.has_value());
  EXPECT_LT(*report.trials[2].error.relative_rmse, 0.02);
  EXPECT_GT(*report.trials[3].error.relative_rmse, 0.05);
  EXPECT_LT(*report.trials[3].error.relative_rmse, 0.2);
  EXPECT_NEAR(*report.trials[4].error_f32.relative_rmse, *report.trials[3].error_f32.relative_rmse,
              1e-5);
}

TEST(Bench, WeightsAndOutputsHaveTheSameBitsForEveryThreadCount) {
  const int before = NumThreads();
  std::vector<uint64_t> expected;
  for (const int threads : {1, 2, 3}) {
    SetNumThreads(threads);
    BenchOptions options = Tiny({"bf16", "packed12", "affine4g64", "mxfp4", "affine4g64:fused-a8"});
    options.repeats = 1;
    const BenchReport report = RunBench(options);
    std::vector<uint64_t> found;
    for (const BenchTrial& trial : report.trials) found.push_back(trial.checksum);
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected) << threads;
  }
  SetNumThreads(before);
}

TEST(Bench, SyntheticWeightsEscapeAsOftenAsRealOnes) {
  const Tensor weight = SyntheticBenchWeight(512, 1024, 42);
  const FormatPtr packed = Format::Parse("packed12");
  const EncodedMatrix encoded = packed->Encode(MatrixView(weight.view(), 512, 1024), {});
  double share = -1;
  for (const auto& [name, value] : packed->Figures(encoded)) {
    if (name == "escape_fraction") share = value;
  }
  EXPECT_GT(share, 1e-4);
  EXPECT_LT(share, 5e-3);
}

TEST(Bench, SmallWeightsAreColdByAWalkAndLargeOnesByCopies) {
  BenchOptions options = Tiny({"bf16"});
  options.repeats = 1;
  options.cold_bytes = 64 * kMiB;  // of 32 KiB and a probe of 16 MiB a round
  const BenchReport rotated = RunBench(options);
  EXPECT_EQ(rotated.operators[0].copies, 4);
  EXPECT_FALSE(rotated.operators[0].walks);
  options.memory_bytes = 60 * kMiB;  // room for some of the probe only
  const BenchReport report = RunBench(options);
  EXPECT_LE(report.operators[0].probe_bytes, 16 * kMiB);
  EXPECT_FALSE(report.operators[0].cold_enough && report.operators[0].cold_bytes < 64 * kMiB);
  options.hot = true;
  const BenchReport hot = RunBench(options);
  EXPECT_EQ(hot.operators[0].copies, 1);
  EXPECT_EQ(hot.operators[0].probe_bytes, 2 * 256 * 64);
}

TEST(Bench, CpuTimeIsThatOfOneThread) {
  const int before = NumThreads();
  BenchOptions options = Tiny({"bf16"});
  options.cpu_time = true;
  SetNumThreads(2);
  EXPECT_THAT(ErrorOf([&] { RunBench(options); }, ErrorKind::kUsage), HasSubstr("one thread"));
  SetNumThreads(1);
  const BenchReport report = RunBench(options);
  EXPECT_GT(report.trials[0].samples.Median(), 0);
  SetNumThreads(before);
}

TEST(Bench, AShapeThatDoesNotFitTheMemoryIsRefusedBeforeAnyWork) {
  BenchOptions options = Tiny({"bf16"});
  options.shapes = {{"huge", 1, int64_t{1} << 30, int64_t{1} << 30}};
  const std::string message = ErrorOf([&] { RunBench(options); }, ErrorKind::kUsage);
  EXPECT_THAT(message, HasSubstr("GB are needed"));
  options.shapes = {{"", 1, 4096, 4096}};
  options.memory_bytes = kMiB;
  EXPECT_THAT(ErrorOf([&] { RunBench(options); }, ErrorKind::kUsage), HasSubstr("0.0 GB may"));
}

TEST(Bench, AFormatThatDoesNotFitIsSkippedAndNothingAtAllIsAnError) {
  BenchOptions options = Tiny({"bf16", "affine4g64"});
  options.shapes = {{"odd", 1, 63, 5}};
  options.repeats = 1;
  const BenchReport report = RunBench(options);
  EXPECT_EQ(report.trials.size(), 1u);
  ASSERT_EQ(report.skipped.size(), 1u);
  EXPECT_EQ(report.skipped[0].op, "odd");
  EXPECT_EQ(report.skipped[0].variant, "affine4g64");
  options.variants = {"affine4g64"};
  EXPECT_THAT(ErrorOf([&] { RunBench(options); }, ErrorKind::kUsage),
              HasSubstr("nothing was timed"));
  options.variants = {"stored"};
  EXPECT_THAT(ErrorOf([&] { RunBench(options); }, ErrorKind::kUsage), HasSubstr("model"));
}

TEST(BenchSpeed, StandsUnderTheLowerOfTwoRoofs) {
  const BenchRoof roof{10, 400, 500};
  const BenchSpeed read = SpeedOf(2.0, 10'000'000, 1e7, roof);
  EXPECT_TRUE(read.bound_by_read);
  EXPECT_DOUBLE_EQ(read.roof_ms, 1.0);
  EXPECT_DOUBLE_EQ(read.gb_per_s, 5.0);
  EXPECT_DOUBLE_EQ(read.gflops, 5.0);
  EXPECT_DOUBLE_EQ(read.fraction_of_roof, 0.5);
  EXPECT_FALSE(read.above_roof);
  const BenchSpeed multiply = SpeedOf(4.0, 10'000'000, 1e9, roof);
  EXPECT_FALSE(multiply.bound_by_read);
  EXPECT_DOUBLE_EQ(multiply.roof_ms, 2.0);
  EXPECT_TRUE(SpeedOf(0.9, 10'000'000, 1e7, roof).above_roof);
  EXPECT_FALSE(SpeedOf(1.0, 10'000'000, 1e7, roof).above_roof);
  EXPECT_EQ(SpeedOf(0, 10, 10, roof).gb_per_s, 0);
}

TEST(BenchReport, ASpeedAboveTheRoofIsNoFact) {
  // The probe takes 1 ms for its bytes, the weight a tenth of a microsecond.
  FakeClock clock{{{1.0, false}, {1e-4, false}, {1e9, false}, {1e9, false}}};
  BenchOptions options = Tiny({"bf16"});
  options.timer = clock.Timer();
  const BenchReport report = RunBench(options);
  ASSERT_TRUE(report.trials[0].speed.above_roof);
  const Machine machine = DescribeMachine();
  const std::string text = BenchText(report, nullptr, machine, true, {});
  EXPECT_THAT(text, HasSubstr("above the roof"));
  EXPECT_THAT(text, HasSubstr("faster than the measured roof"));
  const Json json = BenchJson(report, nullptr, "assay bench", machine);
  const Json& trial = json["trials"][0];
  EXPECT_TRUE(trial["above_roof"]);
  for (const char* key : {"gb_per_s", "gflops", "fraction_of_roof"}) {
    EXPECT_TRUE(trial[key].is_null()) << key;
  }
  EXPECT_EQ(trial["samples_ms"].size(), 5u);
}

TEST(BenchReport, ARooflineHasALetterForEveryTrial) {
  FakeClock clock{{{1.0, false}, {1.0, false}, {2.0, false}, {1e-2, false}, {1e-2, false}}};
  BenchOptions options = Tiny({"bf16", "affine4g64"});
  options.timer = clock.Timer();
  const BenchReport report = RunBench(options);
  const std::string text = RooflineText(report, 0);
  EXPECT_THAT(text, HasSubstr("a bf16 · b affine4g64"));
  EXPECT_THAT(text, HasSubstr("/"));
  size_t start = 0;
  for (size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
    EXPECT_LE(DisplayWidth(text.substr(start, end - start)), 100u);
  }
}

TEST(BenchReport, BarsAreEighthsOfACharacter) {
  EXPECT_EQ(Bar(0, 4), "");
  EXPECT_EQ(Bar(0.5, 4), "██");
  EXPECT_EQ(Bar(1, 2), "██");
  EXPECT_EQ(Bar(7, 2), "██");
  EXPECT_EQ(Bar(0.25 + 0.125 / 4, 4), "█▏");
  EXPECT_EQ(Bar(std::nan(""), 4), "");
}

BenchBaseline BaselineOf(const BenchReport& report, double factor) {
  BenchBaseline baseline;
  baseline.path = "then.json";
  for (const BenchTrial& trial : report.trials) {
    const BenchShape& shape = report.operators[trial.op].shape;
    std::vector<double> samples = KeptSamples(trial.samples);
    for (double& sample : samples) sample /= factor;
    baseline.trials.push_back({shape.name, trial.variant.spec, shape.m, shape.k, shape.n, samples,
                               report.operators[trial.op].roof.read_gb_per_s / 2,
                               fmt::format("{:016x}", trial.checksum)});
  }
  return baseline;
}

TEST(BenchBaseline, OnlyWhatPassesTheNoiseIsAChange) {
  FakeClock clock{{{1.0, false},
                   {2.0, false},
                   {1.0, false},
                   {1.0, false},
                   {1.0, false},
                   {2.1, false},
                   {1.0, false},
                   {1.0, false}}};
  BenchOptions options = Tiny({"bf16:fused"});
  options.repeats = 9;
  options.timer = clock.Timer();
  const BenchReport report = RunBench(options);
  for (const auto& [factor, slower, faster] :
       {std::tuple(1.0, false, false), std::tuple(1.3, true, false),
        std::tuple(0.7, false, true)}) {
    BenchBaseline baseline = BaselineOf(report, factor);
    baseline.trials[0].variant = "bf16";  // the same variant under its short name
    const BenchComparison comparison = CompareWithBaseline(report, "now", baseline);
    ASSERT_EQ(comparison.changes.size(), 1u);
    const BenchChange& change = comparison.changes[0];
    EXPECT_EQ(change.slower(), slower) << factor;
    EXPECT_EQ(change.faster(), faster) << factor;
    EXPECT_LE(change.time.low, change.time.ratio);
    EXPECT_GE(change.time.high, change.time.ratio);
    EXPECT_FALSE(change.other_bits);
    EXPECT_DOUBLE_EQ(change.read_ratio, 2.0);
    const BenchComparison again = CompareWithBaseline(report, "now", baseline);
    EXPECT_EQ(again.changes[0].time.low, change.time.low);
    EXPECT_EQ(again.changes[0].time.high, change.time.high);
  }
  BenchBaseline other = BaselineOf(report, 1);
  other.trials[0].checksum = "0";
  EXPECT_TRUE(CompareWithBaseline(report, "now", other).changes[0].other_bits);
  other.trials[0].k += 1;
  ErrorOf([&] { CompareWithBaseline(report, "now", other); }, ErrorKind::kInput);
}

TEST(BenchBaseline, ReadsTheReportThatPeopleWrote) {
  const BenchBaseline baseline = ReadBenchBaseline(test::TestDataPath("bench/bench-packed12.json"));
  ASSERT_EQ(baseline.trials.size(), 36u);
  EXPECT_EQ(baseline.trials[0].op, "attn.qkv_proj");
  EXPECT_EQ(baseline.trials[0].n, 21504);
  EXPECT_EQ(baseline.trials[0].samples_ms.size(), 7u);
  EXPECT_EQ(baseline.machine, "macOS-27.0.1-arm64-arm-64bit");
}

TEST(BenchBaseline, NamesWhatIsWrongInAFile) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("then.json");
  const auto fault = [&](const std::string& text) {
    std::ofstream(path) << text;
    return ErrorOf([&] { ReadBenchBaseline(path); }, ErrorKind::kInput);
  };
  const std::string good = R"("operator":"a","variant":"bf16","shape":[1,2,3])";
  EXPECT_THAT(fault("[]"), HasSubstr("then.json"));
  EXPECT_THAT(fault("{"), HasSubstr("then.json"));
  EXPECT_THAT(fault("{}"), HasSubstr("no \"trials\""));
  EXPECT_THAT(fault(R"({"trials":[]})"), HasSubstr("no \"trials\""));
  EXPECT_THAT(fault(R"({"trials":[3]})"), HasSubstr("trials[0]: expected an object"));
  EXPECT_THAT(fault(R"({"trials":[{"variant":"bf16"}]})"), HasSubstr("\"operator\""));
  EXPECT_THAT(fault("{\"trials\":[{" + good + "}]}"), HasSubstr("\"samples_ms\""));
  EXPECT_THAT(fault("{\"trials\":[{" + good + ",\"samples_ms\":[\"x\"]}]}"),
              HasSubstr("\"samples_ms\""));
  EXPECT_THAT(fault(R"({"trials":[{"operator":"a","variant":"b","shape":[1,-2,3]}]})"),
              HasSubstr("\"shape\""));
}

}  // namespace
}  // namespace assay

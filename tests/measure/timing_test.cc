#include "assay/measure/timing.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/measure/bootstrap.h"
#include "assay/measure/machine.h"
#include "assay/measure/read_probe.h"

namespace assay {
namespace {

TEST(TimingSamples, OfNothingAreZero) {
  const TimingSamples samples;
  EXPECT_EQ(samples.Median(), 0);
  EXPECT_EQ(samples.Min(), 0);
  EXPECT_EQ(samples.Max(), 0);
}

TEST(TimingSamples, MedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  TimingSamples samples;
  for (const double ms : {4.0, 1.0, 3.0, 10.0}) samples.Add(ms);
  EXPECT_DOUBLE_EQ(samples.Median(), 3.5);
  EXPECT_DOUBLE_EQ(samples.Min(), 1.0);
  EXPECT_DOUBLE_EQ(samples.Max(), 10.0);
}

TEST(TimingSamples, PreemptedOnesAreKeptButLeftOut) {
  TimingSamples samples;
  samples.Add(1.0);
  samples.Add(100.0, true);
  samples.Add(2.0);
  EXPECT_EQ(samples.samples().size(), 3u);
  EXPECT_EQ(samples.num_preempted(), 1);
  EXPECT_DOUBLE_EQ(samples.Max(), 2.0);
}

TEST(TimingSamples, WhenAllArePreemptedTheyAreAllThereIs) {
  TimingSamples samples;
  samples.Add(5.0, true);
  EXPECT_DOUBLE_EQ(samples.Median(), 5.0);
}

TEST(TimeRepeats, CallsWarmUpsUntimed) {
  int calls = 0;
  const TimingSamples samples = TimeRepeats(2, 3, [&] { ++calls; });
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(samples.samples().size(), 3u);
}

TEST(WasPreempted, AsksForATwentiethAndMoreThanAWakeUp) {
  EXPECT_FALSE(WasPreempted(1.0, 0.0));
  EXPECT_FALSE(WasPreempted(1.0, 0.049));
  EXPECT_TRUE(WasPreempted(1.0, 0.051));
  EXPECT_FALSE(WasPreempted(1e-5, 0.9e-4));
  EXPECT_TRUE(WasPreempted(1.1e-4, 1.01e-4));
}

TEST(WorkerWatch, CountsWhatAWorkerSleepsInAndBetweenLoops) {
  const int before = NumThreads();
  for (const int threads : {1, 3}) {
    SetNumThreads(threads);
    const WorkerWatch watch;
    ParallelFor(0, 2, 1, [](int64_t first, int64_t) {
      if (first == 0) usleep(30000);
    });
    const double in_loop = watch.LostSeconds();
    EXPECT_GT(in_loop, 0.029) << threads;
    usleep(20000);
    EXPECT_GT(watch.LostSeconds(), in_loop + 0.019) << threads;
  }
  SetNumThreads(before);
  EXPECT_TRUE(TimeOnce([] { usleep(30000); }).preempted);
  EXPECT_GT(TimeOnce([] { usleep(30000); }).ms, 29);
}

TEST(WorkerWatch, IsAloneAndLeavesLoopsAsTheyAre) {
  const WorkerWatch watch;
  EXPECT_THROW(WorkerWatch(), Error);
  std::atomic<int64_t> sum{0};
  const auto add = [&](int64_t first, int64_t last) {
    // Loops in loops stay on their worker.
    ParallelFor(first, last, 1, [&](int64_t i, int64_t) { sum += i; });
  };
  ParallelFor(0, 1000, 7, add);
  EXPECT_EQ(sum, 499500);
  EXPECT_THROW(ParallelFor(0, 10, 1, [](int64_t, int64_t) { ThrowInternal("stop"); }), Error);
}

TEST(ReadProbe, ReadsEveryWord) {
  std::vector<uint64_t> words(1003);
  uint64_t expected = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = i * i * 0x9E3779B97F4A7C15u;
    expected += words[i];
  }
  EXPECT_EQ(SumOfWords(words.data(), 1003), expected);
  EXPECT_EQ(SumOfWords(words.data(), 0), 0u);
  ReadProbe probe(8192, 3);
  for (int64_t piece = 0; piece < 7; ++piece) probe.Read(piece);
  probe.ReadAll();
}

TEST(CompareMedians, FindsWhatIsThereAndNothingElse) {
  std::vector<double> a;
  std::vector<double> b;
  for (int i = 0; i < 30; ++i) {
    a.push_back(10 + 0.1 * (i % 7));
    b.push_back(10 + 0.1 * (i % 5));
  }
  const MedianRatio same = CompareMedians(a, a);
  EXPECT_EQ(same.ratio, 1);
  EXPECT_FALSE(same.differs());
  EXPECT_FALSE(CompareMedians(a, b).differs() && CompareMedians(a, b).ratio < 0.99);
  std::vector<double> slow = a;
  for (double& value : slow) value *= 1.2;
  const MedianRatio slower = CompareMedians(slow, a);
  EXPECT_TRUE(slower.differs());
  EXPECT_NEAR(slower.ratio, 1.2, 1e-12);
  EXPECT_LT(slower.low, 1.2);
  EXPECT_GT(slower.high, 1.2);
  const MedianRatio again = CompareMedians(slow, a);
  EXPECT_EQ(slower.low, again.low);
  EXPECT_EQ(slower.high, again.high);
}

TEST(CompareMedians, TrustsFewSamplesNoFurtherThanTheirRange) {
  const std::vector<double> a = {1.0, 1.5};
  const std::vector<double> b = {1.2};
  const MedianRatio ratio = CompareMedians(a, b);
  EXPECT_DOUBLE_EQ(ratio.low, 1.0 / 1.2);
  EXPECT_DOUBLE_EQ(ratio.high, 1.5 / 1.2);
  EXPECT_FALSE(ratio.differs());
  EXPECT_THROW(CompareMedians(a, {}), Error);
  EXPECT_THROW(CompareMedians(a, std::vector<double>{0.0}), Error);
}

TEST(Machine, TellsItsFreeMemory) {
  const int64_t free = FreeMemoryBytes();
  EXPECT_GT(free, 0);
  EXPECT_LE(free, DescribeMachine().memory_bytes);
}

TEST(Machine, KnowsItself) {
  const Machine machine = DescribeMachine();
  EXPECT_FALSE(machine.cpu.empty());
  EXPECT_GE(machine.num_cpus, 1);
  EXPECT_GE(machine.threads, 1);
  EXPECT_GT(machine.memory_bytes, 0);
  EXPECT_FALSE(machine.compiler.empty());
}

}  // namespace
}  // namespace assay

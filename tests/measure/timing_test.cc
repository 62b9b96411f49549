#include "assay/measure/timing.h"

#include <gtest/gtest.h>

#include "assay/measure/machine.h"

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

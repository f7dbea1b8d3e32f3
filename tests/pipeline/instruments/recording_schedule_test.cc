#include "pipeline/instruments/depth_recorder.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> Steps(const DepthOptions& options, int64_t begin, int64_t end) {
  std::vector<int64_t> steps;
  for (int64_t step = begin; step < end; ++step) {
    if (IsRecordingStep(options, step)) steps.push_back(step);
  }
  return steps;
}

TEST(RecordingSchedule, AllOfTheFirstStepsThenFewerAndFewer) {
  const DepthOptions options{.dense_steps = 4, .per_decade = 4};
  // 4·10^(k/4) = 4, 7.1, 12.6, 22.5, 40, 71.1, 126.5, …
  EXPECT_THAT(Steps(options, 0, 130), ElementsAre(0, 1, 2, 3, 4, 8, 13, 23, 40, 72, 127));
}

TEST(RecordingSchedule, EachDecadeHasAsManyAsItSays) {
  const DepthOptions options{.dense_steps = 100, .per_decade = 20};
  EXPECT_EQ(Steps(options, 0, 100).size(), 100u);
  EXPECT_EQ(Steps(options, 100, 1000).size(), 20u);
  EXPECT_EQ(Steps(options, 1000, 10000).size(), 20u);
  EXPECT_TRUE(IsRecordingStep(options, 1000));
  EXPECT_TRUE(IsRecordingStep(options, 10000));
}

TEST(RecordingSchedule, WithoutDenseStepsCountingBeginsAtOne) {
  EXPECT_THAT(Steps({.dense_steps = 0, .per_decade = 1}, 0, 2000), ElementsAre(1, 10, 100, 1000));
  EXPECT_THAT(Steps({.dense_steps = 2, .per_decade = 0}, 0, 2000), ElementsAre(0, 1));
}

TEST(RecordingSchedule, OffIsOff) { EXPECT_TRUE(Steps({.enabled = false}, 0, 300).empty()); }

}  // namespace
}  // namespace hadal

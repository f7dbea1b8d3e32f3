#include "tools/metrics/work_progress.h"

#include <chrono>
#include <sstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(WorkProgress, LineSaysHowMuchIsDoneAndWhenItEnds) {
  EXPECT_EQ(WorkProgressLine("encoding train", "bytes", 12'300'000, 30'000'000, 10),
            "encoding train  41%  12.3M/30.0M bytes  ETA 14s");
  EXPECT_EQ(WorkProgressLine("scoring", "lines", 0, 9'999, 2), "scoring   0%  0/9,999 lines");
  EXPECT_EQ(WorkProgressLine("scoring", "lines", 12'000, 9'999, 2), "scoring  100%  9,999/9,999 lines  ETA 0.0s");
  EXPECT_EQ(WorkProgressLine("scoring", "lines", 9'999, 0, 60), "scoring  9,999 lines  1m00s");
  EXPECT_EQ(WorkProgressLine("training the vocabulary", "", 0, 0, 12), "training the vocabulary  12s");
}

TEST(WorkProgress, OnATerminalTheLineMovesAndDisappears) {
  std::ostringstream out;
  {
    WorkProgress progress(
        {.out = out, .style = {.live = true, .columns = 30}, .first_seconds = 0.01, .live_seconds = 0.01}, "verifying",
        "checkpoints", 4);
    progress.Advance(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  EXPECT_THAT(out.str(), HasSubstr("\r\033[Kverifying  25%  1/4 checkpoin\r\033[Kverifying"));
  EXPECT_THAT(out.str(), EndsWith("\r\033[K"));
}

TEST(WorkProgress, ElsewhereALineComesAtIntervalsAndNothingForShortWork) {
  std::ostringstream out, nothing;
  {
    WorkProgress progress({.out = out, .style = {}, .plain_seconds = 0.05}, "verifying", "checkpoints", 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    WorkProgress brief({.out = nothing, .style = {.live = true}}, "verifying", "checkpoints", 0);
  }
  EXPECT_THAT(out.str(), ContainsRegex("verifying  [0-9.]+s\n"));
  EXPECT_EQ(nothing.str(), "");
}

}  // namespace
}  // namespace hadal

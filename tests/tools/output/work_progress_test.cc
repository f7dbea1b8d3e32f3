#include "tools/output/work_progress.h"

#include <mutex>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/clock.h"

namespace hadal {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// What a thread has written so far.
class Written : public std::streambuf {
 public:
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  // Waits until it contains `words`, however late the thread of a busy machine is.
  void Await(const std::string& words) const {
    for (const Stopwatch watch; !absl::StrContains(text(), words) && watch.Seconds() < 60;) {
      absl::SleepFor(absl::Milliseconds(5));
    }
  }

 protected:
  std::streamsize xsputn(const char* data, std::streamsize count) override {
    const std::lock_guard lock(mutex_);
    text_.append(data, count);
    return count;
  }
  int_type overflow(int_type c) override {
    const char byte = traits_type::to_char_type(c);
    xsputn(&byte, 1);
    return c;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

TEST(WorkProgress, LineSaysHowMuchIsDoneAndWhenItEnds) {
  EXPECT_EQ(WorkProgressLine("encoding train", "bytes", 12'300'000, 30'000'000, 10),
            "encoding train  41%  12.3M/30.0M bytes  ETA 14s");
  EXPECT_EQ(WorkProgressLine("scoring", "lines", 0, 9'999, 2), "scoring   0%  0/9,999 lines");
  EXPECT_EQ(WorkProgressLine("scoring", "lines", 12'000, 9'999, 2), "scoring  100%  9,999/9,999 lines  ETA 0.0s");
  EXPECT_EQ(WorkProgressLine("scoring", "lines", 9'999, 0, 60), "scoring  9,999 lines  1m00s");
  EXPECT_EQ(WorkProgressLine("training the vocabulary", "", 0, 0, 12), "training the vocabulary  12s");
}

TEST(WorkProgress, OnATerminalTheLineMovesAndDisappears) {
  Written written;
  std::ostream out(&written);
  const std::string twice = "\r\033[Kverifying  25%  1/4 checkpoin\r\033[Kverifying";
  {
    WorkProgress progress(
        {.out = out, .style = {.live = true, .columns = 30}, .first_seconds = 0.01, .live_seconds = 0.01}, "verifying",
        "checkpoints", 4);
    progress.Advance(1);
    written.Await(twice);
  }
  EXPECT_THAT(written.text(), HasSubstr(twice));
  EXPECT_THAT(written.text(), EndsWith("\r\033[K"));
}

TEST(WorkProgress, ElsewhereALineComesAtIntervalsAndNothingForShortWork) {
  Written written;
  std::ostream out(&written);
  std::ostringstream nothing;
  {
    WorkProgress progress({.out = out, .style = {}, .plain_seconds = 0.05}, "verifying", "checkpoints", 0);
    written.Await("\n");
    WorkProgress brief({.out = nothing, .style = {.live = true}}, "verifying", "checkpoints", 0);
  }
  EXPECT_THAT(written.text(), ContainsRegex("verifying  [0-9.]+s\n"));
  EXPECT_EQ(nothing.str(), "");
}

}  // namespace
}  // namespace hadal

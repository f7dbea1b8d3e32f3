#include "launch/time_limit.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "launch/exit_code.h"
#include "launch/world.h"

namespace hadal {
namespace {

class TimeLimitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("HADAL_JOB_START");
    unsetenv("SLURM_JOB_END_TIME");
    unsetenv("SLURM_JOB_START_TIME");
  }
  void TearDown() override { SetUp(); }

  static void Set(const char* name, absl::Time time) {
    setenv(name, absl::StrCat(absl::ToUnixSeconds(time)).c_str(), 1);
  }
  // Seconds from now to the limit.
  static double Ahead(const std::string& stop_after) {
    return absl::ToDoubleSeconds(TimeLimit::Make(stop_after).value().at() - absl::Now());
  }
};

TEST_F(TimeLimitTest, NoneByDefault) {
  const TimeLimit limit = TimeLimit::Make("").value();
  EXPECT_EQ(limit.at(), absl::InfiniteFuture());
  EXPECT_FALSE(limit.Reached());
}

TEST_F(TimeLimitTest, CountsFromNow) {
  EXPECT_NEAR(Ahead("3h55m"), 3 * 3600 + 55 * 60, 60);
  EXPECT_FALSE(TimeLimit::Make("1h").value().Reached());
  EXPECT_TRUE(TimeLimit::Make("1ns").value().Reached());
}

TEST_F(TimeLimitTest, AStartThatIsNoTimeIsNone) {
  for (const char* text : {"", "0", "-5", "yesterday"}) {
    setenv("HADAL_JOB_START", text, 1);
    EXPECT_NEAR(Ahead("1h"), 3600, 60) << text;
  }
}

TEST_F(TimeLimitTest, CountsFromTheFirstStartThatASupervisorMarks) {
  MarkJobStart();
  ASSERT_NE(std::getenv("HADAL_JOB_START"), nullptr);
  EXPECT_NEAR(Ahead("1h"), 3600, 60);
  Set("HADAL_JOB_START", absl::Now() - absl::Hours(3));
  MarkJobStart();
  EXPECT_NEAR(Ahead("4h"), 3600, 60);
  EXPECT_TRUE(TimeLimit::Make("2h").value().Reached());
}

TEST_F(TimeLimitTest, TheEarlierOfTwoLimitsCounts) {
  Set("SLURM_JOB_END_TIME", absl::Now() + absl::Hours(1));
  EXPECT_NEAR(Ahead(""), 3600 - 300, 60);
  EXPECT_NEAR(Ahead("2h"), 3600 - 300, 60);
  EXPECT_NEAR(Ahead("10m"), 600, 60);
}

TEST_F(TimeLimitTest, TheEndOfAJobThatIsOverIsNone) {
  Set("SLURM_JOB_START_TIME", absl::Now() - absl::Hours(5));
  Set("SLURM_JOB_END_TIME", absl::Now() - absl::Seconds(2));
  EXPECT_EQ(TimeLimit::Make("").value().at(), absl::InfiniteFuture());
  EXPECT_NEAR(Ahead("2h"), 7200, 60);
}

TEST_F(TimeLimitTest, AShortSlurmJobKeepsATenthOfItsTime) {
  Set("SLURM_JOB_START_TIME", absl::Now() - absl::Seconds(1000));
  Set("SLURM_JOB_END_TIME", absl::Now() + absl::Seconds(1000));
  EXPECT_NEAR(Ahead(""), 1000 - 200, 60);
  EXPECT_FALSE(TimeLimit::Make("").value().Reached());
}

TEST_F(TimeLimitTest, RefusesWhatIsNoDuration) {
  for (const char* text : {"soon", "3:55", "-1h", "0s", "10"}) {
    EXPECT_EQ(TimeLimit::Make(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(StartDeadlineDeathTest, AProcessThatWaitsTooLongSaysSoAndExits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait = [] {
    const StartDeadline deadline("rank 3", absl::Milliseconds(50));
    absl::SleepFor(absl::Seconds(30));
  };
  EXPECT_EXIT(wait(), ::testing::ExitedWithCode(kExitHang), "hadal \\[rank 3\\]: gave up after 50ms waiting for all");
}

TEST(StartDeadlineTest, NothingHappensOnceItIsGone) {
  { const StartDeadline deadline("rank 0", absl::Seconds(2)); }
  absl::SleepFor(absl::Milliseconds(2100));
}

}  // namespace
}  // namespace hadal

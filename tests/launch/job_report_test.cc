#include "launch/job_report.h"

#include <cstdlib>
#include <filesystem>

#include "gmock/gmock.h"
#include "runtime/run_directory.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

JobReport StartAt(int64_t start, int64_t saved) { return {.run_directory = "/r", .start = start, .saved = saved}; }

TEST(JobReport, IsWhatRankZeroWrites) {
  const TemporaryDirectory directory;
  SetContents(directory / "report", "");
  setenv(kReportVariable, (directory / "report").c_str(), 1);
  const std::unique_ptr<MetricsSink> sink = MakeJobReport();
  sink->OnStart({.run_directory = "a run", .first_step = 41});
  sink->OnCheckpoint({.step = 60});
  sink->OnCheckpoint({.step = 70, .in_memory = true});
  ReportEnd(85);
  unsetenv(kReportVariable);
  ReportEnd(1);
  const JobReport report = ParseJobReport(Contents(directory / "report"));
  EXPECT_EQ(report.run_directory, (std::filesystem::current_path() / "a run").string());
  EXPECT_EQ(report.start, 40);
  EXPECT_EQ(report.saved, 60);
  EXPECT_EQ(report.copied, 70);
  EXPECT_TRUE(report.ended && report.saved_at_end);
}

TEST(JobReport, AStartFromACopyInMemoryIsNotSaved) {
  const TemporaryDirectory directory;
  SetContents(directory / "report", "");
  setenv(kReportVariable, (directory / "report").c_str(), 1);
  MakeJobReport()->OnStart({.run_directory = "r", .first_step = 71, .from_copy = true});
  unsetenv(kReportVariable);
  const JobReport report = ParseJobReport(Contents(directory / "report"));
  EXPECT_EQ(report.start, 70);
  EXPECT_EQ(report.saved, -1);
  EXPECT_EQ(report.copied, 70);
}

TEST(JobReport, WithoutASupervisorsFileNothingIsWritten) {
  const TemporaryDirectory directory;
  setenv(kReportVariable, (directory / "none").c_str(), 1);  // as on another host
  ReportEnd(0);
  unsetenv(kReportVariable);
  EXPECT_FALSE(std::filesystem::exists(directory / "none"));
}

TEST(JobReport, OfAScriptWithSeveralRunsTheEndIsTheLastRuns) {
  const JobReport report = ParseJobReport("start 0 /a\nsaved 20\nend 85\nstart 5 /b\nsaved 10\n");
  EXPECT_EQ(report.run_directory, "/b");
  EXPECT_EQ(report.start, 0);
  EXPECT_EQ(report.saved, 20);
  EXPECT_FALSE(report.ended || report.saved_at_end);
  EXPECT_TRUE(ParseJobReport("start 0 /a\nend 85\nend 6\n").saved_at_end) << "one rank has saved";
}

TEST(JobReport, TheFailureIsTheLeastCodeThatIsOne) {
  const auto failure = [](const std::string& ends) { return ParseJobReport("start 0 /a\n" + ends).failure; };
  EXPECT_EQ(failure("end 6\nend 4\nend 5\n"), 4) << "the others have lost that rank";
  EXPECT_EQ(failure("end 6\nend 0\n"), 6);
  EXPECT_EQ(failure("end 0\nend 85\n"), 0);
  EXPECT_EQ(failure("end 6\nstart 5 /a\nend 0\n"), 0);
}

TEST(JobReport, IgnoresWhatItCannotRead) {
  for (const char* text :
       {"", "\n", "start\n", "start x /a\n", "start 3\n", "start 3 /a", "saved\n", "saved 9", "\xff 1\n"}) {
    const JobReport report = ParseJobReport(text);
    EXPECT_EQ(report.start, -1) << text;
    EXPECT_EQ(report.saved, -1) << text;
    EXPECT_FALSE(report.ended) << text;
  }
}

TEST(FurthestStep, OnlyAStepBeyondAllEarlierStartsIsProgress) {
  FurthestStep furthest("none", /*asked=*/false);
  EXPECT_EQ(furthest.Describe(), "its newest checkpoint or the beginning");
  EXPECT_FALSE(furthest.Advance(StartAt(40, 40))) << "where the first start resumed";
  EXPECT_TRUE(furthest.Advance(StartAt(40, 60)));
  EXPECT_FALSE(furthest.Advance(StartAt(40, 60))) << "it went back and came as far";
  EXPECT_FALSE(furthest.Advance(StartAt(0, 20)));
  EXPECT_FALSE(furthest.Advance({})) << "it ended before rank 0 reported";
  EXPECT_TRUE(furthest.Advance(StartAt(60, 80)));
  EXPECT_EQ(furthest.Describe(), "step 80 of /r");
}

TEST(FurthestStep, ACopyInMemoryIsProgressAndMayBeLost) {
  FurthestStep furthest("none", /*asked=*/false);
  const std::string copy = " (step 70 if the hosts still have that copy in memory)";
  EXPECT_TRUE(furthest.Advance({.run_directory = "/r", .start = 0, .saved = 0, .copied = 70}));
  EXPECT_EQ(furthest.Describe(), "the beginning" + copy);
  EXPECT_FALSE(furthest.Advance({.run_directory = "/r", .start = 70, .copied = 70})) << "it resumed from the copy";
  EXPECT_FALSE(furthest.Advance({})) << "it ended before rank 0 reported";
  EXPECT_EQ(furthest.Describe(), "the beginning" + copy);
  EXPECT_FALSE(furthest.Advance(StartAt(0, 60))) << "the copy was lost";
  EXPECT_EQ(furthest.Describe(), "step 60 of /r");
}

// Each start resumes from --resume CHECKPOINT until one has saved a later one, whatever was copied.
TEST(FurthestStep, BehindANamedCheckpointCopiesCountAfterTheNext) {
  FurthestStep furthest("none", /*asked=*/true);
  EXPECT_FALSE(furthest.Advance({.run_directory = "/r", .start = 40, .saved = 40, .copied = 70}));
  EXPECT_EQ(furthest.Describe(), "step 40 of /r");
  EXPECT_TRUE(furthest.Advance({.run_directory = "/r", .start = 40, .saved = 60, .copied = 70}));
  EXPECT_THAT(furthest.Describe(), ::testing::HasSubstr("(step 70 "));
}

class RunWithoutReports : public ::testing::Test {
 protected:
  RunWithoutReports() { std::filesystem::create_directories(directory_ / "checkpoints"); }
  void PointLatestAt(int64_t step) {
    std::filesystem::create_directories(CheckpointDirectory(directory_.path(), step));
    std::filesystem::remove(directory_ / "checkpoints/latest");
    std::filesystem::create_directory_symlink(CheckpointName(step), directory_ / "checkpoints/latest");
  }
  const TemporaryDirectory directory_;
};

TEST_F(RunWithoutReports, LatestCountsWhereNothingIsReported) {
  PointLatestAt(80);
  FurthestStep furthest(directory_.path(), /*asked=*/false);
  EXPECT_FALSE(furthest.Advance({})) << "the step before this supervision";
  PointLatestAt(40);
  EXPECT_FALSE(furthest.Advance({}));
  PointLatestAt(80);
  EXPECT_FALSE(furthest.Advance({})) << "back and forth";
  PointLatestAt(100);
  EXPECT_TRUE(furthest.Advance({}));
  PointLatestAt(120);
  std::filesystem::remove(CheckpointDirectory(directory_.path(), 120));
  EXPECT_FALSE(furthest.Advance({})) << "set aside";
}

// `latest` may be another run's until a later step is saved.
TEST_F(RunWithoutReports, BehindANamedCheckpointLatestCountsAfterTheNext) {
  PointLatestAt(80);
  FurthestStep furthest(directory_.path(), /*asked=*/true);
  EXPECT_FALSE(furthest.Advance({.run_directory = directory_.path(), .start = 40, .saved = 40}));
  EXPECT_EQ(furthest.Describe(), "step 40 of " + directory_.path());
  PointLatestAt(100);
  EXPECT_TRUE(furthest.Advance({.run_directory = directory_.path(), .start = 40, .saved = 60}));
  EXPECT_EQ(furthest.Describe(), "step 100 of " + directory_.path());
}

// --resume step_00000040 sets aside 60 and 80, which are no progress of this job, nor its measure.
TEST_F(RunWithoutReports, AReportReplacesLatestUntilRankZeroIsOnAnotherHost) {
  PointLatestAt(80);
  FurthestStep furthest(directory_.path(), /*asked=*/false);
  EXPECT_FALSE(furthest.Advance({})) << "a first start that crashed early";
  PointLatestAt(60);
  EXPECT_TRUE(furthest.Advance({.run_directory = directory_.path(), .start = 40, .saved = 40})) << "not reported yet";
  EXPECT_FALSE(furthest.Advance({}));
  PointLatestAt(80);
  EXPECT_TRUE(furthest.Advance({}));
  const std::string start = R"({"event":"run",)"
                            "\n",
                    copy = R"({"event":"copy","step":90,)"
                           "\n";
  SetContents(directory_ / kMetricsName, copy + start);
  EXPECT_FALSE(furthest.Advance({})) << "a copy of an earlier start";
  EXPECT_EQ(furthest.Describe(), "step 80 of " + directory_.path());
  SetContents(directory_ / kMetricsName, start + copy);
  EXPECT_TRUE(furthest.Advance({}));
  EXPECT_EQ(furthest.Describe(),
            "step 80 of " + directory_.path() + " (step 90 if the hosts still have that copy in memory)");
}

}  // namespace
}  // namespace hadal

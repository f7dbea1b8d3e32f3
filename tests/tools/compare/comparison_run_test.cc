#include "tools/compare/comparison_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/files.h"
#include "tests/support/temporary_directory.h"
#include "tools/config/resolved_config.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CellRun, ReadsBackWhatItWrote) {
  const TemporaryDirectory directory;
  const std::string run = JoinPath(directory.path(), "cell");
  EXPECT_EQ(ReadCellRun(run)->end, CellEnd::kNone);
  for (const CellEnd end : {CellEnd::kRunning, CellEnd::kDone, CellEnd::kDiverged, CellEnd::kCut, CellEnd::kInterrupted,
                            CellEnd::kFailed}) {
    ASSERT_TRUE(WriteCellRun(run, {end, 4, 12.5, 11.25, 5.125}).ok());
    const auto read = ReadCellRun(run);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->end, end);
    EXPECT_EQ(read->exit_code, 4);
    EXPECT_EQ(read->wall_seconds, 12.5);
    EXPECT_EQ(read->cpu_seconds, 11.25);
    EXPECT_EQ(read->unigram_nll, 5.125);
  }
}

TEST(CellRun, RefusesWhatItDidNotWrite) {
  const TemporaryDirectory directory;
  for (const char* text : {"", "{}", "[1]", "{\"end\": 3}", "{\"end\": \"finished\"}"}) {
    ASSERT_TRUE(ReplaceFile(JoinPath(directory.path(), "cell.json"), text, "test").ok());
    EXPECT_EQ(ReadCellRun(directory.path()).status().code(), absl::StatusCode::kDataLoss) << text;
  }
}

class CellPlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.mutable_stop()->set_steps(100);
    EXPECT_TRUE(
        ReplaceFile(JoinPath(directory_.path(), "config.resolved.textproto"), *ResolvedConfigText(config_), "test")
            .ok());
  }
  CellTask TaskAfter(CellEnd end, double wall_seconds = 10, double run_seconds = 0) {
    return PlanCell(directory_.path(), {.end = end, .wall_seconds = wall_seconds}, config_, run_seconds)->task;
  }

  TemporaryDirectory directory_;
  config::RunConfig config_;
};

TEST_F(CellPlanTest, FinishedCellsAreLeftInPeace) {
  EXPECT_EQ(TaskAfter(CellEnd::kDone), CellTask::kNothing);
  EXPECT_EQ(TaskAfter(CellEnd::kDiverged), CellTask::kNothing);
  EXPECT_EQ(TaskAfter(CellEnd::kCut, 60, 60), CellTask::kNothing);
}

TEST_F(CellPlanTest, OthersGoOn) {
  for (const CellEnd end : {CellEnd::kRunning, CellEnd::kInterrupted, CellEnd::kFailed}) {
    EXPECT_EQ(TaskAfter(end), CellTask::kGoOn);
  }
  EXPECT_EQ(TaskAfter(CellEnd::kCut, 60, 90), CellTask::kGoOn);  // the cap was raised
  EXPECT_EQ(TaskAfter(CellEnd::kCut, 60, 0), CellTask::kGoOn);   // or taken away
  EXPECT_EQ(PlanCell(JoinPath(directory_.path(), "other"), {}, config_, 0)->task, CellTask::kStart);
}

TEST_F(CellPlanTest, AMovedLimitIsNoOtherConfig) {
  config_.mutable_stop()->set_steps(200);
  EXPECT_EQ(TaskAfter(CellEnd::kDone), CellTask::kGoOn);
}

TEST_F(CellPlanTest, ALayoutMayChange) {
  config_.mutable_pipeline()->set_threads(7);
  EXPECT_EQ(TaskAfter(CellEnd::kDone), CellTask::kNothing);
}

TEST_F(CellPlanTest, AnotherConfigIsToldByItsFields) {
  config_.mutable_model()->set_heads(4);
  const auto plan = PlanCell(directory_.path(), {.end = CellEnd::kDone}, config_, 0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->task, CellTask::kChanged);
  EXPECT_THAT(plan->difference, AllOf(HasSubstr("model.heads: 8 -> 4"), Not(HasSubstr("stop"))));
}

}  // namespace
}  // namespace hadal

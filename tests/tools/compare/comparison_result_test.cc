#include "tools/compare/comparison_result.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "runtime/data/corpus.h"
#include "runtime/files.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"
#include "tools/config/resolved_config.h"
#include "tools/corpus/inspect.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(ComparisonResult, JudgesByTheDistanceBelowTheUnigramLevel) {
  const auto verdict = [](const CellRun& run) {
    RunRecord record;
    record.validations = {{.step = 10, .nll = 6.5}, {.step = 20, .nll = 6.2}, {.step = 30, .nll = 6.4}};
    for (int step = 1; step <= 30; ++step)
      record.steps.push_back({.step = step, .loss = step == 30 ? 6.0 : 9.0, .nll = 5});
    const CellResult result = JudgeCell(run, record);
    EXPECT_EQ(result.best_nll, 6.2);
    EXPECT_EQ(result.best_step, 20);
    EXPECT_EQ(result.steps, 30);
    EXPECT_EQ(result.loss, 6) << "the last step's";
    return ToString(result.verdict);
  };
  EXPECT_EQ(verdict({.end = CellEnd::kDone, .unigram_nll = 6.51}), "trains");
  EXPECT_EQ(verdict({.end = CellEnd::kCut, .unigram_nll = 6.49}), "between");
  EXPECT_EQ(verdict({.end = CellEnd::kDone, .unigram_nll = 6.26}), "between");
  EXPECT_EQ(verdict({.end = CellEnd::kDone, .unigram_nll = 6.24}), "fails");
  EXPECT_EQ(verdict({.end = CellEnd::kDone, .unigram_nll = 6.0}), "fails");
  EXPECT_EQ(verdict({.end = CellEnd::kDiverged, .unigram_nll = 9.0}), "diverged");
  EXPECT_EQ(verdict({.end = CellEnd::kDone}), "not known");
}

TEST(ComparisonResult, TheLimitsThemselvesTrainAndDoNotFail) {
  RunRecord record;
  record.validations = {{.step = 10, .nll = 0}};
  EXPECT_EQ(JudgeCell({.end = CellEnd::kDone, .unigram_nll = kTrainsBelow}, record).verdict, Verdict::kTrains);
  EXPECT_EQ(JudgeCell({.end = CellEnd::kDone, .unigram_nll = kFailsBelow}, record).verdict, Verdict::kBetween);
}

// 30 steps whose nll falls by `fall` from the fourth to the last fifth of them.
TEST(ComparisonResult, ARunThatIsStillLearningHasNotFailed) {
  const auto verdict = [](int steps, double fall) {
    RunRecord record;
    record.validations = {{.step = steps, .nll = 6.2}};
    for (int step = 1; step <= steps; ++step) record.steps.push_back({.step = step, .nll = 9 - fall * step / 6});
    return ToString(JudgeCell({.end = CellEnd::kDone, .unigram_nll = 6.0}, record).verdict);
  };
  EXPECT_EQ(verdict(30, 0.06), "too short");
  EXPECT_EQ(verdict(30, 0.04), "fails");
  EXPECT_EQ(verdict(30, -1), "fails");
  EXPECT_EQ(verdict(4, 0), "too short") << "nothing can be said of so few";
}

TEST(ComparisonResult, OfTwoEqualValidationsTheFirstIsTheBest) {
  RunRecord record;
  record.validations = {{.step = 10, .nll = 6.5}, {.step = 20, .nll = 6.2}, {.step = 30, .nll = 6.2}};
  EXPECT_EQ(JudgeCell({}, record).best_step, 20);
}

TEST(ComparisonResult, WhatIsNotFiniteIsNoResult) {
  RunRecord record;
  record.steps = {{.step = 1, .loss = 6}, {.step = 2, .loss = kNan}};
  record.validations = {{.step = 1, .nll = kNan}, {.step = 2, .nll = 6.2}};
  const CellResult result = JudgeCell({.end = CellEnd::kDone, .unigram_nll = 6.6}, record);
  EXPECT_EQ(result.steps, 2);
  EXPECT_FALSE(result.loss.has_value());
  EXPECT_EQ(result.best_nll, 6.2);
  EXPECT_EQ(result.verdict, Verdict::kTrains);
  record.validations.pop_back();
  EXPECT_EQ(JudgeCell({.end = CellEnd::kDone, .unigram_nll = 6.6}, record).verdict, Verdict::kUnknown);
}

class UnigramLevelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("train", {{.source = {4}, .target = {4, 4}}, {.source = {4}, .target = {5}}});
    Write("valid", {{.source = {4}, .target = {4}}, {.source = {4}, .target = {3, 5}}});
    config_.mutable_data()->set_train(directory_ / "train");
    config_.mutable_data()->set_validation(directory_ / "valid");
    config_.mutable_validation()->set_every_steps(10);
  }
  void Write(const std::string& name, const std::vector<Sample>& samples) {
    CorpusWriter writer = CorpusWriter::Create({.prefix = directory_ / name,
                                                .source_vocabulary = {.file = "vocabulary", .size = 8},
                                                .target_vocabulary = {.file = "vocabulary", .size = 8},
                                                .corpora = {"a test"}})
                              .value();
    for (const Sample& sample : samples) ASSERT_TRUE(writer.Add(sample.view()).ok());
    ASSERT_TRUE(writer.Finish().ok());
  }
  double Expected(const std::vector<int64_t>& samples) {
    return *UnigramNll(*Corpus::Open(directory_ / "train"), *Corpus::Open(config_.data().validation()), samples);
  }

  TemporaryDirectory directory_;
  config::RunConfig config_;
};

TEST_F(UnigramLevelTest, IsThatOfTheSentencesThatAreValidated) {
  ASSERT_NE(Expected({0, 1}), Expected({0}));
  config_.mutable_validation()->set_max_sentences(0);
  EXPECT_EQ(**UnigramLevel(config_), Expected({0, 1}));
  config_.mutable_validation()->set_max_sentences(1);
  EXPECT_EQ(**UnigramLevel(config_), Expected({0}));
  // What does not fit is not validated: the first sample that does is the second one here.
  Write("long", {{.source = {4}, .target = {4, 4, 4}}, {.source = {4}, .target = {3, 5}}});
  config_.mutable_data()->set_validation(directory_ / "long");
  config_.mutable_batch()->set_target_tokens(3);
  EXPECT_EQ(**UnigramLevel(config_), Expected({1}));
  config_.mutable_batch()->set_target_tokens(2);
  const absl::StatusOr<std::optional<double>> none = UnigramLevel(config_);
  ASSERT_TRUE(none.ok()) << "one run that cannot start would end the whole comparison: " << none.status();
  EXPECT_FALSE(none->has_value());
}

TEST_F(UnigramLevelTest, ARunThatDoesNotValidateHasNone) {
  config_.mutable_validation()->set_every_steps(0);
  EXPECT_FALSE(UnigramLevel(config_)->has_value());
  config_.mutable_validation()->set_every_steps(10);
  config_.mutable_data()->clear_validation();
  EXPECT_FALSE(UnigramLevel(config_)->has_value());
}

TEST_F(UnigramLevelTest, ACorpusThatCannotBeOpenedIsAnError) {
  config_.mutable_data()->set_validation(directory_ / "nowhere");
  EXPECT_EQ(UnigramLevel(config_).status().code(), absl::StatusCode::kNotFound);
}

TEST(ComparisonRecord, HasTheGridAndWhatItsRunsHaveComeTo) {
  const TemporaryDirectory directory;
  ComparisonGrid grid;
  grid.axes = {{.name = "method", .labels = {"a", "b"}}, {.name = "seed", .labels = {"1", "2"}, .is_seeds = true}};
  grid.cells = {{.name = "method=a,seed=2", .place = {0, 1}}, {.name = "method=b,seed=1", .place = {1, 0}}};
  const std::string run = CellDirectory(directory.path(), grid.cells[0]);
  WriteRecordedRun(run, {.stages = {{.forward_seconds = 0.5}}});  // validates at step 6: 6.2
  ASSERT_TRUE(WriteCellRun(run, {.end = CellEnd::kCut, .wall_seconds = 60, .cpu_seconds = 30, .unigram_nll = 7}).ok());
  ASSERT_TRUE(WriteComparisonRecord(grid, directory.path()).ok());
  const nlohmann::json json = nlohmann::json::parse(Contents(directory / "grid.json"));
  EXPECT_EQ(json["title"], "Comparison");
  EXPECT_EQ(json["rule"]["trains_below_unigram"], 0.3);
  EXPECT_EQ(json["axes"][0], (nlohmann::json{{"name", "method"}, {"labels", {"a", "b"}}, {"seeds", false}}));
  EXPECT_EQ(json["axes"][1]["seeds"], true);
  nlohmann::json cell = json["cells"][0];
  EXPECT_NEAR(cell["below_unigram"], 0.8, 1e-9);
  cell.erase("below_unigram");
  EXPECT_EQ(cell, (nlohmann::json{{"name", "method=a,seed=2"},
                                  {"labels", {"a", "2"}},
                                  {"directory", "runs/method=a,seed=2"},
                                  {"log", "logs/method=a,seed=2.log"},
                                  {"state", "cut"},
                                  {"exit_code", 0},
                                  {"wall_seconds", 60},
                                  {"cpu_seconds", 30},
                                  {"unigram_nll", 7},
                                  {"model", "a model"},
                                  {"parameters", 12345},
                                  {"steps", 6},
                                  {"verdict", "trains"},
                                  {"loss", 6.5},
                                  {"best_validation_nll", 6.2},
                                  {"best_step", 6}}));
  EXPECT_EQ(json["cells"][1]["state"], "none");
  EXPECT_FALSE(json["cells"][1].contains("verdict"));
}

TEST(CellRun, ReadsBackWhatItWrote) {
  const TemporaryDirectory directory;
  const std::string run = JoinPath(directory.path(), "cell");
  EXPECT_EQ(ReadCellRun(run)->end, CellEnd::kNone);
  for (const CellEnd end : {CellEnd::kRunning, CellEnd::kDone, CellEnd::kDiverged, CellEnd::kCut, CellEnd::kInterrupted,
                            CellEnd::kFailed}) {
    ASSERT_TRUE(WriteCellRun(run, {end, 4, 12.5, 11.25, 5.125}).ok());
    const auto read = ReadCellRun(run).value();
    EXPECT_EQ(read.end, end);
    EXPECT_EQ(read.exit_code, 4);
    EXPECT_EQ(read.wall_seconds, 12.5);
    EXPECT_EQ(read.cpu_seconds, 11.25);
    EXPECT_EQ(read.unigram_nll, 5.125);
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

TEST_F(CellPlanTest, AnotherLayoutOrLimitIsNoOtherConfig) {
  config_.mutable_pipeline()->set_threads(7);
  EXPECT_EQ(TaskAfter(CellEnd::kDone), CellTask::kNothing);
  config_.mutable_stop()->set_steps(200);
  EXPECT_EQ(TaskAfter(CellEnd::kDone), CellTask::kGoOn);
}

TEST_F(CellPlanTest, AnotherConfigIsToldByItsFields) {
  config_.mutable_model()->set_heads(4);
  const auto plan = PlanCell(directory_.path(), {.end = CellEnd::kDone}, config_, 0).value();
  EXPECT_EQ(plan.task, CellTask::kChanged);
  EXPECT_THAT(plan.difference, AllOf(HasSubstr("model.heads: 8 -> 4"), Not(HasSubstr("stop"))));
}

}  // namespace
}  // namespace hadal

#include "tools/compare/comparison_result.h"

#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/data/corpus.h"
#include "tests/support/temporary_directory.h"
#include "tools/corpus/inspect.h"

namespace hadal {
namespace {

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
    absl::StatusOr<CorpusWriter> writer = CorpusWriter::Create({.prefix = directory_ / name,
                                                                .source_vocabulary = {.file = "vocabulary", .size = 8},
                                                                .target_vocabulary = {.file = "vocabulary", .size = 8},
                                                                .corpora = {"a test"}});
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const Sample& sample : samples) ASSERT_TRUE(writer->Add(sample.view()).ok());
    ASSERT_TRUE(writer->Finish().ok());
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

}  // namespace
}  // namespace hadal

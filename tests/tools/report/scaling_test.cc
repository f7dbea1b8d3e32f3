#include "tools/report/scaling.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

struct Runs {
  std::vector<RunRecord> records;
  std::vector<RunSummary> summaries;
};

Runs Record(const std::vector<RecordedRun>& runs) {
  const TemporaryDirectory directory;
  Runs result;
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string path = directory / absl::StrCat("run", i);
    WriteRecordedRun(path, runs[i]);
    result.records.push_back(*ReadRun(path));
    result.summaries.push_back(*Summarize(result.records.back()));
  }
  return result;
}

// One rank computes 3.2 s in 8 micro-batches; two ranks half of it each and idle for one micro-batch's share: the
// bubble.
constexpr double kBubble = 0.2;
RecordedRun OneRank() { return {.stages = {{.forward_seconds = 1.2, .backward_seconds = 2.0}}}; }
RecordedRun TwoRanks(double exposed, double first_share = 0.5) {
  const double last_share = 1 - first_share;
  return {.stages = {{.forward_seconds = 1.2 * first_share,
                      .backward_seconds = 2.0 * first_share,
                      .wait_seconds = kBubble + exposed},
                     {.forward_seconds = 1.2 * last_share,
                      .backward_seconds = 2.0 * last_share,
                      .wait_seconds = kBubble + exposed + 3.2 * (first_share - last_share)}}};
}

// Two replicas of two stages: each runs four of the eight micro-batches, so the bubble is one of 4 + 1 slots.
TEST(RunSummary, ReplicasHaveTheirOwnBubbles) {
  RecordedRun run{.replicas = 2};
  run.stages.assign(2, {.forward_seconds = 0.3, .backward_seconds = 0.5, .wait_seconds = 0.25});
  const Runs runs = Record({run});
  ASSERT_TRUE(runs.summaries[0].wait_is_split);
  EXPECT_NEAR(runs.summaries[0].parts->bubble, 0.2, 1e-9);
  EXPECT_NEAR(runs.summaries[0].parts->exposed_transfers, 0.05, 1e-9);
}

// The last stage keeps its activations, the first one computes them again: both take equally long, so that nothing is
// imbalance.
TEST(RunSummary, RecomputationIsComputing) {
  const Runs runs = Record(
      {{.stages = {{.forward_seconds = 0.6, .recompute_seconds = 0.4, .backward_seconds = 0.6, .wait_seconds = kBubble},
                   {.forward_seconds = 0.6, .backward_seconds = 1.0, .wait_seconds = kBubble}}}});
  ASSERT_TRUE(runs.summaries[0].wait_is_split);
  EXPECT_NEAR(runs.summaries[0].parts->imbalance, 0, 1e-9);
  EXPECT_NEAR(runs.summaries[0].parts->bubble, kBubble, 1e-9);
}

// What of computing was waiting for a core is a part of its own; the parts still sum to the step.
TEST(RunSummary, WaitingForACoreIsTakenOutOfComputing) {
  const Runs runs = Record({{.stages = {{.forward_seconds = 1,
                                         .backward_seconds = 2,
                                         .optimizer_seconds = 1,
                                         .checkpoint_seconds = 0.5,
                                         .core_wait_seconds = 1}}},
                            {.stages = {{.forward_seconds = 1, .core_wait_seconds = 7}}}});
  const TimeParts& parts = *runs.summaries[0].parts;
  EXPECT_NEAR(parts.core_wait, 1, 1e-12);
  EXPECT_NEAR(parts.forward, 0.75, 1e-12);
  EXPECT_NEAR(parts.backward, 1.5, 1e-12);
  EXPECT_NEAR(parts.optimizer, 0.75, 1e-12);
  EXPECT_NEAR(parts.checkpoint, 0.5, 1e-12);
  EXPECT_NEAR(parts.sum(), runs.summaries[0].step_seconds, 1e-12);
  EXPECT_NEAR(runs.summaries[1].parts->core_wait, 1, 1e-12);  // never more than there was
  EXPECT_NEAR(runs.summaries[1].parts->sum(), runs.summaries[1].step_seconds, 1e-12);
}

TEST(Scaling, StrongEfficiencyAndTheBubbleAsItsCause) {
  const Runs runs = Record({TwoRanks(0), OneRank()});  // the order given does not matter
  const auto scaling = CompareRuns(runs.records, runs.summaries).value();
  EXPECT_EQ(scaling.kind, ScalingKind::kStrong);
  ASSERT_EQ(scaling.rows.size(), 2u);
  const ScalingRow &base = scaling.rows[0], &two = scaling.rows[1];
  EXPECT_EQ(base.run, 1u);
  EXPECT_EQ(base.efficiency, 1);
  EXPECT_NEAR(two.efficiency, 3.2 / (2 * 1.8), 1e-12);
  EXPECT_NEAR(two.speedup, 3.2 / 1.8, 1e-12);
  EXPECT_NEAR(two.causes.bubble, 1 - two.efficiency, 1e-9);
  EXPECT_THAT(DescribeLoss(two, runs.summaries[0]), HasSubstr("bubble costs 11.1%"));
  EXPECT_EQ(DescribeLoss(base, runs.summaries[1]), "");
}

TEST(Scaling, CausesSumToTheLossWhateverTheyAre) {
  RecordedRun slow = TwoRanks(0.1, 0.6);
  slow.stages[0].communication_seconds = 0.03;
  slow.stages[1].optimizer_seconds = 0.02;
  slow.stages[1].forward_seconds *= 1.1;
  slow.other_seconds = 0.04;
  RecordedRun more = slow;
  more.threads = 2;
  more.tokens = 1500;
  const Runs runs = Record({OneRank(), slow, more});
  const auto scaling = CompareRuns(runs.records, runs.summaries).value();
  EXPECT_EQ(scaling.kind, ScalingKind::kMixed);
  more.tokens = 1050;
  const Runs near = Record({OneRank(), more});
  EXPECT_EQ(CompareRuns(near.records, near.summaries)->kind, ScalingKind::kMixed) << "5% more work";
  for (const ScalingRow& row : scaling.rows) EXPECT_NEAR(row.causes.sum(), 1 - row.efficiency, 1e-9);
}

TEST(Scaling, WeakWhereTokensGrowWithTheCores) {
  RecordedRun two = TwoRanks(0);
  two.tokens = 2000;
  const Runs runs = Record({OneRank(), two});
  EXPECT_EQ(CompareRuns(runs.records, runs.summaries)->kind, ScalingKind::kWeak);
}

// Two methods side by side are no study of scaling.
TEST(Scaling, RefusesRunsThatDifferInMoreThanTheirLayout) {
  RecordedRun deepnorm = OneRank(), post_ln = TwoRanks(0);
  deepnorm.config = "model { residual { method: \"deepnorm\" } }";
  post_ln.config = "model { residual { method: \"post_ln\" } }";
  const Runs runs = Record({deepnorm, post_ln});
  EXPECT_THAT(std::string(CompareRuns(runs.records, runs.summaries).status().message()),
              HasSubstr("differ in model.residual.method (\"deepnorm\", \"post_ln\")"));
}

TEST(Scaling, OfAsManyCoresTheCheapestIsTheMeasure) {
  const Runs runs = Record({TwoRanks(0.3), TwoRanks(0)});
  const auto scaling = CompareRuns(runs.records, runs.summaries).value();
  EXPECT_EQ(scaling.rows[0].run, 1u);
  EXPECT_LT(scaling.rows[1].efficiency, 1);
  EXPECT_NEAR(scaling.rows[1].causes.sum(), 1 - scaling.rows[1].efficiency, 1e-9);
}

// The first run waited for its core for half of its time.
TEST(Scaling, MoreThanAllIsExplained) {
  RecordedRun disturbed{.stages = {{.forward_seconds = 2.4, .backward_seconds = 4.0, .core_wait_seconds = 3.2}}};
  const Runs runs = Record({disturbed, TwoRanks(0)});
  const auto scaling = CompareRuns(runs.records, runs.summaries);
  const ScalingRow& two = scaling->rows[1];
  EXPECT_NEAR(two.efficiency, 6.4 / 3.6, 1e-9);
  const std::string text = DescribeLoss(two, runs.summaries[1]);
  EXPECT_THAT(text, HasSubstr("efficiency 177.8%, more than there is"));
  EXPECT_THAT(text, HasSubstr("where it goes to waiting for a core (+88.9%);"));
}

// A rank that is stopped again and again delays single micro-batches, so that waiting for it looks like transfers.
TEST(Scaling, ASlowRankComesBeforeTheTransfersThatItDelays) {
  RecordedRun stopped = TwoRanks(0.5);
  stopped.stages[1].forward_seconds *= 1.25;
  stopped.stages[1].backward_seconds *= 1.25;
  stopped.stages[0].wait_seconds += 0.4;
  const Runs runs = Record({OneRank(), stopped});
  const auto scaling = CompareRuns(runs.records, runs.summaries);
  const ScalingRow& row = scaling->rows[1];
  EXPECT_GT(row.causes.exposed_transfers, row.causes.imbalance);
  EXPECT_THAT(
      DescribeLoss(row, runs.summaries[1]),
      StartsWith("stage 1 computes 11% longer than the mean, and the others wait for it; its device is slower"));
  RecordedRun far = stopped;
  for (StageTimes& stage : far.stages) stage.wait_seconds += 2;
  const Runs slow_links = Record({OneRank(), far});
  EXPECT_THAT(DescribeLoss(CompareRuns(slow_links.records, slow_links.summaries)->rows[1], slow_links.summaries[1]),
              StartsWith("exposed transfers costs "))
      << "ten times what the slow rank explains";
  const Runs even = Record({OneRank(), TwoRanks(0.5)});
  EXPECT_THAT(DescribeLoss(CompareRuns(even.records, even.summaries)->rows[1], even.summaries[1]),
              StartsWith("exposed transfers costs "));
}

// Computing's own parts, forward and backward, share one.
TEST(Scaling, EachPartHasItsRemedy) {
  std::vector<std::string> words;  // the first ones
  for (const TimePart& part : kTimeParts) {
    ScalingRow row;
    row.causes.*part.seconds = 0.1;
    const std::string text = DescribeLoss(row, RunSummary()), remedy = text.substr(text.find(": ") + 2);
    words.push_back(remedy.substr(0, remedy.find(' ')));
  }
  EXPECT_THAT(words, ElementsAre("compute", "less", "compute", "shared", "sharding", "one",
                                 "checkpoint.buffer_mebibytes,", "more", "let", "larger", "fewer", "what"));
}

TEST(Scaling, RefusesWhatCannotBeCompared) {
  Runs runs = Record({OneRank(), TwoRanks(0)});
  EXPECT_FALSE(CompareRuns({runs.records[0]}, {runs.summaries[0]}).ok());
  runs.records[1].config.clear();
  EXPECT_THAT(std::string(CompareRuns(runs.records, runs.summaries).status().message()), HasSubstr("cannot be read"));
  runs.records[1].model = "another model";
  EXPECT_THAT(std::string(CompareRuns(runs.records, runs.summaries).status().message()), HasSubstr("another model"));
}

// A run of six steps and 8 micro-batches on two ranks, unless `run` says otherwise.
RunRecord RunOf(const std::string& name, RecordedRun run) {
  const TemporaryDirectory directory;
  run.stages = {{.forward_seconds = 1}, {}};
  WriteRecordedRun(directory / name, run);
  RunRecord record = ReadRun(directory / name).value();
  record.directory = name;
  return record;
}
RunRecord Configured(const std::string& name, const std::string& config) { return RunOf(name, {.config = config}); }

TEST(SettingsTable, HasWhatIsNoDefaultAndWhatDiffers) {
  const RunRecord a = Configured("a", "model { d_ff: 96 }");
  const RunRecord b = RunOf("b", {.steps = 9, .config = "model { d_ff: 96 }"});
  const auto rows = SettingsTable({a, b});
  std::vector<std::string> text;
  for (const auto& row : rows) text.push_back(absl::StrCat(row.at(0), " ", row.at(1), " ", row.at(2)));
  EXPECT_THAT(text, AllOf(Contains("field a b"), Contains("model.d_ff 96 96"), Contains("stop.steps 6 9"),
                          Not(Contains(HasSubstr("model.heads")))));
  EXPECT_EQ(text.front(), "field a b");
  RunRecord unreadable = b;
  unreadable.config.clear();
  EXPECT_EQ(SettingsTable({unreadable, a}).at(1).at(1), "-");
  EXPECT_THAT(SettingsTable({unreadable}), IsEmpty());
  const auto methods = SettingsTable({Configured("a", "model { residual { method: \"deepnorm\" } }"),
                                      Configured("b", "model { residual { method: \"post_ln\" } }")});
  const auto differs = [](const auto& row) { return row.at(0) == "model.residual.encoder.residual_gain"; };
  EXPECT_TRUE(std::ranges::any_of(methods, differs)) << "also what follows from others";
}

TEST(DifferenceBesideLayout, LayoutBatchAndLengthAreNone) {
  EXPECT_EQ(DifferenceBesideLayout(Configured("a", ""), Configured("b", "")), "");
  EXPECT_EQ(
      DifferenceBesideLayout(RunOf("a", {.threads = 2, .replicas = 2}),
                             RunOf("b", {.steps = 9, .micro_batches = 4, .config = "checkpoint { every_steps: 7 }"})),
      "");
}

TEST(DifferenceBesideLayout, EverythingElseIsNamed) {
  EXPECT_EQ(DifferenceBesideLayout(Configured("a", "model { residual { method: \"deepnorm\" } }"),
                                   Configured("b", "model { residual { method: \"post_ln\" } }")),
            "a and b differ in model.residual.method (\"deepnorm\", \"post_ln\")")
      << "and not in the gains, which follow from it";
  EXPECT_THAT(
      DifferenceBesideLayout(Configured("a", "seed: 2 model { d_ff: 96 heads: 4 dropout: 0.3 }"), Configured("b", "")),
      AllOf(StartsWith("a and b differ in seed (2, 1), model."), EndsWith(" and 1 more")));
}

// The number of warm-up steps follows from the run's length here.
TEST(DifferenceBesideLayout, WhatFollowsFromTheLengthIsNone) {
  const std::string config = "learning_rate { warmup_fraction: 0.5 }";
  EXPECT_EQ(DifferenceBesideLayout(Configured("a", config), RunOf("b", {.steps = 60, .config = config})), "");
}

}  // namespace
}  // namespace hadal

// What rank 0's sink hears of made-up steps. The engine is there to be measured; it runs nothing.
#include <gtest/gtest.h>

#include <cmath>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "layers/parameter_store.h"
#include "pipeline/step_report.h"
#include "runtime/clock.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/support/corpus_of.h"
#include "tests/support/tiny_plan.h"
#include "tests/support/training_engine.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr absl::Duration kHang = absl::Seconds(30);

class Listener : public MetricsSink {
 public:
  void OnStep(const StepMetrics& metrics) override { steps.push_back(metrics); }
  std::vector<StepMetrics> steps;
};

// Sublayers: source embedding, 2 of the encoder, target embedding, 3 of the decoder, head.
ModelPlan Plan() { return TinyPlan(); }

struct Told {
  std::vector<StepMetrics> steps;
  double seconds_before = 0, seconds_after = 0;  // of the session, around the last step
};

// Reports `progress` after each other, the result changed for each rank by its wait.
Told Report(const TrainOptions& options, const StepResult& result, const std::vector<TrainingProgress>& progress,
            const std::vector<double>& wait_seconds = {0}, const TrainingProgress& from = {}) {
  const ModelPlan plan = Plan();
  const Corpus corpus =
      CorpusOf({{.source = {4}, .target = {4, 5}}, {.corpus_id = 1, .source = {4}, .target = {4, 5, 6, 7}}}, 20, 20);
  StepBatches batches{.micro_batches = std::vector<PackedBatch>(1)};
  batches.micro_batches[0].target = {4, 5, 2, 4, 5, 6, 7, 2};
  batches.micro_batches[0].target_offsets = {0, 3, 8};
  batches.micro_batches[0].samples = {0, 1};
  Told told;
  InProcessWorld world(static_cast<int>(wait_seconds.size()));
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    const int rank = communicator.rank();
    HADAL_ASSIGN_OR_RETURN(
        const PipelineLayout pipeline,
        MakePipelineLayout(plan, {.micro_batches = 2, .source_tokens = 8, .target_tokens = 8}, {}, world.size(), rank));
    HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, TrainingEngine(plan, pipeline, communicator));
    Collectives collectives(communicator, kHang);
    Listener listener;
    StepReport report(options, plan, pipeline, collectives, rank == 0 ? &listener : nullptr);
    absl::SleepFor(absl::Milliseconds(5));
    const Stopwatch since_restart;
    report.Restart(from);
    absl::SleepFor(absl::Milliseconds(5));
    const double of_session = report.Seconds();
    EXPECT_LE(of_session, since_restart.Seconds()) << "what was before does not count";
    StepResult mine = result;
    mine.times.wait_seconds = wait_seconds[rank];
    for (const TrainingProgress& at : progress) {
      if (rank == 0) told.seconds_before = report.Seconds();
      HADAL_RETURN_IF_ERROR(report.Send(*engine, mine, at, /*learning_rate=*/0.25, corpus, batches));
      if (rank == 0) told.seconds_after = report.Seconds();
    }
    if (rank == 0) told.steps = listener.steps;
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return told;
}

TEST(StepReport, WhatALongRunTellsDoesNotGrowWithItsStages) {
  for (const int64_t stages : {1, 8, 9, 64, 512}) {
    int64_t told = 0;
    for (int64_t step = 1; step <= 100'000; ++step) told += IsSurveyedStep(step, 1, stages) ? stages : 0;
    EXPECT_LE(told, 100'000 * kSurveyedStages + kDenseSurveys * stages) << stages;
    EXPECT_GE(told, 100'000 * std::min<int64_t>(stages, kSurveyedStages) / 2) << stages;
  }
  EXPECT_TRUE(IsSurveyedStep(100, 1, 512));
  EXPECT_TRUE(IsSurveyedStep(500, 10, 512));
  EXPECT_FALSE(IsSurveyedStep(505, 10, 512));
  EXPECT_FALSE(IsSurveyedStep(101, 1, 9));
}

StepResult Result() {
  StepResult result;
  result.gradient.loss = {.loss = 40, .nll = 8 * std::log(3.0), .tokens = 8};
  result.gradient.norm = 1.5;
  result.gradient.sublayer_norms = {0, 1, 2, 3, 4, 5, 6, 7};
  result.applied = true;
  result.seconds = 2;
  return result;
}

TEST(StepReport, SaysLossAndSpeedATokenAndTheDepthsNormsWithoutEmbeddingsAndHead) {
  const std::vector<StepMetrics> steps =
      Report({.log_every_steps = 10}, Result(), {{.step = 5, .update = 4, .epochs_done = 0.5}}).steps;
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_EQ(steps[0].step, 5) << "the step that has just been counted";
  EXPECT_EQ(steps[0].update, 4);
  EXPECT_EQ(steps[0].loss, 5);
  EXPECT_DOUBLE_EQ(steps[0].nll, std::log(3.0));
  EXPECT_DOUBLE_EQ(steps[0].perplexity, 3);
  EXPECT_EQ(steps[0].tokens_per_second, 4);
  EXPECT_EQ(steps[0].step_seconds, 2);
  EXPECT_EQ(steps[0].target_tokens, 8);
  EXPECT_THAT(steps[0].corpus_tokens, ElementsAre(Pair("corpora 0", 3), Pair("corpora 1", 5)));
  EXPECT_EQ(steps[0].learning_rate, 0.25);
  EXPECT_EQ(steps[0].gradient_norm, 1.5);
  EXPECT_EQ(steps[0].epoch, 0.5);
  EXPECT_FALSE(steps[0].skipped);
  EXPECT_FALSE(steps[0].eta_seconds.has_value()) << "there is no limit";
  EXPECT_THAT(steps[0].depth_gradient_norms, ElementsAre(1, 2, 4, 5, 6));
}

TEST(StepReport, AStepThatWasNotAppliedIsSkipped) {
  StepResult result = Result();
  result.applied = false;
  const std::vector<StepMetrics> steps = Report({}, result, {{.step = 1}}).steps;
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_TRUE(steps[0].skipped);
}

// Three ranks wait 0.5 s, 1.5 s and 1 s of a step of 2 s: half of all time.
TEST(StepReport, EveryFewStepsTheStagesTimesAndWhatShareOfThemIsWaiting) {
  const std::vector<StepMetrics> steps =
      Report({.log_every_steps = 2}, Result(), {{.step = 1}, {.step = 2}, {.step = 3}, {.step = 4}}, {0.5, 1.5, 1})
          .steps;
  ASSERT_THAT(steps, SizeIs(4));
  for (const int i : {0, 2}) {
    EXPECT_THAT(steps[i].stages, IsEmpty());
    EXPECT_THAT(steps[i].memory, IsEmpty());
    EXPECT_FALSE(steps[i].measured_bubble.has_value());
  }
  for (const int i : {1, 3}) {
    ASSERT_THAT(steps[i].stages, SizeIs(3));
    EXPECT_EQ(steps[i].stages[0].wait_seconds, 0.5);
    EXPECT_EQ(steps[i].stages[1].wait_seconds, 1.5);
    EXPECT_EQ(steps[i].measured_bubble, 0.5);
    ASSERT_THAT(steps[i].memory, SizeIs(3));
    EXPECT_GT(steps[i].memory[1].arena_bytes, 0);
    EXPECT_GT(steps[i].memory[1].held_bytes, 0);
    EXPECT_GE(steps[i].memory[1].peak_resident_bytes, steps[i].memory[1].held_bytes);
    EXPECT_GT(steps[i].analytic_bubble, 0) << "of three stages";
  }
}

// From the steps of this session alone: 20 were done before it.
TEST(StepReport, TheTimeLeftGoesByTheSessionsSpeedToTheLastStep) {
  const TrainOptions options{.stop = {.steps = 100}, .log_every_steps = 1000};
  const Told told = Report(options, Result(), {{.step = 25}}, {0}, /*from=*/{.step = 20});
  ASSERT_THAT(told.steps, SizeIs(1));
  EXPECT_EQ(told.steps[0].total_steps, 100);
  EXPECT_GE(told.steps[0].elapsed_seconds, told.seconds_before);
  EXPECT_LE(told.steps[0].elapsed_seconds, told.seconds_after);
  EXPECT_GE(told.steps[0].eta_seconds.value(), told.seconds_before / 5 * 75 * (1 - 1e-12));
  EXPECT_LE(told.steps[0].eta_seconds.value(), told.seconds_after / 5 * 75 * (1 + 1e-12));
}

TEST(StepReport, EpochsAreALimitToo) {
  const TrainOptions options{.stop = {.steps = 1'000'000'000, .epochs = 3}, .log_every_steps = 1000};
  const Told told = Report(options, Result(), {{.step = 25, .epochs_done = 1.5}}, {0}, {.step = 20, .epochs_done = 1});
  EXPECT_EQ(told.steps.at(0).eta_limit, "epochs");
  EXPECT_GE(told.steps.at(0).eta_seconds.value(), told.seconds_before / 0.5 * 1.5 * (1 - 1e-12));
  EXPECT_LE(told.steps.at(0).eta_seconds.value(), told.seconds_after / 0.5 * 1.5 * (1 + 1e-12));
  const Told over = Report(options, Result(), {{.step = 25, .epochs_done = 3.1}}, {0}, {.step = 20, .epochs_done = 1});
  EXPECT_EQ(over.steps.at(0).eta_seconds.value(), 0);
}

TEST(StepReport, TheFirstLimitCounts) {
  const Told hour = Report({.stop = {.minutes = 60}, .log_every_steps = 1000}, Result(), {{.step = 1}});
  EXPECT_LE(hour.steps.at(0).eta_seconds.value(), 3600 - hour.seconds_before);
  EXPECT_GE(hour.steps.at(0).eta_seconds.value(), 3600 - hour.seconds_after);
  const Told steps = Report({.stop = {.steps = 2, .minutes = 60}, .log_every_steps = 1000}, Result(), {{.step = 1}});
  EXPECT_LE(steps.steps.at(0).eta_seconds.value(), steps.seconds_after);
  const Told both =
      Report({.stop = {.steps = 1'000'000'000, .minutes = 60}, .log_every_steps = 1000}, Result(), {{.step = 1}});
  EXPECT_LE(both.steps.at(0).eta_seconds.value(), 3600);
  EXPECT_EQ(both.steps.at(0).eta_limit, "minutes");
  EXPECT_EQ(steps.steps.at(0).eta_limit, "steps");
  // Behind a limit nothing is left, and not less.
  const Told over = Report({.stop = {.minutes = 1e-6}, .log_every_steps = 1000}, Result(), {{.step = 1}});
  EXPECT_EQ(over.steps.at(0).eta_seconds.value(), 0);
}

TEST(StageSurvey, TimesAreTheMeanOverReplicasAndMemoryIsTheLargest) {
  for (const Placement placement : {Placement::kReplicasTogether, Placement::kStagesTogether}) {
    const GridShape grid = {.stages = 3, .replicas = 2, .placement = placement};
    InProcessWorld world(grid.ranks());
    const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
      const int stage = grid.StageOf(communicator.rank()), replica = grid.ReplicaOf(communicator.rank());
      const StageTimes times = {.forward_seconds = 10.0 * stage + replica, .launches = 100.0 + stage + 2 * replica};
      const StageMemory memory = {.arena_bytes = 1000 + stage, .graph_bytes = 7 - replica};
      Collectives collectives(communicator, absl::Seconds(30));
      HADAL_ASSIGN_OR_RETURN(const StageSurvey survey, SurveyStages(grid, times, memory, collectives));
      EXPECT_EQ(survey.times.size(), 3u);
      EXPECT_EQ(survey.memory.size(), 3u);
      for (int s = 0; s < 3; ++s) {
        EXPECT_EQ(survey.times[s].forward_seconds, 10.0 * s + 0.5);
        EXPECT_EQ(survey.times[s].wait_seconds, 0);
        EXPECT_EQ(survey.times[s].launches, 101.0 + s);
        EXPECT_EQ(survey.memory[s].arena_bytes, 1000 + s);
        EXPECT_EQ(survey.memory[s].held_bytes, 0);
        EXPECT_EQ(survey.memory[s].graph_bytes, 7);
      }
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace

}  // namespace hadal

// How a run ends. At its limits of epochs and minutes. On a request: all ranks end with the same step, saved, whatever
// the options say, and the resumed run finds nothing missing.
#include <atomic>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/data/sampling_order.h"
#include "runtime/status_macros.h"
#include "tests/integration/small_trainer.h"
#include "tests/support/saved_steps.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::IsEmpty;

// Hears of rank 0's steps and validations, and asks for the end.
class Asker : public MetricsSink {
 public:
  void OnStep(const StepMetrics& metrics) override {
    losses.push_back(metrics.loss);
    epochs.push_back(metrics.epoch);
    elapsed_seconds = metrics.elapsed_seconds;
    seconds_left = metrics.eta_seconds.value_or(0);
    if (metrics.step == ask_after_steps) asked = true;
  }
  void OnValidation(const ValidationMetrics& metrics) override {
    validations.emplace_back(metrics.step, metrics.nll, metrics.best);
  }
  void OnCheckpoint(const CheckpointMetrics& metrics) override { save_intervals.push_back(metrics.interval_seconds); }
  int64_t ask_after_steps = -1;
  std::atomic<bool> asked = false;
  std::vector<double> losses, epochs;
  double elapsed_seconds = 0, seconds_left = 0;  // at the last step
  std::vector<double> save_intervals;
  std::vector<std::tuple<int64_t, double, bool>> validations;
};

class StopRequest : public ::testing::TestWithParam<int> {
 protected:
  StopRequest() {
    const testing::RunSpec spec = testing::SmallRun(ResidualMethod::kDeepNorm);
    options_.model = spec.model;
    options_.batch = spec.batch;
    options_.run_directory = directory_.path();
    options_.stop.steps = 6;
  }

  // Goes on from the newest checkpoint, if there is one.
  TrainingOutcome Train() {
    TrainingOutcome outcome;
    InProcessWorld world(GetParam());
    const absl::Status status = world.Run([&](Communicator& communicator) {
      Trainer* running = nullptr;
      const TrainingSurroundings surroundings{.communicator = communicator,
                                              .stream = Stream::Cpu(1),
                                              .train = corpus_,
                                              .validation = &corpus_,
                                              .sink = asker_,
                                              .stop_requested =
                                                  [&] {
                                                    ++polls_;
                                                    return asker_.asked || AskedAt(running);
                                                  },
                                              .validation_bleu = translate_};
      return testing::WithTrainer(options_, surroundings, [&](Trainer& trainer) -> absl::Status {
        running = &trainer;
        HADAL_RETURN_IF_ERROR(trainer.ResumeLatest().status());
        HADAL_ASSIGN_OR_RETURN(const TrainingOutcome result, trainer.Run());
        if (communicator.rank() == 0) outcome = result;
        return absl::OkStatus();
      });
    });
    EXPECT_TRUE(status.ok()) << status;
    return outcome;
  }

  // Whether the program's place is in the step `ask_within_`.
  bool AskedAt(Trainer* trainer) const {
    return absl::StrContains(trainer->engine().current_instruction().Describe(),
                             absl::StrCat("step ", ask_within_ + 1, ","));
  }

  TemporaryDirectory directory_;
  TrainOptions options_;
  Corpus corpus_ = testing::SmallCorpus();
  Asker asker_;
  int64_t ask_within_ = -1;
  std::atomic<int64_t> polls_ = 0;  // on all ranks
  TranslateValidation translate_;
};

TEST_P(StopRequest, SavesAlsoARunThatIsNotSavedWhenItIsDone) {
  options_.checkpoint.save_at_end = false;
  asker_.ask_after_steps = 2;
  const TrainingOutcome outcome = Train();
  EXPECT_EQ(outcome.reason, StopReason::kRequested);
  EXPECT_EQ(outcome.progress.step, 3);
  EXPECT_THAT(SavedSteps(options_.run_directory), ElementsAre(3));
  asker_.asked = false;
  asker_.ask_after_steps = -1;
  EXPECT_EQ(Train().reason, StopReason::kSteps);
  EXPECT_THAT(SavedSteps(options_.run_directory), ElementsAre(3)) << "done: as the option says";
}

TEST_P(StopRequest, TheEpochsEndARunWithAValidation) {
  options_.validation.every_steps = 1000;
  options_.stop = {.steps = 40, .epochs = 1.5};
  const TrainingOutcome outcome = Train();
  EXPECT_EQ(outcome.reason, StopReason::kEpochs);
  EXPECT_GE(outcome.progress.samples_seen, 3 * corpus_.size() / 2);
  EXPECT_GE(asker_.epochs.back(), 1.5);
  EXPECT_LT(asker_.epochs.at(asker_.epochs.size() - 2), 1.5) << "one step too late";
  EXPECT_EQ(asker_.validations.size(), 1u);
}

TEST_P(StopRequest, TheMinutesEndARunWithAValidation) {
  options_.validation.every_steps = 1000;
  options_.stop.minutes = 1e-9;
  const TrainingOutcome outcome = Train();
  EXPECT_EQ(outcome.reason, StopReason::kMinutes);
  EXPECT_EQ(outcome.progress.step, 1);
  EXPECT_EQ(outcome.progress.best_step(), 1);
  EXPECT_EQ(asker_.validations.size(), 1u);
  options_.stop.minutes = 60;
  EXPECT_EQ(Train().reason, StopReason::kSteps);
  EXPECT_EQ(asker_.validations.size(), 2u) << "as stop.steps does";
}

TEST_P(StopRequest, AMinuteHasSixtySeconds) {
  options_.stop = {.steps = 1'000'000, .minutes = 0.005};
  options_.checkpoint.every_minutes = 0.005;
  EXPECT_EQ(Train().reason, StopReason::kMinutes);
  EXPECT_GE(asker_.elapsed_seconds, 0.3);
  EXPECT_GE(asker_.save_intervals.at(0), 0.3);
}

// Steps 4 and 5 of 1000.
TEST_P(StopRequest, WhoGoesOnHasTheTimeLeftFromItsOwnSteps) {
  options_.stop.steps = 1000;
  for (const int64_t step : {2, 4}) {
    asker_.asked = false;
    asker_.ask_after_steps = step;
    EXPECT_EQ(Train().progress.step, step + 1);
  }
  EXPECT_GE(asker_.seconds_left, asker_.elapsed_seconds / 2 * 995);
}

// At any time before its gradient norms are exchanged.
TEST_P(StopRequest, WithinAStepIsTheEndOfThatStep) {
  ask_within_ = 2;
  EXPECT_EQ(Train().progress.step, 3);
}

TEST_P(StopRequest, IsNotKeptWaitingByAValidation) {
  options_.validation.every_steps = 3;
  asker_.ask_after_steps = 3;  // when the norms of step 2 have been exchanged
  const TrainingOutcome outcome = Train();
  EXPECT_EQ(outcome.reason, StopReason::kRequested);
  EXPECT_EQ(outcome.progress.step, 3);
  EXPECT_THAT(asker_.validations, IsEmpty());
  EXPECT_THAT(SavedSteps(options_.run_directory), ElementsAre(3));
}

TEST_P(StopRequest, WithinAValidationLeavesItToTheResumedRun) {
  options_.validation.every_steps = 3;
  translate_ = [this](Engine&, int64_t) -> absl::StatusOr<TranslatedValidation> {
    asker_.asked = true;
    return TranslatedValidation{};
  };
  const TrainingOutcome outcome = Train();
  EXPECT_EQ(outcome.reason, StopReason::kRequested);
  EXPECT_EQ(outcome.progress.step, 3);
  EXPECT_THAT(asker_.validations, IsEmpty());
  asker_.asked = false;
  translate_ = {};
  EXPECT_EQ(Train().reason, StopReason::kSteps);
  EXPECT_THAT(asker_.validations, ElementsAre(FieldsAre(3, _, true), FieldsAre(6, _, _)));
}

// A stage's backward takes as long as two forwards. Besides, each rank is polled by the step and before the validation.
TEST_P(StopRequest, IsPolledInAValidationAsOftenAsInSteps) {
  options_.validation.every_steps = 1;
  options_.stop.steps = 1;
  options_.batch.micro_batches = 4;
  const int64_t batches = std::ssize(MakeValidationBatches(corpus_, {20, 20, 20}, 0)->batches);
  for (int replicas = 1; replicas <= GetParam(); ++replicas) {
    options_.run_directory = directory_ / absl::StrCat(replicas);
    options_.pipeline.replicas = replicas;
    polls_ = 0;
    Train();
    const int64_t stages = GetParam() / replicas, forwards_of_step = 3 * (4 / replicas + stages - 1);
    const int64_t together = replicas * (forwards_of_step - (stages - 1));  // they, too, pass all stages
    EXPECT_EQ(polls_, GetParam() * (2 + (batches - 1) / together))
        << batches << " batches, " << replicas << " replicas";
  }
}

// Stopped where a validation is due, at the last step too: whoever goes on has the losses, validations and checkpoints
// of an unbroken run.
TEST_P(StopRequest, LeavesTheValidationThatIsDueToWhoGoesOn) {
  options_.validation.every_steps = 2;
  options_.checkpoint.every_steps = 2;
  Train();
  const std::vector<double> losses = std::exchange(asker_.losses, {});
  const auto validations = std::exchange(asker_.validations, {});
  const std::vector<int64_t> saved = SavedSteps(options_.run_directory);
  const int64_t best = ReadCheckpointPointer(options_.run_directory, CheckpointPointer::kBest).value();
  options_.run_directory = directory_ / "stopped";
  for (const int64_t step : {2, 4, 6}) {
    asker_.ask_after_steps = step;
    const TrainingOutcome outcome = Train();
    EXPECT_EQ(outcome.reason, StopReason::kRequested) << step;
    EXPECT_EQ(outcome.progress.step, step);
    EXPECT_EQ(static_cast<int64_t>(asker_.validations.size()), step / 2 - 1);
    asker_.asked = false;
  }
  asker_.ask_after_steps = -1;
  EXPECT_EQ(Train().reason, StopReason::kSteps);
  EXPECT_EQ(asker_.losses, losses);
  EXPECT_EQ(asker_.validations, validations);
  EXPECT_EQ(SavedSteps(options_.run_directory), saved);
  EXPECT_EQ(*ReadCheckpointPointer(options_.run_directory, CheckpointPointer::kBest), best);
}

// The run saves at its end alone: the validation that the last step had left is in the checkpoint, once.
TEST_P(StopRequest, SavesAValidationThatWasDue) {
  options_.validation.every_steps = 6;
  options_.checkpoint.every_steps = 0;
  asker_.ask_after_steps = 6;
  EXPECT_EQ(Train().reason, StopReason::kRequested);
  asker_.asked = false;
  asker_.ask_after_steps = -1;
  for (int start = 0; start < 2; ++start) EXPECT_EQ(Train().reason, StopReason::kSteps);
  EXPECT_EQ(asker_.validations.size(), 1u);
  EXPECT_EQ(ReadCheckpointPointer(options_.run_directory, CheckpointPointer::kBest).value(), 6);
}

INSTANTIATE_TEST_SUITE_P(Ranks, StopRequest, ::testing::Values(1, 2), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace hadal

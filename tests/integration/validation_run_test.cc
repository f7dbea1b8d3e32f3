// What validations and saves leave behind: checkpoints with the weights of their step and the nll of these weights,
// `best` where it is lowest; the end of a run that does not improve; no BLEU of nothing.
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/data/sampling_order.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tests/integration/small_trainer.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/saved_steps.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ValidationSink : public MetricsSink {
 public:
  void OnValidation(const ValidationMetrics& metrics) override { validations.push_back(metrics); }
  void OnCheckpoint(const CheckpointMetrics& metrics) override {
    if (metrics.step == full_after_step) full_disk = std::make_unique<FileSizeLimit>(100);
  }
  void OnText(int64_t /*step*/, TextKind kind, std::string_view text) override {
    if (kind == TextKind::kNotice) notices.emplace_back(text);
    if (kind != TextKind::kWarning) return;
    full_disk.reset();
    warnings.emplace_back(text);
  }
  std::vector<std::string> warnings, notices;
  std::vector<ValidationMetrics> validations;
  int64_t full_after_step = -1;
  std::unique_ptr<FileSizeLimit> full_disk;  // from that step's checkpoint to the next warning
};

class ValidationRun : public ::testing::Test {
 protected:
  ValidationRun() {
    const testing::RunSpec spec = testing::SmallRun(ResidualMethod::kDeepNorm);
    options_.model = spec.model;
    options_.batch = spec.batch;
    options_.run_directory = directory_.path();
    options_.stop.steps = 5;
    options_.validation.every_steps = 2;
    options_.checkpoint.every_steps = 1;
  }

  // `checkpoint`: where the run resumes; empty: nowhere.
  TrainingOutcome Train(std::optional<double> bleu = std::nullopt, const std::string& checkpoint = "") {
    InProcessWorld world(1);
    const ParameterStore* parameters = nullptr;
    const TrainingSurroundings surroundings{
        .communicator = world.communicator(0),
        .stream = Stream::Cpu(1),
        .train = corpus_,
        .validation = &validation_,
        .sink = sink_,
        .before_step =
            [&](int64_t step) {
              if (before_step_) before_step_(step, TableOf(*parameters));
            },
        .validation_bleu = [&](Engine&, int64_t) -> absl::StatusOr<TranslatedValidation> {
          TranslatedValidation translated;
          if (bleu) translated.scores = TranslationScores{.bleu = *bleu};
          return translated;
        }};
    TrainingOutcome outcome;
    const absl::Status status = testing::WithTrainer(options_, surroundings, [&](Trainer& trainer) -> absl::Status {
      parameters = &trainer.engine().stage().parameters();
      if (!checkpoint.empty()) {
        HADAL_RETURN_IF_ERROR(weights_alone_ ? trainer.InitializeFrom(FindNamed(checkpoint))
                                             : trainer.Resume(FindNamed(checkpoint)));
      }
      HADAL_ASSIGN_OR_RETURN(outcome, trainer.Run());
      table_ = Copy(TableOf(*parameters));
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    return outcome;
  }

  // The output projection.
  static Vector TableOf(const ParameterStore& parameters) {
    return parameters.WeightVector(parameters.plan().sublayers[parameters.plan().output_head()].table);
  }
  static std::vector<float> Copy(Vector values) { return {values.data, values.data + values.size}; }
  // Weights do not change.
  void StandStill() { options_.rate.peak = options_.rate.warmup_initial_rate = 0; }

  double NllOf(int64_t step) {
    const std::string directory = CheckpointsDirectory(directory_.path()) + "/" + CheckpointName(step);
    return CheckpointReader::Open(directory).value().manifest().progress.validation_nll;
  }

  TemporaryDirectory directory_;
  TrainOptions options_;
  Corpus corpus_ = testing::SmallCorpus(), validation_ = testing::SmallCorpus();
  ValidationSink sink_;
  std::function<void(int64_t step, Vector table)> before_step_;  // may be empty
  std::vector<float> table_;                                     // when the last run ended
  bool weights_alone_ = false;                                   // a run starts anew from its checkpoint
};

TEST_F(ValidationRun, ACheckpointHasTheNllOfItsOwnWeightsOrNone) {
  Train();
  ASSERT_EQ(sink_.validations.size(), 3u) << "the last step's weights, too";
  EXPECT_EQ(NllOf(2), sink_.validations[0].nll);
  EXPECT_EQ(NllOf(4), sink_.validations[1].nll);
  EXPECT_EQ(NllOf(5), sink_.validations[2].nll);
  for (const int64_t step : {1, 3}) EXPECT_TRUE(std::isinf(NllOf(step))) << "step " << step << " was not validated";
}

TEST_F(ValidationRun, IsOfAsManySentencesAsTheOptionsSay) {
  options_.validation.max_sentences = 7;
  Train();
  EXPECT_EQ(sink_.validations.at(0).sentences, 7);
}

// The lowest nll of another set says nothing about this one's: a run that resumes with it begins anew and keeps the
// best of this set, also if that is no better than the other set's.
TEST_F(ValidationRun, TheBestIsOfThePresentSet) {
  StandStill();
  options_.stop.steps = 4;
  options_.stop.patience = 2;
  options_.validation.max_sentences = 1;
  const TrainingOutcome first = Train();
  EXPECT_EQ(first.progress.best_step(), 2);
  EXPECT_EQ(first.progress.validations_without_improvement, 1);
  const double other_nll = first.progress.best.front().score;
  sink_.validations.clear();
  options_.validation.max_sentences = 0;
  options_.stop.steps = 6;
  before_step_ = [](int64_t /*step*/, Vector table) {
    for (int64_t i = 0; i < table.size; ++i) table[i] *= 1.5f;  // worse from step to step
  };
  const std::string at_4 = CheckpointsDirectory(directory_.path()) + "/" + CheckpointName(4);
  const TrainingOutcome resumed = Train(std::nullopt, at_4);
  ASSERT_EQ(sink_.validations.size(), 2u);
  EXPECT_EQ(sink_.validations[0].step, 4) << "validated where it resumed";
  EXPECT_NE(sink_.validations[0].nll, other_nll);
  EXPECT_EQ(resumed.progress.best.front().score, sink_.validations[0].nll);
  EXPECT_EQ(resumed.progress.best_step(), 4);
  EXPECT_EQ(resumed.progress.validations_without_improvement, 1);
  EXPECT_EQ(*ReadCheckpointPointer(directory_.path(), CheckpointPointer::kBest), 4);
  EXPECT_THAT(sink_.notices, ElementsAre(HasSubstr("the validation set is another one (60 samples"),
                                         HasSubstr("best and patience are reset")));
  // The same set of sentences, whatever file or limit it comes from, goes on.
  sink_.notices.clear();
  options_.validation.max_sentences = 60;
  options_.stop.steps = 7;
  before_step_ = nullptr;
  EXPECT_EQ(Train(std::nullopt, resumed.checkpoint).progress.best_step(), 4);
  EXPECT_THAT(sink_.notices, ElementsAre());
}

// The weights of a BranchNorm model are made for the gain that they have grown with.
TEST_F(ValidationRun, AGrowingGainGoesOnFromTheWeightsUpdate) {
  StandStill();
  ApplyResidualMethod(ResidualMethod::kBranchNorm, options_.model);
  options_.model.branch_growth_updates = 100;
  options_.stop.steps = 7;
  options_.validation.every_steps = 1;
  Train();
  std::vector<double> unbroken;
  for (const ValidationMetrics& validation : sink_.validations) unbroken.push_back(validation.nll);
  ASSERT_EQ(unbroken.size(), 7u);
  EXPECT_NE(unbroken[0], unbroken[5]);
  sink_.validations.clear();
  weights_alone_ = true;
  options_.stop.steps = 1;
  const std::string at_5 = CheckpointsDirectory(directory_.path()) + "/" + CheckpointName(5);
  options_.run_directory = directory_ / "anew";
  const TrainingOutcome anew = Train(std::nullopt, at_5);
  EXPECT_EQ(anew.progress.step, 1);
  weights_alone_ = false;
  options_.stop.steps = 2;
  Train(std::nullopt, anew.checkpoint);
  ASSERT_EQ(sink_.validations.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(sink_.validations[i].nll, unbroken[5 + i]);
  weights_alone_ = true;
  options_.stop.steps = 1;
  options_.run_directory = directory_ / "anew_again";
  Train(std::nullopt, anew.checkpoint);
  ASSERT_EQ(sink_.validations.size(), 3u);
  EXPECT_EQ(sink_.validations[2].nll, unbroken[6]) << "the updates of both runs before";
}

TEST_F(ValidationRun, AnotherSeedIsThatOfTheRunFromThereOn) {
  options_.stop.steps = 1;
  options_.seed = 5;
  const std::string saved = Train().checkpoint;
  options_.stop.steps = 2;
  options_.seed = 6;
  options_.run_directory = directory_ / "reseeded";
  EXPECT_EQ(Train(std::nullopt, saved).progress.seed, 6u);
}

// Saved when it is validated, and no worse one after it.
TEST_F(ValidationRun, TheBestAloneIsSavedBetweenSaves) {
  StandStill();
  options_.validation.every_steps = 1;
  options_.checkpoint = {.every_steps = 100, .save_at_end = false};
  before_step_ = [](int64_t step, Vector table) {
    if (step != 2) return;
    for (int64_t i = 0; i < table.size; ++i) table[i] *= 4;
  };
  Train();
  std::vector<bool> best;
  for (const ValidationMetrics& metrics : sink_.validations) best.push_back(metrics.best);
  EXPECT_THAT(best, ElementsAre(true, false, false, false, false));
  EXPECT_GT(sink_.validations[2].nll, sink_.validations[0].nll);
  EXPECT_THAT(SavedSteps(options_.run_directory), ElementsAre(1));
  EXPECT_EQ(*ReadCheckpointPointer(directory_.path(), CheckpointPointer::kBest), 1);
}

// The weights of steps 2 to 5 are alike and better than those of step 1; step 2's cannot be saved.
TEST_F(ValidationRun, ABestThatWasNotSavedIsFollowedByTheNext) {
  StandStill();
  options_.validation.every_steps = 1;
  sink_.full_after_step = 1;
  before_step_ = [](int64_t step, Vector table) {
    if (step > 1) return;
    for (int64_t i = 0; i < table.size; ++i) table[i] *= step == 0 ? 4.0f : 0.25f;
  };
  const TrainingOutcome outcome = Train();
  EXPECT_THAT(SavedSteps(options_.run_directory), ElementsAre(1, 3, 4, 5));
  EXPECT_GT(outcome.progress.best_step(), 2);
  EXPECT_EQ(*ReadCheckpointPointer(directory_.path(), CheckpointPointer::kBest), outcome.progress.best_step());
}

TEST_F(ValidationRun, PatienceEndsARunThatDoesNotImprove) {
  StandStill();
  options_.stop.patience = 2;
  options_.stop.steps = 20;
  options_.checkpoint.every_steps = 0;
  const TrainingOutcome outcome = Train();
  EXPECT_EQ(outcome.reason, StopReason::kPatience);
  EXPECT_EQ(outcome.progress.step, 6) << "validated at 2, 4 and 6";
  EXPECT_EQ(outcome.progress.best_step(), 2);
  EXPECT_THAT(SavedSteps(options_.run_directory), ElementsAre(2, 6)) << "the best model is the result";
}

TEST_F(ValidationRun, StepsLargerThanTheTextAreWarnedOf) {
  options_.batch.micro_batches = 100;
  options_.stop = {.epochs = 1};
  options_.rate.warmup_updates = 2;
  EXPECT_EQ(Train().progress.step, 1);
  EXPECT_THAT(sink_.warnings, ElementsAre(HasSubstr("a step reads the training text "),
                                          HasSubstr("the run ended inside the warm-up: update 1 of 2")));
}

TEST_F(ValidationRun, EpochsThatEndBeforeTheRateHasFallenAreWarnedOf) {
  options_.rate = {.schedule = RateSchedule::kCosine, .warmup_updates = 0};
  options_.stop = {.steps = 1000, .epochs = 1};
  options_.checkpoint = {.keep_last = 1, .keep_every = 2};
  EXPECT_GT(Train().progress.step, 2);
  EXPECT_THAT(sink_.warnings, ElementsAre(HasSubstr("and its learning rate falls until stop.steps = 1000")));
  EXPECT_THAT(SavedSteps(options_.run_directory), Contains(2)) << "keep_every saves";
}

TEST_F(ValidationRun, AnEndByTheClockDoesNotCountTowardsPatience) {
  StandStill();
  options_.stop.patience = 2;
  options_.stop.minutes = 1e-9;  // a step of each start
  std::string checkpoint;
  for (const int64_t step : {1, 2, 3}) {
    const TrainingOutcome outcome = Train(std::nullopt, checkpoint);
    checkpoint = CheckpointsDirectory(directory_.path()) + "/" + CheckpointName(step);
    EXPECT_EQ(outcome.reason, StopReason::kMinutes);
    EXPECT_EQ(outcome.progress.step, step);
    EXPECT_EQ(outcome.progress.validations_without_improvement, step / 2) << "of step 2 alone";
  }
  EXPECT_EQ(sink_.validations.size(), 3u);
}

// Writing the source's embedding takes longer than the next step's way to its update, and the output projection, the
// last parameter, is written after it.
TEST_F(ValidationRun, ACheckpointHasTheWeightsOfItsStep) {
  options_.model.sharing = EmbeddingSharing::kNone;
  options_.model.source_vocabulary = 100000;
  corpus_ = testing::RandomCorpusFor(options_.model, 60, 9, 5);
  options_.validation.every_steps = 0;
  options_.stop.steps = 3;
  std::vector<std::vector<float>> tables;  // [steps done]
  before_step_ = [&](int64_t /*step*/, Vector table) { tables.push_back(Copy(table)); };
  Train();
  before_step_ = nullptr;
  for (const int64_t step : {1, 2}) {
    const std::string saved = CheckpointsDirectory(directory_.path()) + "/" + CheckpointName(step);
    options_.stop.steps = step;
    options_.run_directory = directory_ / CheckpointName(step);
    Train(std::nullopt, saved);
    EXPECT_TRUE(table_ == tables.at(step)) << "step " << step;
    EXPECT_FALSE(table_ == tables.at(step - 1)) << "nothing was trained";
  }
}

TEST_F(ValidationRun, BleuOfNothingIsNone) {
  Train();
  EXPECT_EQ(sink_.validations.size(), 3u);
  for (const ValidationMetrics& metrics : sink_.validations) EXPECT_FALSE(metrics.scores.has_value());
  sink_.validations.clear();
  options_.run_directory = directory_ / "another";
  Train(12.5);
  EXPECT_EQ(sink_.validations.size(), 3u);
  for (const ValidationMetrics& metrics : sink_.validations) EXPECT_EQ(metrics.scores->bleu, 12.5);
}

// All of training's fit.
TEST_F(ValidationRun, SaysHowManyOfItsSentencesAreLeftOut) {
  validation_ = testing::RandomCorpus(50, 30, testing::kSmallVocabulary, 5);
  options_.stop.steps = 1;
  Train();
  const BatchCapacity capacity{.source_rows = 20, .target_rows = 20, .sentence_rows = options_.model.max_positions};
  const int64_t too_long = ChooseValidationSamples(validation_, capacity, 0)->too_long;
  ASSERT_GT(too_long, 0);
  ASSERT_EQ(sink_.warnings.size(), 1u);
  EXPECT_NE(sink_.warnings[0].find(absl::StrCat(too_long, " of 50 validation samples")), std::string::npos)
      << sink_.warnings[0];
}

}  // namespace
}  // namespace hadal

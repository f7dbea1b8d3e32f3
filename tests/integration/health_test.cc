// What a run does when steps are not finite: skips them on all ranks alike, goes back to a checkpoint, ends.
// The trouble is made from outside, in the weights, before a step.
#include <cmath>
#include <set>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pipeline/trainer.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/saved_steps.h"
#include "tests/support/step_batches.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kVocabulary = 40;

// What rank 0 was told.
class Recorder : public MetricsSink {
 public:
  void OnStep(const StepMetrics& metrics) override { steps.push_back(metrics); }
  void OnText(int64_t step, TextKind kind, std::string_view text) override {
    if (kind == TextKind::kWarning) warnings.emplace_back(text);
    if (kind == TextKind::kDiagnosis) diagnoses.emplace_back(text);
  }
  // From 0, as sampling orders and callers count.
  std::set<int64_t> Skipped() const {
    std::set<int64_t> skipped;
    for (const StepMetrics& step : steps) {
      if (step.skipped) skipped.insert(step.step - 1);
    }
    return skipped;
  }
  std::vector<StepMetrics> steps;
  std::vector<std::string> warnings, diagnoses;
};

// Called on every rank before each of its steps.
using Trouble = std::function<void(int64_t step, const ParameterStore& parameters)>;

struct Outcome {
  absl::Status status;
  TrainingProgress progress;
  Recorder recorder;
  std::vector<std::vector<float>> weights;  // [parameters]
};

class Health : public ::testing::TestWithParam<int> {
 protected:
  Health() {
    options_.seed = 5;
    options_.run_directory = directory_.path();
    options_.model = testing::SmallModel(ResidualMethod::kDeepNorm, {.d_model = 16, .vocabulary = kVocabulary});
    options_.model.sharing =
        EmbeddingSharing::kNone;  // a source row's trouble stays with the sentences that have the word
    options_.batch = {.micro_batches = 3, .sum_groups = 2, .source_tokens = 24, .target_tokens = 24};
    if (GetParam() == 4) options_.pipeline.replicas = 2;
    options_.rate.warmup_updates = 2;
    options_.stop.steps = 12;
    options_.checkpoint.every_steps = 2;
    options_.health.skipped_steps = 3;
  }

  Outcome Train(const Trouble& trouble) {
    Outcome outcome;
    outcome.weights.resize(ModelPlan::Make(options_.model).parameters.size());
    std::mutex mutex;
    InProcessWorld world(GetParam());
    outcome.status = world.Run([&](Communicator& communicator) {
      Trainer* running = nullptr;
      const TrainingSurroundings surroundings{
          .communicator = communicator,
          .stream = Stream::Cpu(1),
          .train = corpus_,
          .sink = outcome.recorder,
          .before_step = [&](int64_t step) { trouble(step, running->engine().stage().parameters()); }};
      return testing::WithTrainer(options_, surroundings, [&](Trainer& trainer) -> absl::Status {
        running = &trainer;
        if (resumes_) HADAL_RETURN_IF_ERROR(trainer.ResumeLatest().status());
        if (!resume_from_.empty()) {
          absl::StatusOr<FoundCheckpoint> chosen = FindNamed(resume_from_);
          if (chosen.ok()) chosen->manifest.progress.best = {{.step = 1, .score = 7}};  // as its caller may change it
          HADAL_RETURN_IF_ERROR(trainer.Resume(std::move(chosen)));
        }
        HADAL_ASSIGN_OR_RETURN(const TrainingOutcome result, trainer.Run());
        const std::lock_guard lock(mutex);
        if (communicator.rank() == 0) outcome.progress = result.progress;
        const ParameterStore& parameters = trainer.engine().stage().parameters();
        for (const int32_t p : parameters.owned()) {
          const Vector weight = parameters.WeightVector(p);
          outcome.weights[p].assign(weight.data, weight.data + weight.size);
        }
        return absl::OkStatus();
      });
    });
    return outcome;
  }

  // Spoils (or mends) the source embedding of one word, where it is.
  static void SetWord(const ParameterStore& parameters, int32_t token, float value) {
    const int32_t table = parameters.plan().sublayers[parameters.plan().source_embedding()].first_parameter;
    if (parameters.Holds(table)) parameters.Weight(table).row(token)[0] = value;
  }

  SamplingOrder Order() {
    return SamplingOrder::Create(corpus_, {.seed = options_.seed,
                                           .capacity = {options_.batch.source_tokens, options_.batch.target_tokens},
                                           .micro_batches_per_step = options_.batch.micro_batches})
        .value();
  }
  // Steps of the run whose data have `token` on the source side.
  std::set<int64_t> StepsWith(int32_t token) {
    SamplingOrder order = Order();
    std::set<int64_t> steps;
    for (int64_t step = 0; step < options_.stop.steps; ++step) {
      for (const PackedBatch& batch : NextStep(order).micro_batches) {
        if (std::count(batch.source.begin(), batch.source.end(), token) > 0) steps.insert(step);
      }
    }
    return steps;
  }

  static bool Finite(const Outcome& outcome) {
    for (const std::vector<float>& weights : outcome.weights) {
      for (const float w : weights) {
        if (!std::isfinite(w)) return false;
      }
    }
    return true;
  }

  TemporaryDirectory directory_;
  bool resumes_ = false;
  std::string resume_from_;
  TrainOptions options_;
  Corpus corpus_ = testing::RandomCorpus(60, 8, kVocabulary, 3);
};

TEST_P(Health, AStepWithOneBadMicroBatchIsSkippedByAllRanks) {
  // A word that some steps have and most have not.
  options_.health.skipped_steps = 100;
  int32_t token = kSpecialTokens;
  std::set<int64_t> expected = StepsWith(token);
  while (expected.empty() || expected.size() > 6) expected = StepsWith(++token);
  const Outcome outcome =
      Train([&](int64_t step, const ParameterStore& parameters) { SetWord(parameters, token, kNaN); });
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.recorder.Skipped(), expected);
  EXPECT_EQ(outcome.progress.step, 12);
  EXPECT_EQ(outcome.progress.update, 12 - static_cast<int64_t>(expected.size()));
  ASSERT_EQ(outcome.recorder.warnings.size(), expected.size());
  ASSERT_FALSE(outcome.recorder.diagnoses.empty());
  EXPECT_THAT(outcome.recorder.diagnoses[0],
              AllOf(StartsWith(absl::StrCat("step ", *expected.begin() + 1, " failed; ")),
                    HasSubstr("forward, source embedding, output (micro-batch ")));
}

TEST_P(Health, TooManyInARowGoBackToTheLastCheckpoint) {
  // Every word is bad from step 7 on, until something loads the weights again.
  const Outcome outcome = Train([&](int64_t step, const ParameterStore& parameters) {
    if (step != 7) return;
    for (int32_t token = 0; token < kVocabulary; ++token) SetWord(parameters, token, kNaN);
  });
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.recorder.Skipped(), (std::set<int64_t>{7, 8, 9}));
  EXPECT_EQ(outcome.progress.step, 12);
  EXPECT_EQ(outcome.progress.update, 6 + 2);  // the checkpoint of step 6, then steps 10 and 11
  SamplingOrder order = Order();
  for (int64_t step = 0; step < 12; ++step) NextStep(order, step);
  EXPECT_EQ(outcome.progress.place.epoch, order.place().epoch);
  EXPECT_EQ(outcome.progress.place.read, order.place().read) << "the data of the skipped steps do not come again";
  EXPECT_THAT(outcome.recorder.warnings.back(), HasSubstr("went back to the checkpoint of step 6"));
  EXPECT_TRUE(Finite(outcome));
}

// The checkpoint of step 8 has the weights that fail: the resumed run goes back behind it, where an unbroken one does.
TEST_P(Health, AStopAmongSkippedStepsIsGoneBackBehind) {
  options_.stop.steps = 8;
  const Outcome stopped = Train([&](int64_t step, const ParameterStore& parameters) {
    if (step != 7) return;
    for (int32_t token = 0; token < kVocabulary; ++token) SetWord(parameters, token, kNaN);
  });
  ASSERT_TRUE(stopped.status.ok()) << stopped.status;
  EXPECT_EQ(stopped.progress.skipped_in_a_row, 1);
  options_.stop.steps = 12;
  resumes_ = true;
  const Outcome outcome = Train([](int64_t, const ParameterStore&) {});
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.recorder.Skipped(), (std::set<int64_t>{8, 9}));
  EXPECT_EQ(outcome.progress.update, 6 + 2);
  EXPECT_THAT(outcome.recorder.warnings.back(), HasSubstr("went back to the checkpoint of step 6"));
  EXPECT_TRUE(Finite(outcome));
}

// A run that began with another run's checkpoint, and has saved none of its own, goes back to that one.
TEST_P(Health, BeforeItsFirstSaveAResumedRunGoesBackToWhereItBegan) {
  options_.stop.steps = 6;
  ASSERT_TRUE(Train([](int64_t, const ParameterStore&) {}).status.ok());
  resume_from_ = FindLatest(directory_.path())->checkpoint.directory;
  options_.run_directory = directory_ / "resumed";
  options_.stop.steps = 12;
  const Outcome outcome = Train([](int64_t step, const ParameterStore& parameters) {
    if (step != 6) return;
    for (int32_t token = 0; token < kVocabulary; ++token) SetWord(parameters, token, kNaN);
  });
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.recorder.Skipped(), (std::set<int64_t>{6, 7, 8}));
  EXPECT_EQ(outcome.progress.update, 6 + 3);
  EXPECT_EQ(outcome.progress.best_step(), 1) << "what the run began with";
  EXPECT_THAT(outcome.recorder.warnings.back(), HasSubstr("went back to the checkpoint of step 6"));
  EXPECT_TRUE(Finite(outcome));
}

TEST_P(Health, ASecondTimeFromTheSameWeightsEndsTheRun) {
  const Outcome outcome = Train([&](int64_t step, const ParameterStore& parameters) {
    if (step < 5) return;
    for (int32_t token = 0; token < kVocabulary; ++token) SetWord(parameters, token, kNaN);
  });
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kOutOfRange) << outcome.status;
  EXPECT_THAT(std::string(outcome.status.message()),
              AllOf(HasSubstr("3 steps in a row were left out"),
                    HasSubstr("again after going back to the weights of update 4")));
  EXPECT_TRUE(IsCommonError(outcome.status));  // all ranks end with it: none is waited for in vain
  EXPECT_EQ(outcome.recorder.Skipped(), (std::set<int64_t>{5, 6, 7, 8, 9, 10}));
  // What went wrong was never saved.
  const std::string newest = FindLatest(directory_.path())->checkpoint.directory;
  EXPECT_EQ(CheckpointReader::Open(newest)->manifest().progress.update, 4);
}

// The words of step 8 are made large for that step alone: its loss is finite, and far from those before.
TEST_P(Health, ALossSpikeIsLeftOutByAllRanks) {
  options_.health.loss_spike = {.deviations = 6, .window = 5};
  options_.checkpoint.every_steps = 3;
  const Outcome calm = Train([](int64_t, const ParameterStore&) {});
  ASSERT_TRUE(calm.status.ok()) << calm.status;
  EXPECT_TRUE(calm.recorder.Skipped().empty());
  options_.run_directory = directory_ / "spiked";
  const Outcome outcome = Train([&](int64_t step, const ParameterStore& parameters) {
    const int32_t head = parameters.plan().sublayers[parameters.plan().output_head()].first_parameter;
    if (!parameters.Holds(head) || step < 8 || step > 9) return;
    const Matrix table = parameters.Weight(head);
    for (int64_t i = 0; i < table.rows; ++i) table.row(i)[i % table.columns] *= step == 8 ? 64.0f : 1.0f / 64;
  });
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.recorder.Skipped(), (std::set<int64_t>{8}));
  EXPECT_EQ(outcome.progress.update, 11);
  EXPECT_EQ(outcome.progress.loss_trend.losses, 11);
  ASSERT_EQ(outcome.recorder.warnings.size(), 1u);
  EXPECT_THAT(outcome.recorder.warnings[0], HasSubstr("deviations above the mean"));
  ASSERT_EQ(outcome.recorder.diagnoses.size(), 1u);
  EXPECT_THAT(outcome.recorder.diagnoses[0], StartsWith("step 9 failed; all numbers are finite"));
  EXPECT_THAT(SavedSteps(options_.run_directory), ElementsAre(3, 6, 10, 12))
      << "the save of step 9 waits for an update";
}

TEST_P(Health, WithoutACheckpointTheRunEnds) {
  options_.checkpoint.every_steps = 0;
  const Outcome outcome = Train([&](int64_t step, const ParameterStore& parameters) {
    for (int32_t token = 0; token < kVocabulary; ++token) SetWord(parameters, token, kNaN);
  });
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kOutOfRange) << outcome.status;
  EXPECT_THAT(
      std::string(outcome.status.message()),
      HasSubstr("no checkpoint to go back to. step 1 failed; first number that is not finite: forward, source "));
  EXPECT_EQ(outcome.recorder.steps.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Health, ::testing::Values(1, 2, 3, 4), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace hadal

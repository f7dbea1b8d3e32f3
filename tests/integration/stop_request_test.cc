// What a run does that is asked to stop: all ranks end with the same step, saved, whatever the options say, and whoever goes on finds
// nothing missing.
#include <atomic>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/status_macros.h"
#include "tests/integration/small_trainer.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;

// Hears of rank 0's steps, and asks for the end.
class Asker : public MetricsSink {
 public:
  void OnStep(const StepMetrics& metrics) override {
    if (metrics.step + 1 == ask_after_steps) asked = true;
  }
  int64_t ask_after_steps = -1;
  std::atomic<bool> asked = false;
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
    const ModelPlan plan = ModelPlan::Make(options_.model);
    InProcessWorld world(GetParam());
    const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
      PrepareComputeThread();
      HADAL_ASSIGN_OR_RETURN(const PipelinePlan pipeline, MakePipelinePlan(plan, options_.batch, options_.pipeline,
                                                                           communicator.size(), communicator.rank()));
      const TrainingSurroundings surroundings{.communicator = communicator,
                                              .stream = Stream::Cpu(1),
                                              .train = corpus_,
                                              .sink = asker_,
                                              .stop_requested = [this] { return asker_.asked.load(); }};
      HADAL_ASSIGN_OR_RETURN(
          const std::unique_ptr<Trainer> trainer,
          Trainer::Create(options_, plan, pipeline, surroundings, {.run_directory = options_.run_directory}));
      HADAL_RETURN_IF_ERROR(trainer->ResumeLatest().status());
      HADAL_ASSIGN_OR_RETURN(const TrainingOutcome result, trainer->Run());
      if (communicator.rank() == 0) outcome = result;
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    return outcome;
  }

  std::vector<int64_t> SavedSteps() const {
    std::vector<int64_t> steps;
    for (const CheckpointEntry& entry : ListCheckpoints(directory_.path()).value()) steps.push_back(entry.step);
    return steps;
  }

  TemporaryDirectory directory_;
  TrainOptions options_;
  Corpus corpus_ = testing::SmallCorpus();
  Asker asker_;
};

TEST_P(StopRequest, SavesAlsoARunThatIsNotSavedWhenItIsDone) {
  options_.checkpoint.save_at_end = false;
  asker_.ask_after_steps = 2;
  const TrainingOutcome outcome = Train();
  EXPECT_EQ(outcome.reason, StopReason::kRequested);
  EXPECT_EQ(outcome.progress.step, 3);
  EXPECT_THAT(SavedSteps(), ElementsAre(3));
  asker_.asked = false;
  asker_.ask_after_steps = -1;
  EXPECT_EQ(Train().reason, StopReason::kSteps);
  EXPECT_THAT(SavedSteps(), ElementsAre(3)) << "done: as the option says";
}

INSTANTIATE_TEST_SUITE_P(Ranks, StopRequest, ::testing::Values(1, 2), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace hadal

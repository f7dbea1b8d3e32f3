// A checkpoint knows no layout: saved on any grid of stages × replicas, it goes on on any other as if nothing had
// happened.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/temporary_directory.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 97;
constexpr int kStepsBefore = 5, kStepsAfter = 5;

struct Grid {
  int stages = 1;
  int replicas = 1;
};
constexpr Grid kGrids[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}};

std::string Name(const Grid& grid) { return std::to_string(grid.stages) + "x" + std::to_string(grid.replicas); }

class LossSink final : public MetricsSink {
 public:
  void OnStep(const StepMetrics& metrics) override {
    steps.push_back(metrics.step);
    losses.push_back(metrics.loss);
  }
  std::vector<int64_t> steps;
  std::vector<double> losses;
};

class ResumeGridTest : public ::testing::Test {
 protected:
  ResumeGridTest() : corpus_(RandomCorpus(200, 16, kVocabulary, 5)) {
    options_.model = SmallModel(ResidualMethod::kDeepNorm,
                                {.encoder_layers = 2, .decoder_layers = 2, .d_model = 16, .vocabulary = kVocabulary});
    options_.batch = {.micro_batches = 5, .source_tokens = 48, .target_tokens = 48};
    options_.optimizer.clip_norm = 0.5;
    options_.rate.warmup_updates = 4;
    options_.checkpoint.save_at_end = false;
    options_.pipeline.wait_timeout_seconds = 60;
  }

  std::string RunDirectory(const Grid& grid) const { return directory_ / Name(grid); }
  // Trains to step `steps`, from `checkpoint` where it is not empty; the losses of the steps done here.
  std::vector<double> Train(TrainOptions options, const Grid& grid, int steps, const std::string& checkpoint) {
    options.stop.steps = steps;
    options.run_directory = RunDirectory(grid);
    options.pipeline.stages = grid.stages;
    options.pipeline.replicas = grid.replicas;
    const ModelPlan plan = ModelPlan::Make(options.model);
    LossSink sink;
    InProcessWorld world(grid.stages * grid.replicas);
    const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
      PrepareComputeThread();
      HADAL_ASSIGN_OR_RETURN(const PipelinePlan pipeline, MakePipelinePlan(plan, options.batch, options.pipeline,
                                                                           communicator.size(), communicator.rank()));
      const TrainingSurroundings surroundings{
          .communicator = communicator, .stream = Stream::Cpu(1), .train = corpus_, .sink = sink};
      HADAL_ASSIGN_OR_RETURN(
          const std::unique_ptr<Trainer> trainer,
          Trainer::Create(options, plan, pipeline, surroundings, {.run_directory = options.run_directory}));
      if (!checkpoint.empty()) HADAL_RETURN_IF_ERROR(trainer->Resume(FindNamed(checkpoint)));
      HADAL_ASSIGN_OR_RETURN(const TrainingOutcome outcome, trainer->Run());
      if (communicator.rank() == 0) saved_ = outcome.checkpoint;
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < sink.steps.size(); ++i) {
      EXPECT_EQ(sink.steps[i], static_cast<int64_t>(steps - sink.steps.size() + i)) << "a step is missing or double";
    }
    return sink.losses;
  }

  TrainOptions Saving() const {
    TrainOptions options = options_;
    options.checkpoint.save_at_end = true;
    return options;
  }

  Corpus corpus_;
  TemporaryDirectory directory_;
  TrainOptions options_;
  std::string saved_;  // the last run's checkpoint, if it saved one
};

TEST_F(ResumeGridTest, SavedOnAnyGridResumedOnAnyOther) {
  std::map<std::string, std::string> checkpoints;  // by grid
  std::map<int, std::vector<double>> unbroken;     // by replicas: the bits depend on nothing else
  for (const Grid& grid : kGrids) {
    const std::vector<double> losses = Train(options_, grid, kStepsBefore + kStepsAfter, "");
    ASSERT_EQ(losses.size(), static_cast<size_t>(kStepsBefore + kStepsAfter));
    const auto [first, is_new] = unbroken.emplace(grid.replicas, losses);
    if (!is_new) {
      EXPECT_EQ(losses, first->second) << Name(grid);
    }
    Train(Saving(), grid, kStepsBefore, "");
    checkpoints[Name(grid)] = saved_;
  }
  for (const Grid& saved : kGrids) {
    for (const Grid& grid : kGrids) {
      SCOPED_TRACE("saved on " + Name(saved) + ", resumed on " + Name(grid));
      const std::vector<double> losses = Train(options_, grid, kStepsBefore + kStepsAfter, checkpoints[Name(saved)]);
      ASSERT_EQ(losses.size(), static_cast<size_t>(kStepsAfter));
      for (int i = 0; i < kStepsAfter; ++i) {
        const double expected = unbroken[grid.replicas][kStepsBefore + i];
        if (saved.replicas == grid.replicas) {
          EXPECT_EQ(losses[i], expected) << "step " << kStepsBefore + i;
        } else {
          EXPECT_NEAR(losses[i] / expected, 1, 1e-6) << "step " << kStepsBefore + i;
        }
      }
    }
  }
}

// Admin's vectors start from a profile of the first micro-batch; whoever goes on has them from the checkpoint.
TEST_F(ResumeGridTest, AdminIsProfiledOnceAndAlikeOnEveryReplica) {
  ApplyResidualMethod(ResidualMethod::kAdmin, options_.model);
  const std::vector<double> unbroken = Train(options_, {2, 1}, kStepsBefore + kStepsAfter, "");
  Train(Saving(), {1, 1}, kStepsBefore, "");
  const std::vector<double> resumed = Train(options_, {2, 1}, kStepsBefore + kStepsAfter, saved_);
  EXPECT_EQ(resumed, std::vector<double>(unbroken.begin() + kStepsBefore, unbroken.end()));
  const std::vector<double> replicas = Train(options_, {2, 2}, 2, "");
  for (size_t i = 0; i < replicas.size(); ++i) EXPECT_NEAR(replicas[i] / unbroken[i], 1, 1e-6) << "step " << i;
}

// The rows of DLCL's weights lie on the ranks of the layers that read them, and are found wherever those lie later.
TEST_F(ResumeGridTest, CombinedLayersToo) {
  ApplyResidualMethod(ResidualMethod::kDlclPre, options_.model);
  const std::vector<double> unbroken = Train(options_, {1, 1}, kStepsBefore + kStepsAfter, "");
  Train(Saving(), {3, 1}, kStepsBefore, "");
  const std::vector<double> resumed = Train(options_, {2, 1}, kStepsBefore + kStepsAfter, saved_);
  EXPECT_EQ(resumed, std::vector<double>(unbroken.begin() + kStepsBefore, unbroken.end()));
}

TEST_F(ResumeGridTest, LanguageModelsToo) {
  options_.model =
      SmallModel(ResidualMethod::kDeepNorm, {.encoder_layers = 0, .d_model = 16, .vocabulary = kVocabulary});
  corpus_ = RandomCorpusFor(options_.model, 200, 16, 5);
  const std::vector<double> unbroken = Train(options_, {1, 1}, kStepsBefore + kStepsAfter, "");
  Train(Saving(), {4, 1}, kStepsBefore, "");
  const std::string checkpoint = saved_;
  for (const Grid& grid : {Grid{1, 1}, {3, 1}}) {
    const std::vector<double> losses = Train(options_, grid, kStepsBefore + kStepsAfter, checkpoint);
    EXPECT_TRUE(std::equal(losses.begin(), losses.end(), unbroken.begin() + kStepsBefore, unbroken.end()))
        << Name(grid);
  }
}

// Whether moments are cut over the replicas is no part of a checkpoint either.
TEST_F(ResumeGridTest, ShardingMayChangeOnResume) {
  const Grid grid{2, 3};
  const std::vector<double> unbroken = Train(options_, grid, kStepsBefore + kStepsAfter, "");
  TrainOptions whole = options_;
  whole.pipeline.shard_optimizer_state = false;
  TrainOptions saving = Saving();
  for (const bool sharded : {true, false}) {
    saving.pipeline.shard_optimizer_state = sharded;
    std::filesystem::remove_all(RunDirectory(grid));
    Train(saving, grid, kStepsBefore, "");
    const std::vector<double> losses =
        Train(sharded ? whole : options_, grid, kStepsBefore + kStepsAfter, std::string(saved_));
    EXPECT_TRUE(std::equal(losses.begin(), losses.end(), unbroken.begin() + kStepsBefore, unbroken.end()))
        << (sharded ? "saved sharded" : "saved whole");
  }
}

}  // namespace
}  // namespace hadal::testing

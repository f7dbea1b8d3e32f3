// A checkpoint knows no layout: saved on any grid of stages × replicas by any schedule, it goes on on any other as if
// nothing had happened.
#include <algorithm>
#include <atomic>
#include <random>

#include "gtest/gtest.h"
#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/counting_communicator.h"
#include "tests/support/temporary_directory.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 97;
constexpr int kStepsBefore = 5, kStepsAfter = 5;

struct Grid {
  int stages = 1;
  int replicas = 1;
  ScheduleKind schedule = ScheduleKind::k1F1B;
  int chunks = 1;
};

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

using Start = std::function<absl::Status(Trainer&)>;
Start FromNothing() {
  return [](Trainer&) { return absl::OkStatus(); };
}
Start From(const std::string& checkpoint) {
  return [checkpoint](Trainer& trainer) { return trainer.Resume(FindNamed(checkpoint)); };
}

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
  // Trains to step `steps`, from `checkpoint` where it is not empty, in another directory, because a run that goes on
  // from another's checkpoint sets its own aside; the losses of the steps done here.
  std::vector<double> Train(const TrainOptions& options, const Grid& grid, int steps, const std::string& checkpoint) {
    if (checkpoint.empty()) return TrainFrom(options, grid, steps, FromNothing(), RunDirectory(grid));
    return TrainFrom(options, grid, steps, From(checkpoint), directory_ / ("resumed_" + Name(grid)));
  }
  std::vector<double> TrainFrom(TrainOptions options, const Grid& grid, int steps, const Start& start,
                                const std::string& run_directory) {
    options.stop.steps = steps;
    options.run_directory = run_directory;
    options.pipeline.stages = grid.stages;
    options.pipeline.replicas = grid.replicas;
    options.pipeline.schedule = grid.schedule;
    options.pipeline.chunks = grid.chunks;
    // Each grid recomputes other sublayers, where its schedule remains the same.
    for (int32_t s = 0; s < 12 && WithOnePending(grid.schedule) == grid.schedule; s += grid.stages + grid.replicas) {
      options.pipeline.recompute.push_back({.first = s, .length = (s + grid.stages) % 4});
    }
    LossSink sink;
    InProcessWorld world(grid.stages * grid.replicas);
    initial_bytes_ = 0;
    const absl::Status status = world.Run([&](Communicator& of_world) {
      CountingCommunicator communicator(of_world, kInitializationTag, kInitializationTag + 1, initial_bytes_);
      const TrainingSurroundings surroundings{
          .communicator = communicator, .stream = Stream::Cpu(1), .train = corpus_, .sink = sink};
      return WithTrainer(options, surroundings, [&](Trainer& trainer) -> absl::Status {
        HADAL_RETURN_IF_ERROR(start(trainer));
        HADAL_ASSIGN_OR_RETURN(const TrainingOutcome outcome, trainer.Run());
        if (communicator.rank() == 0) saved_ = outcome.checkpoint;
        return absl::OkStatus();
      });
    });
    EXPECT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < sink.steps.size(); ++i) {
      EXPECT_EQ(sink.steps[i], static_cast<int64_t>(steps - sink.steps.size() + i + 1))
          << "a step is missing or double";
    }
    return sink.losses;
  }

  // Saved on one grid and resumed on others, a run has the losses of an unbroken one, which are returned.
  std::vector<double> ExpectGoesOn(const Grid& unbroken, const Grid& saved, const std::vector<Grid>& resumed) {
    const std::vector<double> losses = Train(options_, unbroken, kStepsBefore + kStepsAfter, "");
    Train(Saving(), saved, kStepsBefore, "");
    const std::string checkpoint = saved_;
    for (const Grid& grid : resumed) {
      EXPECT_EQ(Train(options_, grid, kStepsBefore + kStepsAfter, checkpoint),
                std::vector<double>(losses.begin() + kStepsBefore, losses.end()))
          << Name(grid);
    }
    return losses;
  }

  void ExpectWalk(std::vector<Grid> grids, const std::vector<int>& walk);

  TrainOptions Saving() const {
    TrainOptions options = options_;
    options.checkpoint.save_at_end = true;
    return options;
  }

  Corpus corpus_;
  TemporaryDirectory directory_;
  TrainOptions options_;
  std::string saved_;                       // the last run's checkpoint, if it saved one
  std::atomic<int64_t> initial_bytes_ = 0;  // of new weights, sent in the last run
};

// A walk over `n` layouts that takes every pair of them once, also of a layout and itself.
std::vector<int> EveryPair(int n) {
  std::vector<int> walk;
  for (int i = 0; i < n; ++i) {
    walk.push_back(i);
    for (int j = i + 1; j < n; ++j) walk.insert(walk.end(), {i, j});
  }
  walk.push_back(0);
  return walk;
}

// Every number of replicas that divides the same groups, on 1 to 4 stages.
std::vector<Grid> GridsOf(const std::vector<int>& replicas) {
  std::vector<Grid> grids;
  for (const int r : replicas) {
    for (int stages = 1; stages <= 4; ++stages) grids.push_back({stages, r});
  }
  return grids;
}

// A run of a step on each grid in turn, each time by the next of three schedules, has the losses of an unbroken one.
void ResumeGridTest::ExpectWalk(std::vector<Grid> grids, const std::vector<int>& walk) {
  const std::vector<double> unbroken = Train(options_, grids[0], static_cast<int>(walk.size()), "");
  ASSERT_EQ(unbroken.size(), walk.size());
  for (size_t i = 0; i < walk.size(); ++i) {
    Grid& grid = grids[walk[i]];
    SCOPED_TRACE("step " + std::to_string(i + 1) + " on " + Name(grid) + ", " + ToString(grid.schedule));
    const auto resume = [](Trainer& trainer) { return trainer.ResumeLatest().status(); };
    ASSERT_EQ(TrainFrom(Saving(), grid, static_cast<int>(i + 1), resume, directory_ / "walk"),
              std::vector<double>{unbroken[i]});
    grid.chunks = grid.schedule == ScheduleKind::k1F1B ? 2 : 1;
    grid.schedule = grid.chunks == 2                                ? ScheduleKind::kInterleavedZb
                    : grid.schedule == ScheduleKind::kInterleavedZb ? ScheduleKind::kGpipe
                                                                    : ScheduleKind::k1F1B;
  }
}

// Also of another number of replicas, which divide the same groups.
TEST_F(ResumeGridTest, SavedOnAnyGridResumedOnAnyOther) {
  options_.batch.sum_groups = 4;
  ExpectWalk({{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}}, EveryPair(6));
}

TEST_F(ResumeGridTest, NightlyEveryGridOfEightGroups) {
  options_.model.d_model = 64;
  options_.batch = {.micro_batches = 9, .sum_groups = 8, .source_tokens = 24, .target_tokens = 24};
  ExpectWalk(GridsOf({1, 2, 4, 8}), EveryPair(16));
}

TEST_F(ResumeGridTest, NightlyEveryGridOfTwelveGroups) {
  options_.model.d_model = 64;
  options_.optimizer.kind = OptimizerKind::kMuon;
  options_.batch = {.micro_batches = 13, .sum_groups = 12, .source_tokens = 24, .target_tokens = 24};
  ExpectWalk(GridsOf({3, 6, 12}), EveryPair(12));
}

TEST_F(ResumeGridTest, NightlyAtAWidthOf512) {
  options_.model = SmallModel(ResidualMethod::kPreLn,
                              {.encoder_layers = 1, .decoder_layers = 2, .d_model = 512, .vocabulary = kVocabulary});
  options_.batch = {.micro_batches = 13, .sum_groups = 12, .source_tokens = 24, .target_tokens = 24};
  ExpectWalk(GridsOf({3, 6, 12}), {0, 11, 1, 10, 2, 9, 3, 8, 4, 7, 5, 6});
}

// It does not say what was read: as many micro-batches as were trained.
TEST_F(ResumeGridTest, AnOlderCheckpointGoesOnBehindItsSteps) {
  const std::vector<double> losses = Train(options_, {}, kStepsBefore + kStepsAfter, "");
  TrainFrom(Saving(), {}, kStepsBefore, FromNothing(), directory_ / "saved");
  FoundCheckpoint older = *FindNamed(saved_);
  older.manifest.progress.place = {};
  const auto resume = [&](Trainer& trainer) { return trainer.Resume(older); };
  EXPECT_EQ(TrainFrom(options_, {}, kStepsBefore + kStepsAfter, resume, directory_ / "older"),
            std::vector<double>(losses.begin() + kStepsBefore, losses.end()));
}

class ValidationSink final : public MetricsSink {
 public:
  void OnValidation(const ValidationMetrics& metrics) override { validations.push_back(metrics); }
  std::vector<ValidationMetrics> validations;
};

// Batches, seed, temperature, grid, training corpus and validation set change at random steps: every epoch reads each
// sample once, a changed corpus is read from its beginning, and `best` is of the present validation set.
TEST_F(ResumeGridTest, WhateverChangesAtAResumeNothingIsLostOrMixed) {
  std::mt19937 random(3);
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  const Corpus corpora[] = {RandomCorpus(31, 9, kVocabulary, 5), RandomCorpus(23, 9, kVocabulary, 6)};
  const Corpus sets[] = {RandomCorpus(9, 9, kVocabulary, 7), RandomCorpus(12, 9, kVocabulary, 8)};
  constexpr Grid kSmallGrids[] = {{1, 1}, {2, 1}, {1, 2}};
  for (int trial = 0; trial < 8; ++trial) {
    TrainOptions options = Saving();
    options.validation.every_steps = 2;
    options.run_directory = directory_ / std::to_string(trial);
    const Corpus *train = &corpora[0], *validation = &sets[0];
    Grid grid;
    TrainingProgress before;
    int64_t samples_before = 0, steps_before = 0;  // of other corpora
    std::vector<ValidationMetrics> of_set;
    for (int start = 0; start < 5; ++start) {
      SCOPED_TRACE("trial " + std::to_string(trial) + ", start " + std::to_string(start));
      options.stop.steps = before.step + draw(1, 5);
      ValidationSink sink;
      TrainingProgress after;
      InProcessWorld world(grid.stages * grid.replicas);
      options.pipeline.stages = grid.stages;
      options.pipeline.replicas = grid.replicas;
      const absl::Status status = world.Run([&](Communicator& communicator) {
        const TrainingSurroundings surroundings{.communicator = communicator,
                                                .stream = Stream::Cpu(1),
                                                .train = *train,
                                                .validation = validation,
                                                .sink = sink};
        return WithTrainer(options, surroundings, [&](Trainer& trainer) -> absl::Status {
          HADAL_RETURN_IF_ERROR(trainer.ResumeLatest().status());
          HADAL_ASSIGN_OR_RETURN(const TrainingOutcome outcome, trainer.Run());
          if (communicator.rank() == 0) after = outcome.progress;
          return absl::OkStatus();
        });
      });
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(after.step, options.stop.steps);
      EXPECT_EQ(after.samples_seen - samples_before, after.place.epoch * train->size() + after.place.read);
      EXPECT_DOUBLE_EQ(after.epochs_done, static_cast<double>(after.samples_seen - samples_before) / train->size());
      EXPECT_EQ(after.loss_trend.losses, after.step - steps_before);
      of_set.insert(of_set.end(), sink.validations.begin(), sink.validations.end());
      ASSERT_FALSE(of_set.empty()) << "at the end, at the latest";
      const auto best =
          std::min_element(of_set.begin(), of_set.end(), [](const auto& a, const auto& b) { return a.nll < b.nll; });
      EXPECT_EQ(after.best, (std::vector<ScoredStep>{{.step = best->step, .score = best->nll}}));
      before = after;
      options.batch = {.micro_batches = draw(2, 6), .source_tokens = draw(10, 60), .target_tokens = draw(10, 60)};
      options.seed = static_cast<uint64_t>(draw(1, 3));
      options.sampling_temperature = {static_cast<double>(draw(1, 5))};
      grid = kSmallGrids[draw(0, 2)];
      if (draw(0, 3) == 0) {
        train = train == &corpora[0] ? &corpora[1] : &corpora[0];
        samples_before = after.samples_seen;
        steps_before = after.step;
      }
      if (draw(0, 2) == 0) {
        validation = validation == &sets[0] ? &sets[1] : &sets[0];
        of_set.clear();
      }
    }
  }
}

// Admin's vectors start from a profile of the first micro-batch; whoever goes on has them from the checkpoint.
TEST_F(ResumeGridTest, AdminIsProfiledOnceAndAlikeOnEveryReplica) {
  ApplyResidualMethod(ResidualMethod::kAdmin, options_.model);
  const std::vector<double> unbroken = ExpectGoesOn({2, 1}, {1, 1}, {{2, 1}});
  const std::vector<double> replicas = Train(options_, {2, 2}, 2, "");
  for (size_t i = 0; i < replicas.size(); ++i) EXPECT_NEAR(replicas[i] / unbroken[i], 1, 1e-6) << "step " << i;
}

// The rows of DLCL's weights and the queries of blocks lie on the ranks of what reads them, and are found wherever that
// lies later.
TEST_F(ResumeGridTest, CombinedLayersAndReadersOfBlocksToo) {
  for (const ResidualMethod method : {ResidualMethod::kDlclPre, ResidualMethod::kAttnRes}) {
    ApplyResidualMethod(method, options_.model);
    std::filesystem::remove_all(RunDirectory({3, 1}));
    ExpectGoesOn({1, 1}, {3, 1}, {{2, 1}});
  }
}

TEST_F(ResumeGridTest, LanguageModelsToo) {
  options_.model =
      SmallModel(ResidualMethod::kDeepNorm, {.encoder_layers = 0, .d_model = 16, .vocabulary = kVocabulary});
  corpus_ = RandomCorpusFor(options_.model, 200, 16, 5);
  ExpectGoesOn({1, 1}, {4, 1}, {{1, 1}, {3, 1}});
}

// The masks count epochs and samples: a resumed run has those of the unbroken one.
TEST_F(ResumeGridTest, EncodersAloneToo) {
  options_.model = SmallModel(ResidualMethod::kPreLn, {.decoder_layers = 0, .d_model = 16, .vocabulary = kVocabulary});
  options_.masking = MaskingFor(options_.model);
  corpus_ = RandomCorpusFor(options_.model, 50, 16, 5);  // several epochs
  ExpectGoesOn({1, 1}, {3, 1}, {{2, 1}});
}

// A large model's new weights take long to draw and send: a run that loads its weights does without.
TEST_F(ResumeGridTest, OnlyARunWithoutWeightsDrawsNewOnes) {
  const Grid grid{2, 1};
  Train(Saving(), grid, 1, "");
  EXPECT_GT(initial_bytes_, 0);
  const std::string checkpoint = saved_;
  const Start loads[] = {From(checkpoint), [](Trainer& trainer) { return trainer.ResumeLatest().status(); },
                         [&](Trainer& trainer) { return trainer.InitializeFrom(FindNamed(checkpoint)); }};
  for (const Start& load : loads) {
    TrainFrom(options_, grid, 2, load, RunDirectory(grid));
    EXPECT_EQ(initial_bytes_, 0);
  }
}

// Muon: the momentum of a matrix is the same for every owner.
TEST_F(ResumeGridTest, MuonsMomentumToo) {
  options_.optimizer.kind = OptimizerKind::kMuon;
  ExpectGoesOn({1, 2}, {2, 2}, {{1, 2}});
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

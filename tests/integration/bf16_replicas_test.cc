// Replicas in bf16: fp32 masters lie where they are updated, on their owner alone when the optimizer's state is cut
// over the replicas, and all others read what owners spread rounded. The same bits with and without, on every cut,
// across saving and resuming on other grids; and the bytes of every rank are the formula's.
#include <cmath>

#include "gtest/gtest.h"
#include "pipeline/engine/memory_fit.h"
#include "pipeline/layout/slice_ownership.h"
#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 61;

struct Grid {
  int stages = 1;
  int replicas = 1;
  bool sharded = true;
};

std::string Name(const Grid& grid) {
  return std::to_string(grid.stages) + "x" + std::to_string(grid.replicas) + (grid.sharded ? "-sharded" : "-whole");
}

RunSpec SmallRun(ResidualMethod method, const Grid& grid) {
  RunSpec spec;
  spec.model = SmallModel(
      method, {.encoder_layers = 2, .decoder_layers = 2, .d_model = 16, .heads = 2, .vocabulary = kVocabulary});
  spec.batch = {.micro_batches = 3, .source_tokens = 16, .target_tokens = 16};
  spec.optimizer.clip_norm = 0.5;
  spec.optimizer.weight_decay = 0.01;
  spec.steps = 2;
  spec.compute_storage = Storage::kBFloat16;
  spec.make_device = [](int rank) { return MakeTestDevice(7 + rank); };
  spec.ranks = grid.stages * grid.replicas;
  spec.pipeline.replicas = grid.replicas;
  spec.pipeline.shard_optimizer_state = grid.sharded;
  return spec;
}

Corpus SmallCorpus() { return RandomCorpus(60, 7, kVocabulary, 5); }

TEST(Bf16ReplicasTest, NeitherShardingNorTheCutChangesABit) {
  const Corpus corpus = SmallCorpus();
  const RunOutcome two = Train(SmallRun(ResidualMethod::kDeepNorm, {1, 2, false}), corpus);
  for (const Grid& grid : {Grid{1, 2, true}, {2, 2, true}, {2, 2, false}}) {
    EXPECT_EQ(FirstDifference(two, Train(SmallRun(ResidualMethod::kDeepNorm, grid), corpus)), "") << Name(grid);
  }
  const RunOutcome three = Train(SmallRun(ResidualMethod::kDeepNorm, {1, 3, false}), corpus);
  EXPECT_EQ(FirstDifference(three, Train(SmallRun(ResidualMethod::kDeepNorm, {1, 3, true}), corpus)), "");
}

// Groups are added in one order, in bf16 and in fp32.
TEST(Bf16ReplicasTest, NorDoesTheNumberOfReplicas) {
  const Corpus corpus = SmallCorpus();
  for (const Storage storage : {Storage::kBFloat16, Storage::kFloat32}) {
    const auto expect = [&](OptimizerKind optimizer, int groups, const std::vector<Grid>& grids) {
      RunOutcome first;
      for (const Grid& grid : grids) {
        RunSpec spec = SmallRun(ResidualMethod::kPreLn, grid);
        spec.compute_storage = storage;
        spec.batch.micro_batches = groups + 1;
        spec.batch.sum_groups = groups;
        spec.optimizer.kind = optimizer;
        RunOutcome outcome = Train(spec, corpus);
        if (first.loss.empty())
          first = std::move(outcome);
        else
          EXPECT_EQ(FirstDifference(first, outcome), "") << groups << " groups, " << Name(grid);
      }
    };
    expect(OptimizerKind::kAdam, 8, {{1, 1}, {2, 2}, {1, 8}});
    expect(OptimizerKind::kMuon, 12, {{1, 3}, {2, 6}});
  }
}

// Operands in bf16; rounds of whole matrices are updated while others are gathered.
TEST(Bf16ReplicasTest, NorDoMuonsOwners) {
  const Corpus corpus = SmallCorpus();
  const auto run = [&](const Grid& grid) {
    RunSpec spec = SmallRun(ResidualMethod::kPreLn, grid);
    spec.optimizer.kind = OptimizerKind::kMuon;
    return Train(spec, corpus);
  };
  const RunOutcome two = run({1, 2, false});
  for (const Grid& grid : {Grid{1, 2, true}, {2, 2, true}})
    EXPECT_EQ(FirstDifference(two, run(grid)), "") << Name(grid);
}

// What a kernel reads in fp32 that lies here rounded alone aborts: biases in front of a norm, shifted ones, learned
// scalars and vectors.
TEST(Bf16ReplicasTest, EveryMethodTrains) {
  const Corpus corpus = SmallCorpus();
  for (const ResidualMethod method :
       {ResidualMethod::kAdmin, ResidualMethod::kNormFormer, ResidualMethod::kRFixup, ResidualMethod::kDlclPost}) {
    RunSpec spec = SmallRun(method, {1, 2, true});
    spec.steps = 1;
    spec.validate_every_step = true;
    const RunOutcome sharded = Train(spec, corpus);
    spec.pipeline.shard_optimizer_state = false;
    const RunOutcome whole = Train(spec, corpus);
    EXPECT_EQ(FirstDifference(whole, sharded), "") << ResidualMethodName(method);
    EXPECT_EQ(whole.validation_loss, sharded.validation_loss) << ResidualMethodName(method);
  }
}

TEST(Bf16ReplicasTest, TheDepthIsRecordedAlike) {
  const Corpus corpus = SmallCorpus();
  std::vector<RunOutcome> outcomes;
  for (const bool sharded : {true, false}) {
    const TemporaryDirectory directory;
    RunSpec spec = SmallRun(ResidualMethod::kDeepNorm, {1, 2, sharded});
    spec.depth_directory = directory.path();
    outcomes.push_back(Train(spec, corpus));
  }
  ASSERT_EQ(outcomes[0].depth.size(), outcomes[1].depth.size());
  for (size_t step = 0; step < outcomes[0].depth.size(); ++step) {
    const std::vector<float>& sharded = outcomes[0].depth[step][DepthSeries::kUpdateRatio];
    EXPECT_EQ(sharded, outcomes[1].depth[step][DepthSeries::kUpdateRatio]) << "step " << step;
    ASSERT_EQ(sharded.size(), 10u);
    for (const float ratio : sharded) EXPECT_GT(ratio, 0);
  }
}

// Bytes of a stage's weights, gradients and moments on each replica, but for the table of positions.
//   read by products    2 of the rounded weight, 4 of the gradient, 4 + 8 of master and moments where they are updated
//   read in fp32        4 + 4, and 8 of moments
//   another stage's     2 + 4 of a table that it uses too
double StateBytes(const ModelPlan& plan, const PipelineLayout& pipeline, int stage, int replica) {
  double bytes = 0;
  for (const OwnedSlice& slice : SlicesOfStage(plan, pipeline, stage)) {
    const bool updated = !pipeline.shard_optimizer_state || slice.replica == replica;
    const bool rounded = plan.ReadByProductsAlone(slice.parameter);
    const double bytes_each = rounded ? 2 + 4 + (updated ? 12 : 0) : 4 + 4 + (updated ? 8 : 0);
    bytes += bytes_each * static_cast<double>(slice.elements);
  }
  for (int32_t p = 0; p < std::ssize(plan.parameters); ++p) {
    const double elements = static_cast<double>(plan.parameters[p].elements());
    const bool is_foreign = pipeline.OwnerOf(plan, p) != stage;
    int uses = 0;
    for (const int32_t use : plan.Uses(p)) uses += pipeline.RankOfSublayer(use) == stage ? 1 : 0;
    if (is_foreign && uses > 0) bytes += 2 * elements;
    bytes += 4 * elements * (is_foreign ? uses : uses - 1);  // each use has a gradient
  }
  return bytes;
}

TEST(Bf16ReplicasTest, StateBytesAreTheFormula) {
  const Corpus corpus = SmallCorpus();
  for (const bool sharded : {true, false}) {
    RunSpec spec = SmallRun(ResidualMethod::kDeepNorm, {2, 3, sharded});
    spec.model.d_model = 64;
    spec.model.d_ff = 128;
    spec.steps = 0;
    ModelPlan plan = ModelPlan::Make(spec.model);
    plan.compute_storage = Storage::kBFloat16;
    const PipelineLayout pipeline = MakePipelineLayout(plan, spec.batch, spec.pipeline, spec.ranks).value();
    const std::unique_ptr<Device> device = MakeTestDevice(1);
    const std::vector<ArenaLayout> layouts = TrainingLayouts(plan, pipeline, Stream::On(*device, 1)).value();
    const RunOutcome outcome = Train(spec, corpus);
    for (int rank = 0; rank < spec.ranks; ++rank) {
      SCOPED_TRACE((sharded ? "sharded, rank " : "whole, rank ") + std::to_string(rank));
      EXPECT_EQ(outcome.arena_bytes[rank], layouts[rank].total_bytes());
      int64_t state = 0;
      for (const ArenaLayout::Category& category : layouts[rank].categories()) {
        const bool is_state =
            category.name == "weights" || category.name == "gradients" || category.name == "optimizer";
        if (is_state) state += category.bytes;
      }
      const int stage = pipeline.grid.StageOf(rank), replica = pipeline.grid.ReplicaOf(rank);
      const double expected = StateBytes(plan, pipeline, stage, replica);
      constexpr int kRegions = 6;
      // A table of positions for each stage's embeddings.
      const int64_t positions = int64_t{4} * spec.model.max_positions * spec.model.d_model;
      const double tables = std::round((static_cast<double>(state) - expected) / static_cast<double>(positions));
      EXPECT_GE(tables, 0);
      EXPECT_LE(tables, 2);
      EXPECT_NEAR(static_cast<double>(state), expected + tables * static_cast<double>(positions),
                  kRegions * ArenaLayout::kAlignmentBytes);
    }
  }
}

class LossSink final : public MetricsSink {
 public:
  void OnStep(const StepMetrics& metrics) override { losses.push_back(metrics.loss); }
  std::vector<double> losses;
};

// Trainers on grids of devices, saving each into a directory of its own.
class Bf16ResumeTest : public ::testing::Test {
 protected:
  Bf16ResumeTest() : corpus_(SmallCorpus()) {
    const RunSpec spec = SmallRun(ResidualMethod::kDeepNorm, {});
    options_.model = spec.model;
    options_.batch = spec.batch;
    options_.optimizer = spec.optimizer;
    options_.rate.warmup_updates = 4;
    options_.pipeline.wait_timeout_seconds = 60;
  }

  enum class Start { kNew, kResumed, kFromWeights };

  absl::Status RunRank(const TrainOptions& options, Communicator& communicator, Start start,
                       const std::string& checkpoint, LossSink& sink) {
    const std::unique_ptr<Device> device = MakeTestDevice(3 + communicator.rank());
    const TrainingSurroundings surroundings{
        .communicator = communicator, .stream = Stream::On(*device, 1), .train = corpus_, .sink = sink};
    const auto use = [&](Trainer& trainer) -> absl::Status {
      if (start == Start::kResumed) HADAL_RETURN_IF_ERROR(trainer.Resume(FindNamed(checkpoint)));
      if (start == Start::kFromWeights) HADAL_RETURN_IF_ERROR(trainer.InitializeFrom(FindNamed(checkpoint)));
      HADAL_ASSIGN_OR_RETURN(const TrainingOutcome outcome, trainer.Run());
      if (communicator.rank() == 0 && start == Start::kNew) saved_ = outcome.checkpoint;
      return absl::OkStatus();
    };
    return WithTrainer(options, surroundings, use, Storage::kBFloat16);
  }

  // Trains to step `steps`; the losses of the steps done here.
  std::vector<double> Train(const Grid& grid, int steps, Start start = Start::kNew,
                            const std::string& checkpoint = "") {
    TrainOptions options = options_;
    options.stop.steps = steps;
    options.checkpoint.save_at_end = start == Start::kNew;
    options.run_directory = directory_ / (Name(grid) + "." + std::to_string(runs_++));
    options.pipeline.stages = grid.stages;
    options.pipeline.replicas = grid.replicas;
    options.pipeline.shard_optimizer_state = grid.sharded;
    LossSink sink;
    InProcessWorld world(grid.stages * grid.replicas);
    const absl::Status status =
        world.Run([&](Communicator& communicator) { return RunRank(options, communicator, start, checkpoint, sink); });
    EXPECT_TRUE(status.ok()) << status;
    return sink.losses;
  }

  Corpus corpus_;
  TemporaryDirectory directory_;
  TrainOptions options_;
  int runs_ = 0;
  std::string saved_;  // the last new run's checkpoint
};

TEST_F(Bf16ResumeTest, SavedOnOneGridResumedOnAnother) {
  const Grid grids[] = {{1, 2, true}, {2, 2, true}, {1, 2, false}};
  const std::vector<double> unbroken = Train(grids[0], 4);
  ASSERT_EQ(unbroken.size(), 4u);
  for (size_t i = 0; i < std::size(grids); ++i) {
    Train(grids[i], 2);
    const Grid& grid = grids[(i + 1) % std::size(grids)];
    EXPECT_EQ(Train(grid, 4, Start::kResumed, saved_), std::vector<double>(unbroken.begin() + 2, unbroken.end()))
        << "saved on " << Name(grids[i]) << ", resumed on " << Name(grid);
  }
}

// Other numbers of replicas add in another order, which bf16 shows sooner.
TEST_F(Bf16ResumeTest, FromAndToOtherNumbersOfReplicas) {
  const std::vector<double> unbroken = Train({2, 1}, 4);
  Train({1, 3, true}, 2);
  const std::vector<double> resumed = Train({2, 1}, 4, Start::kResumed, saved_);
  ASSERT_EQ(resumed.size(), 2u);
  for (size_t i = 0; i < resumed.size(); ++i) EXPECT_NEAR(resumed[i] / unbroken[2 + i], 1, 5e-3) << "step " << 2 + i;
}

TEST_F(Bf16ResumeTest, NewRunsStartFromWeights) {
  Train({1, 2, true}, 2);
  const std::string checkpoint = saved_;
  const std::vector<double> whole = Train({1, 2, false}, 2, Start::kFromWeights, checkpoint);
  EXPECT_EQ(Train({2, 2, true}, 2, Start::kFromWeights, checkpoint), whole);
  EXPECT_NE(Train({1, 2, true}, 2), whole) << "the weights were not read";
}

}  // namespace
}  // namespace hadal::testing

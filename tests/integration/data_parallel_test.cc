// Replicas of the pipeline: the same bits for every cut and with the optimizer's state sharded or not; for other
// numbers of replicas the same loss, up to the order of sums (the same bits: group_sums_test.cc).
#include "gmock/gmock.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/layout/slice_ownership.h"
#include "tests/integration/pipeline_run.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 203;

struct Grid {
  int stages = 1;
  int replicas = 1;
};
// Pipeline × replicas, the reference of each number of replicas first.
constexpr Grid kGrids[] = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}, {1, 3}, {2, 3}, {1, 4}};

RunSpec BaseSpec() {
  RunSpec spec;
  spec.model = SmallModel(ResidualMethod::kDeepNorm, {.d_model = 32, .vocabulary = kVocabulary});
  spec.batch = {.micro_batches = 5, .source_tokens = 96, .target_tokens = 96};  // no even share for 2, 3 or 4 replicas
  spec.optimizer.clip_norm = 0.5;
  spec.optimizer.weight_decay = 0.01;
  spec.steps = 5;
  return spec;
}

RunSpec On(RunSpec spec, const Grid& grid) {
  spec.ranks = grid.stages * grid.replicas;
  spec.pipeline.replicas = grid.replicas;
  return spec;
}

std::string ToString(const Grid& grid) {
  return std::to_string(grid.stages) + " stages x " + std::to_string(grid.replicas) + " replicas";
}

// Relative differences of the first steps; a sum in another order moves the last bits only.
void ExpectSameLosses(const RunOutcome& reference, const RunOutcome& outcome) {
  ASSERT_EQ(reference.loss.size(), outcome.loss.size());
  for (size_t step = 0; step < reference.loss.size(); ++step) {
    EXPECT_NEAR(outcome.loss[step] / reference.loss[step], 1, 1e-6) << "step " << step;
    EXPECT_NEAR(outcome.gradient_norm[step] / reference.gradient_norm[step], 1, 1e-4) << "step " << step;
  }
}

void ExpectGridsAgree(const RunSpec& base) {
  const Corpus corpus = RandomCorpusFor(base.model, 400, 24, 5);
  std::map<int, RunOutcome> references;  // by replicas
  for (const Grid& grid : kGrids) {
    SCOPED_TRACE(ToString(grid));
    RunOutcome outcome = Train(On(base, grid), corpus);
    ASSERT_EQ(static_cast<int>(outcome.loss.size()), base.steps);
    const auto reference = references.find(grid.replicas);
    if (reference != references.end()) {
      EXPECT_EQ(FirstDifference(reference->second, outcome), "");
    } else {
      references[grid.replicas] = std::move(outcome);
      ExpectSameLosses(references[1], references[grid.replicas]);
    }
    if (grid.replicas == 1) continue;
    RunSpec unsharded = On(base, grid);
    unsharded.pipeline.shard_optimizer_state = false;
    EXPECT_EQ(FirstDifference(references[grid.replicas], Train(unsharded, corpus)), "") << "sharding off";
    if (grid.stages == 1) continue;
    RunSpec stages_together = On(base, grid);
    stages_together.pipeline.placement = Placement::kStagesTogether;
    EXPECT_EQ(FirstDifference(references[grid.replicas], Train(stages_together, corpus)), "") << "placement";
  }
}

TEST(DataParallelTest, LossesAndBitsOnEveryGrid) { ExpectGridsAgree(BaseSpec()); }

// Whole matrices have other owners in every grid.
TEST(DataParallelTest, MuonsBitsOnEveryGrid) {
  RunSpec spec = BaseSpec();
  spec.optimizer.kind = OptimizerKind::kMuon;
  ExpectGridsAgree(spec);
}

// A matrix of two slices is orthogonalised as one.
TEST(DataParallelTest, MuonsSlicesOfAMatrixStayTogether) {
  RunSpec spec = On(BaseSpec(), {.stages = 1, .replicas = 2});
  spec.model = SmallModel(ResidualMethod::kPreLn, {.encoder_layers = 1,
                                                   .decoder_layers = 1,
                                                   .d_model = 4,
                                                   .d_ff = static_cast<int32_t>(kSliceElements / 4 + 10),
                                                   .heads = 2,
                                                   .vocabulary = kVocabulary});
  spec.batch = {.micro_batches = 2, .source_tokens = 8, .target_tokens = 8};
  spec.optimizer.kind = OptimizerKind::kMuon;
  spec.steps = 2;
  const Corpus corpus = RandomCorpusFor(spec.model, 20, 4, 5);
  const RunOutcome sharded = Train(spec, corpus);
  spec.pipeline.shard_optimizer_state = false;
  EXPECT_EQ(FirstDifference(sharded, Train(spec, corpus)), "");
}

// Weight halves of several micro-batches run sublayer by sublayer, while complete gradients leave.
// Schedules without such halves run with threads and recomputation.
TEST(DataParallelTest, NoScheduleChangesABit) {
  RunSpec spec = On(BaseSpec(), {.stages = 2, .replicas = 2});
  spec.batch.micro_batches = 6;
  spec.steps = 3;
  const Corpus corpus = RandomCorpusFor(spec.model, 400, 24, 5);
  const RunOutcome whole = Train(On(spec, {1, 2}), corpus);
  for (const ScheduleKind schedule : AllScheduleKinds()) {
    spec.pipeline.schedule = schedule;
    spec.pipeline.chunks = RunsSeveralChunks(schedule) && schedule != ScheduleKind::kGpipe ? 3 : 1;
    spec.threads = SplitsBackward(schedule) ? 1 : 2;
    spec.pipeline.recompute_every = SplitsBackward(schedule) ? 0 : 3;
    EXPECT_EQ(FirstDifference(whole, Train(spec, corpus)), "") << ToString(schedule);
  }
}

// Pre-norm with separate embeddings; combined layers; a language model.
TEST(DataParallelTest, OtherModels) {
  RunSpec spec = BaseSpec();
  spec.steps = 3;
  spec.model = SmallModel(ResidualMethod::kDlclPost, {.d_model = 32, .vocabulary = kVocabulary});
  ExpectGridsAgree(spec);
  spec.model = SmallModel(ResidualMethod::kDeepNorm, {.encoder_layers = 0, .d_model = 32, .vocabulary = kVocabulary});
  ExpectGridsAgree(spec);
  spec.model = SmallModel(ResidualMethod::kPreLn, {.d_model = 32, .vocabulary = kVocabulary});
  spec.model.sharing = EmbeddingSharing::kNone;
  spec.steps = 5;
  ExpectGridsAgree(spec);
}

// A table of two slices and many buckets, so that replicas share one parameter.
TEST(DataParallelTest, AParameterOfSeveralSlices) {
  constexpr int kLargeVocabulary = 17000;
  RunSpec spec = BaseSpec();
  spec.model = SmallModel(ResidualMethod::kDeepNorm, {.d_model = 64, .vocabulary = kLargeVocabulary});
  spec.batch = {.micro_batches = 3, .source_tokens = 32, .target_tokens = 32};
  spec.steps = 2;
  const Corpus corpus = RandomCorpus(100, 12, kLargeVocabulary, 5);
  const RunOutcome reference = Train(On(spec, {1, 3}), corpus);
  EXPECT_EQ(FirstDifference(reference, Train(On(spec, {2, 3}), corpus)), "");
  ExpectSameLosses(Train(spec, corpus), reference);
}

// With a rate of zero all grids keep the same weights, so that what they say of them must be the same bits.
TEST(DataParallelTest, ValidationAndBleuDoNotDependOnTheGrid) {
  const Corpus corpus = RandomCorpus(400, 24, kVocabulary, 5);
  RunSpec spec = BaseSpec();
  spec.steps = 1;
  spec.learning_rate = 0;
  spec.validate_every_step = true;
  spec.pipeline.decoder = {.beam = {.max_length_b = 20}};
  const RunOutcome reference = Train(spec, corpus);
  for (const Grid& grid : {Grid{1, 2}, Grid{2, 3}, Grid{1, 4}}) {
    const RunOutcome outcome = Train(On(spec, grid), corpus);
    EXPECT_EQ(outcome.validation_loss, reference.validation_loss) << ToString(grid);
    EXPECT_EQ(outcome.bleu, reference.bleu) << ToString(grid);
  }
}

// 8 bytes an element: sharded for the slices a replica owns, else for all of the stage's.
TEST(DataParallelTest, StateBytesAreTheFormulas) {
  const Corpus corpus = RandomCorpus(100, 24, kVocabulary, 5);
  RunSpec spec = On(BaseSpec(), {2, 3});
  spec.steps = 1;
  const ModelPlan plan = ModelPlan::Make(spec.model);
  const PipelineLayout pipeline = MakePipelineLayout(plan, spec.batch, spec.pipeline, spec.ranks).value();
  for (const bool sharded : {true, false}) {
    spec.pipeline.shard_optimizer_state = sharded;
    std::vector<int64_t> expected(spec.ranks, 0);
    for (int stage = 0; stage < 2; ++stage) {
      int64_t total = 0, largest = 0;
      for (const OwnedSlice& slice : SlicesOfStage(plan, pipeline, stage)) {
        ASSERT_EQ(slice.elements % 8, 0);  // no gaps
        for (int replica = 0; replica < 3; ++replica) {
          if (!sharded || replica == slice.replica) expected[stage * 3 + replica] += 8 * slice.elements;
        }
        total += slice.elements;
        largest = std::max(largest, slice.elements);
      }
      if (!sharded) continue;
      for (int replica = 0; replica < 3; ++replica) {
        EXPECT_LE(expected[stage * 3 + replica], 8 * (total / 3 + largest)) << "its even share and one slice";
      }
    }
    EXPECT_EQ(Train(spec, corpus).moment_bytes, expected) << (sharded ? "sharded" : "whole");
  }
}

TEST(DataParallelTest, RanksThatAreNoGridAreRefused) {
  struct Case {
    PipelineOptions pipeline;
    int ranks;
    std::string refusal;
  };
  const RunSpec spec = BaseSpec();
  const ModelPlan plan = ModelPlan::Make(spec.model);
  EXPECT_TRUE(MakePipelineLayout(plan, spec.batch, {.replicas = 2}, 4).ok());
  for (const auto& [pipeline, ranks, refusal] : {Case{{.replicas = 6}, 6, "pipeline.replicas = 6"},
                                                 {{.replicas = 2}, 3, "replicas"},
                                                 {{.stages = 3, .replicas = 2}, 4, "mpirun -n 6"}}) {
    const absl::Status status = MakePipelineLayout(plan, spec.batch, pipeline, ranks).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(refusal));
  }
}

}  // namespace
}  // namespace hadal::testing

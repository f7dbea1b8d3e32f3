// The groups of a step's micro-batches: its sums are those of a loop that writes the tree down, and the same bits on
// every number of replicas that divides the groups. Each layout with each other: resume_grid_test.cc.
#include <optional>

#include "gmock/gmock.h"
#include "pipeline/engine/memory_fit.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/step_batches.h"
#include "tests/support/training_engine.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 203;

RunSpec BaseSpec() {
  RunSpec spec;
  spec.model = SmallModel(ResidualMethod::kDeepNorm, {.d_model = 32, .vocabulary = kVocabulary});
  spec.batch = {.source_tokens = 96, .target_tokens = 96};
  spec.optimizer.clip_norm = 0.5;
  spec.optimizer.weight_decay = 0.01;
  return spec;
}

struct Grid {
  int stages = 1;
  int replicas = 1;
};

struct GroupedLayout {
  Grid grid;
  ScheduleKind schedule = ScheduleKind::k1F1B;
  int chunks = 1, recompute_every = 0;
};

// The order of sums belongs to the groups: no number of replicas that divides them changes a bit, whatever the
// pipeline does. What memory the sums of groups take is in the plan.
void ExpectGroupsAgree(RunSpec spec, const std::vector<GroupedLayout>& layouts) {
  spec.steps = 3;
  spec.validate_every_step = true;
  const Corpus corpus = RandomCorpusFor(spec.model, 400, 24, 5);
  ModelPlan plan = ModelPlan::Make(spec.model);
  plan.muon_steps = spec.optimizer.muon_steps();
  std::optional<RunOutcome> reference;
  for (const GroupedLayout& layout : layouts) {
    RunSpec run = spec;
    run.ranks = layout.grid.stages * layout.grid.replicas;
    run.pipeline.replicas = layout.grid.replicas;
    run.pipeline.schedule = layout.schedule;
    run.pipeline.chunks = layout.chunks;
    run.pipeline.recompute_every = layout.recompute_every;
    const RunOutcome outcome = Train(run, corpus);
    if (!reference) reference = outcome;
    SCOPED_TRACE(std::to_string(layout.grid.stages) + " stages x " + std::to_string(layout.grid.replicas) +
                 " replicas, " + ToString(layout.schedule) + ", " + std::to_string(layout.chunks) + " chunks");
    EXPECT_EQ(FirstDifference(*reference, outcome), "");
    EXPECT_EQ(reference->validation_loss, outcome.validation_loss);
    const PipelineLayout pipeline =
        MakePipelineLayout(plan, run.batch, run.pipeline, run.ranks, /*rank=*/0, {.free_links = true}).value();
    const std::vector<ArenaLayout> planned = TrainingLayouts(plan, pipeline, Stream::Cpu(1)).value();
    for (int rank = 0; rank < run.ranks; ++rank) EXPECT_EQ(outcome.arena_bytes[rank], planned[rank].total_bytes());
  }
}

TEST(GroupSumsTest, NoNumberOfReplicasChangesABitOfEightGroups) {
  RunSpec spec = BaseSpec();
  spec.batch.micro_batches = 11;
  spec.batch.sum_groups = 8;
  ExpectGroupsAgree(spec, {{{1, 8}},
                           {{1, 1}},
                           {{1, 2}, ScheduleKind::k1F1B, 1, 3},
                           {{1, 4}},
                           {{4, 1}, ScheduleKind::kZbH1},
                           {{2, 1}, ScheduleKind::kInterleavedZb, 3},
                           {{2, 2}, ScheduleKind::kGpipe},
                           {{2, 2}, ScheduleKind::kInterleavedSplit, 2, 2},
                           {{2, 4}, ScheduleKind::k1F1BSplit}});
}

// 12 = 3 · 4; with Muon, and fewer micro-batches than groups.
TEST(GroupSumsTest, NorOfTwelveGroups) {
  RunSpec spec = BaseSpec();
  spec.batch.micro_batches = 7;
  spec.batch.sum_groups = 12;
  spec.optimizer.kind = OptimizerKind::kMuon;
  ExpectGroupsAgree(spec, {{{1, 3}}, {{1, 6}}, {{3, 3}, ScheduleKind::kZbH1}, {{2, 3}, ScheduleKind::kGpipe}});
  spec.batch.sum_groups = 16;
  ExpectGroupsAgree(spec, {{{1, 1}}, {{1, 4}}, {{2, 2}, ScheduleKind::kInterleavedZb, 2}});
}

// Parameters behind a stack and in the head, which belong to one sublayer alone.
TEST(GroupSumsTest, NorOfModelsWithoutTiedTables) {
  for (const ResidualMethod method :
       {ResidualMethod::kDeepNorm, ResidualMethod::kResidualDual, ResidualMethod::kDlclPre, ResidualMethod::kAttnRes}) {
    RunSpec spec = BaseSpec();
    spec.model = SmallModel(method, {.d_model = 32, .vocabulary = kVocabulary});
    spec.model.sharing = EmbeddingSharing::kNone;
    spec.model.block.positions = Positions::kLearned;
    spec.batch.micro_batches = 5;
    spec.batch.sum_groups = 4;
    ExpectGroupsAgree(spec, {{{1, 1}}, {{1, 2}}, {{1, 4}}, {{2, 2}}});
  }
}

// A step's sum of losses, then its gradients in plan order; nothing is updated.
std::vector<double> SumsOf(const ModelPlan& plan, BatchOptions batch, const StepBatches& step,
                           std::span<const PackedBatch> micro_batches, const Grid& grid) {
  batch.micro_batches = static_cast<int>(micro_batches.size());
  const int ranks = grid.stages * grid.replicas;
  std::vector<int64_t> first{1};  // of each parameter's elements
  for (const ParameterRecord& parameter : plan.parameters) first.push_back(first.back() + parameter.elements());
  std::vector<double> sums(first.back());
  InProcessWorld world(ranks);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    PrepareComputeThread();
    HADAL_ASSIGN_OR_RETURN(
        const PipelineLayout pipeline,
        MakePipelineLayout(plan, batch, {.replicas = grid.replicas}, ranks, communicator.rank() % grid.replicas));
    HADAL_ASSIGN_OR_RETURN(const auto engine, TrainingEngine(plan, pipeline, communicator));
    HADAL_RETURN_IF_ERROR(InitializeParameters(pipeline, engine->stage().parameters(), /*seed=*/7, Stream::Cpu(1),
                                               engine->grid().pipeline(), absl::Seconds(60)));
    HADAL_RETURN_IF_ERROR(engine->DistributeWeights());
    const StepScalars scalars{.seed = 7, .gradient_scale = 1.0f / static_cast<float>(step.target_tokens)};
    HADAL_ASSIGN_OR_RETURN(const StepResult result, engine->TrainingStep(micro_batches, scalars, {.apply = false}));
    if (communicator.rank() == 0) sums[0] = result.gradient.loss.loss;
    for (const StateSlice& slice : engine->state().owned())
      std::copy_n(slice.gradient.data, slice.elements,
                  sums.begin() + first[slice.parameter] + slice.slice * kSliceElements);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return sums;
}

using Groups = std::span<const std::vector<double>>;  // each one's sums

// Losses are added in double, gradients in float.
double Added(size_t i, double a, double b) { return i == 0 ? a + b : static_cast<float>(a) + static_cast<float>(b); }

double TreeOf(size_t i, Groups groups) {
  const size_t half = groups.size() / 2;
  return half == 0 ? groups[0][i] : Added(i, TreeOf(i, groups.first(half)), TreeOf(i, groups.subspan(half)));
}

// Each group is a step of its own, of one rank; the test adds their sums.
void ExpectTheTree(const BatchOptions& batch, const std::vector<Grid>& grids) {
  const ModelPlan plan = ModelPlan::Make(BaseSpec().model);
  const Corpus corpus = RandomCorpusFor(plan.options, 400, 24, 5);
  SamplingOrder order = SamplingOrder::Create(corpus, {.seed = 11,
                                                       .capacity = {batch.source_tokens, batch.target_tokens},
                                                       .micro_batches_per_step = batch.micro_batches})
                            .value();
  const StepBatches step = NextStep(order);
  std::vector<std::vector<double>> groups;
  size_t next = 0, elements = 0;
  for (int g = 0; g < batch.sum_groups; ++g) {
    const size_t begin = next;
    while (next < step.micro_batches.size() && next * batch.sum_groups / batch.micro_batches == static_cast<size_t>(g))
      ++next;
    BatchOptions one = batch;
    one.sum_groups = 1;
    if (next > begin)
      groups.push_back(SumsOf(plan, one, step, std::span(step.micro_batches).subspan(begin, next - begin), {1, 1}));
    else
      groups.emplace_back();
    elements = std::max(elements, groups.back().size());
  }
  for (std::vector<double>& group : groups) group.resize(elements);  // an empty one adds zeros
  const size_t block = batch.sum_groups & -batch.sum_groups;
  std::vector<double> expected(elements);
  size_t ascending = 0;
  for (size_t i = 0; i < elements; ++i) {
    expected[i] = TreeOf(i, Groups(groups).first(block));
    for (size_t b = block; b < groups.size(); b += block)
      expected[i] = Added(i, expected[i], TreeOf(i, Groups(groups).subspan(b, block)));
    double in_order = 0;
    for (const std::vector<double>& group : groups) in_order = Added(i, in_order, group[i]);
    ascending += in_order == expected[i];
  }
  EXPECT_LT(ascending, elements) << "the tree shows";
  for (const Grid& grid : grids)
    EXPECT_EQ(SumsOf(plan, batch, step, step.micro_batches, grid), expected)
        << grid.stages << " stages x " << grid.replicas << " replicas";
}

TEST(GroupSumsTest, AreThoseOfALoopThatWritesTheTreeDown) {
  BatchOptions batch = BaseSpec().batch;
  batch.micro_batches = 19;
  batch.sum_groups = 8;
  ExpectTheTree(batch, {{1, 1}, {2, 2}, {1, 8}});
  batch.sum_groups = 12;
  ExpectTheTree(batch, {{1, 3}, {2, 6}, {1, 12}});
  batch.micro_batches = 9;  // some groups have none
  ExpectTheTree(batch, {{1, 3}, {2, 6}});
}

TEST(GroupSumsTest, ReplicasThatDoNotDivideTheGroupsAreRefused) {
  const RunSpec spec = BaseSpec();
  const absl::Status status =
      MakePipelineLayout(ModelPlan::Make(spec.model), {.micro_batches = 6, .sum_groups = 12}, {.replicas = 4}, 4)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("batch.sum_groups = 12"));
}

}  // namespace
}  // namespace hadal::testing

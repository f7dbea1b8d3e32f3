// One matrix used by both embeddings and the head, with the uses on one stage, on two and on three.
#include "pipeline/exchange/tied_tables.h"

#include <set>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "layers/initialization.h"
#include "layers/parameter_store.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

constexpr absl::Duration kHang = absl::Seconds(30);

// Sublayers: source embedding, 2 of the encoder, target embedding 3, 3 of the decoder, head 7. The table has 3 slices.
ModelPlan Plan() { return TinyPlan({.d_model = 16, .d_ff = 16, .vocabulary = 132000}); }

// The gradient of use 1, 2 or 3: their sum depends on the order of addition, and on the slice.
float GradientOfUse(size_t use, int64_t element) {
  const auto small = static_cast<float>(1 + element / kSliceElements);
  return use == 0 ? 1e8f : use == 1 ? -1e8f : small;
}

float WeightOf(int64_t element) { return static_cast<float>(element % 1001); }

absl::Status ReduceAndDistribute(const ModelPlan& plan, const std::vector<int32_t>& split, Communicator& world) {
  HADAL_ASSIGN_OR_RETURN(const PipelineLayout pipeline,
                         MakePipelineLayout(plan, {.micro_batches = 1, .source_tokens = 16, .target_tokens = 16},
                                            {.split = split}, world.size()));
  const int rank = world.rank();
  std::vector<int32_t> sublayers;
  for (int32_t s = pipeline.first_sublayer(rank, 0); s < pipeline.last_sublayer(rank, 0); ++s) sublayers.push_back(s);
  const Stream stream = Stream::Cpu(1);
  ArenaLayout layout;
  ParameterStore parameters(plan, sublayers, Purpose::kTraining, layout);
  const GroupSums groups(pipeline, parameters, Purpose::kTraining, layout);
  TiedTables tied(plan, pipeline, rank, stream, layout);
  HADAL_ASSIGN_OR_RETURN(const Arena arena, Arena::Allocate(layout));
  parameters.Bind(arena);
  tied.Bind(arena, world);

  const int32_t table = plan.sublayers[plan.output_head()].table;
  const std::vector<int32_t> uses = plan.Uses(table);
  EXPECT_EQ(uses.size(), 3u);
  const std::set<int32_t> here(sublayers.begin(), sublayers.end());
  for (size_t use = 0; use < uses.size(); ++use) {
    if (here.count(uses[use]) == 0) continue;
    const Matrix gradient = parameters.TableGradient(uses[use]);
    for (int64_t i = 0; i < gradient.rows * gradient.columns; ++i) gradient.data[i] = GradientOfUse(use, i);
  }
  HADAL_RETURN_IF_ERROR(tied.ReduceGradients(stream, groups, kHang));
  int64_t wrong = 0;
  if (here.count(uses[0]) > 0) {
    const Matrix sum = parameters.TableGradient(uses[0]);
    for (int64_t i = 0; i < sum.rows * sum.columns; ++i) {
      const float expected = (GradientOfUse(0, i) + GradientOfUse(1, i)) + GradientOfUse(2, i);
      wrong += sum.data[i] != expected;
    }
    const Vector weight = parameters.WeightVector(table);
    for (int64_t i = 0; i < weight.size; ++i) weight[i] = WeightOf(i);
  }
  EXPECT_EQ(wrong, 0) << "sums on rank " << rank << " of the split at " << absl::StrJoin(split, ", ");
  HADAL_RETURN_IF_ERROR(tied.DistributeWeights(stream, parameters, kHang));
  if (parameters.Holds(table)) {
    const Vector weight = parameters.WeightVector(table);
    for (int64_t i = 0; i < weight.size; ++i) wrong += weight[i] != WeightOf(i);
  }
  EXPECT_EQ(wrong, 0) << "weights on rank " << rank << " of the split at " << absl::StrJoin(split, ", ");
  return absl::OkStatus();
}

TEST(TiedTables, UsesAreAddedInTheirOrderAndShareTheOwnersWeightsWhereverTheyLie) {
  const ModelPlan plan = Plan();
  ASSERT_EQ(plan.output_head(), 7);
  for (const std::vector<int32_t>& split : {std::vector<int32_t>{}, {1}, {4}, {7}, {3, 4}, {2, 7}, {1, 3, 5, 7}}) {
    InProcessWorld world(static_cast<int>(split.size()) + 1);
    const absl::Status status = world.Run([&](Communicator& rank) { return ReduceAndDistribute(plan, split, rank); });
    EXPECT_TRUE(status.ok()) << status;
  }
}

// Rank 0 receives the gradient, rank 1 sends it.
TEST(TiedTables, AStageThatIsAwayEndsTheWait) {
  const ModelPlan plan = Plan();
  const PipelineLayout pipeline =
      MakePipelineLayout(plan, {.micro_batches = 1, .source_tokens = 16, .target_tokens = 16}, {.split = {4}}, 2)
          .value();
  for (const int rank : {0, 1}) {
    ArenaLayout layout;
    ParameterStore parameters(plan, rank == 0 ? std::vector<int32_t>{0, 1, 2, 3} : std::vector<int32_t>{4, 5, 6, 7},
                              Purpose::kTraining, layout);
    const GroupSums groups(pipeline, parameters, Purpose::kTraining, layout);
    TiedTables tied(plan, pipeline, rank, Stream::Cpu(1), layout);
    const Arena arena = Arena::Allocate(layout).value();
    parameters.Bind(arena);
    InProcessWorld world(2);
    tied.Bind(arena, world.communicator(rank));
    const absl::Status status = tied.ReduceGradients(Stream::Cpu(1), groups, absl::Milliseconds(10));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_NE(status.message().find("a shared embedding"), std::string::npos) << status;
  }
}

// For InitializeParameters, which gives every slice its own values for any number of stages. The tables of target
// embedding and head have 2 slices.
ModelPlan UntiedPlan() {
  ModelOptions model = TinyModel({.d_model = 16, .d_ff = 16});
  model.target_vocabulary = 66000;
  model.sharing = EmbeddingSharing::kNone;
  return ModelPlan::Make(model);
}

absl::Status Initialize(const ModelPlan& plan, Communicator& world) {
  constexpr uint64_t kSeed = 17;
  HADAL_ASSIGN_OR_RETURN(
      const PipelineLayout pipeline,
      MakePipelineLayout(plan, {.micro_batches = 1, .source_tokens = 16, .target_tokens = 16}, {}, world.size()));
  const int rank = world.rank();
  std::vector<int32_t> sublayers;
  for (int32_t s = pipeline.first_sublayer(rank, 0); s < pipeline.last_sublayer(rank, 0); ++s) sublayers.push_back(s);
  const Stream stream = Stream::Cpu(1);
  ArenaLayout layout;
  ParameterStore parameters(plan, sublayers, Purpose::kTraining, layout);
  HADAL_ASSIGN_OR_RETURN(const Arena arena, Arena::Allocate(layout));
  parameters.Bind(arena);
  HADAL_RETURN_IF_ERROR(InitializeParameters(pipeline, parameters, kSeed, stream, world, absl::Seconds(30)));
  for (const int32_t p : parameters.owned()) {
    const Vector weight = parameters.WeightVector(p);
    std::vector<float> expected(static_cast<size_t>(weight.size));
    for (int64_t slice = 0; slice < SliceCount(plan.parameters[p]); ++slice) {
      const int64_t first = slice * kSliceElements;
      InitializeSlice(stream, plan, kSeed, p, slice,
                      {expected.data() + first, std::min(kSliceElements, weight.size - first)});
    }
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), weight.data)) << plan.ParameterName(p);
  }
  return absl::OkStatus();
}

TEST(ParameterBroadcast, EverySliceHasItsOwnValuesOnEveryNumberOfStages) {
  const ModelPlan plan = UntiedPlan();
  ASSERT_EQ(SliceCount(plan.parameters[plan.sublayers[plan.output_head()].table]), 2);
  for (const int stages : {1, 3}) {
    InProcessWorld world(stages);
    const absl::Status status = world.Run([&](Communicator& rank) { return Initialize(plan, rank); });
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace hadal

// InitializeParameters gives every slice its own values, for any number of stages.
#include "pipeline/exchange/parameter_broadcast.h"

#include "gtest/gtest.h"
#include "layers/initialization.h"
#include "layers/parameter_store.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// The tables of target embedding and head have 2 slices.
ModelPlan Plan() {
  return ModelPlan::Make({.encoder_layers = 1,
                          .decoder_layers = 1,
                          .d_model = 16,
                          .d_ff = 16,
                          .heads = 1,
                          .source_vocabulary = 20,
                          .target_vocabulary = 66000,
                          .max_positions = 8,
                          .sharing = EmbeddingSharing::kNone});
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
  const ModelPlan plan = Plan();
  ASSERT_EQ(SliceCount(plan.parameters[plan.sublayers[plan.output_head()].table]), 2);
  for (const int stages : {1, 3}) {
    InProcessWorld world(stages);
    const absl::Status status = world.Run([&](Communicator& rank) { return Initialize(plan, rank); });
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace hadal

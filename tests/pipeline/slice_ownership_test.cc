#include "pipeline/slice_ownership.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "layers/method_presets.h"

namespace hadal {
namespace {

ModelPlan PlanOf(int32_t d_model, int32_t vocabulary) {
  ModelOptions model{.encoder_layers = 3,
                     .decoder_layers = 4,
                     .d_model = d_model,
                     .d_ff = 4 * d_model,
                     .heads = 4,
                     .source_vocabulary = vocabulary,
                     .target_vocabulary = vocabulary,
                     .max_positions = 64};
  ApplyResidualMethod(ResidualMethod::kDeepNorm, model);
  return ModelPlan::Make(model);
}

PipelinePlan PipelineOf(const ModelPlan& plan, int stages, int replicas) {
  return MakePipelinePlan(plan, {.micro_batches = 64}, {.replicas = replicas}, stages * replicas).value();
}

TEST(SliceOwnership, EverySliceOfTheModelOnceInOrder) {
  const ModelPlan plan = PlanOf(64, 40000);  // a table of 3 slices
  const PipelinePlan pipeline = PipelineOf(plan, 3, 4);
  int64_t elements = 0;
  std::vector<std::pair<int32_t, int64_t>> seen;
  for (int stage = 0; stage < 3; ++stage) {
    const std::vector<OwnedSlice> slices = SlicesByStage(plan, pipeline)[stage];
    for (size_t i = 0; i < slices.size(); ++i) {
      EXPECT_EQ(pipeline.OwnerOf(plan, slices[i].parameter), stage);
      if (i > 0) {
        EXPECT_LE(slices[i - 1].replica, slices[i].replica) << "a replica's slices are one run";
      }
      elements += slices[i].elements;
      seen.emplace_back(slices[i].parameter, slices[i].slice);
    }
  }
  EXPECT_EQ(elements, plan.ParameterElements());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end())) << "one chunk a rank: stages ascend in depth";
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

TEST(SliceOwnership, AReplicaUpdatesWhatItOwnsOrAll) {
  const ModelPlan plan = PlanOf(64, 40000);
  for (const bool sharded : {true, false}) {
    PipelinePlan pipeline = PipelineOf(plan, 2, 3);
    pipeline.shard_optimizer_state = sharded;
    for (int stage = 0; stage < 2; ++stage) {
      for (pipeline.replica = 0; pipeline.replica < 3; ++pipeline.replica) {
        const SliceRange updated = UpdatedSlices(plan, pipeline, stage);
        for (const OwnedSlice& slice : SlicesOfStage(plan, pipeline, stage)) {
          EXPECT_EQ(updated.Holds(slice.parameter, slice.slice), !sharded || slice.replica == pipeline.replica);
        }
      }
    }
  }
}

// No replica has more than its even share and one slice.
TEST(SliceOwnership, BalancedByBytes) {
  for (const auto& [d_model, vocabulary] : {std::pair(64, 40000), std::pair(512, 1000)}) {
    const ModelPlan plan = PlanOf(d_model, vocabulary);
    for (const int replicas : {1, 2, 3, 5, 16, 64}) {
      const PipelinePlan pipeline = PipelineOf(plan, 2, replicas);
      const auto slices = SlicesByStage(plan, pipeline);
      for (int stage = 0; stage < 2; ++stage) {
        std::vector<int64_t> owned(replicas, 0);
        int64_t total = 0, largest = 0;
        for (const OwnedSlice& slice : slices[stage]) {
          ASSERT_GE(slice.replica, 0);
          ASSERT_LT(slice.replica, replicas);
          owned[slice.replica] += slice.elements;
          total += slice.elements;
          largest = std::max(largest, slice.elements);
        }
        EXPECT_LE(*std::max_element(owned.begin(), owned.end()), total / replicas + largest);
      }
    }
  }
}

}  // namespace
}  // namespace hadal

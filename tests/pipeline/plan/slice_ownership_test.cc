#include "pipeline/plan/slice_ownership.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/small_model.h"

namespace hadal {
namespace {

ModelPlan PlanOf(int32_t d_model, int32_t vocabulary) {
  return ModelPlan::Make(testing::SmallModel(
      ResidualMethod::kDeepNorm,
      {.encoder_layers = 3, .decoder_layers = 4, .d_model = d_model, .d_ff = 4 * d_model, .vocabulary = vocabulary}));
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
    for (const OwnedSlice& slice : slices) {
      EXPECT_EQ(pipeline.OwnerOf(plan, slice.parameter), stage);
      elements += slice.elements;
      seen.emplace_back(slice.parameter, slice.slice);
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
        const std::vector<SliceRange> updated = UpdatedSlices(plan, pipeline, stage);
        for (const OwnedSlice& slice : SlicesOfStage(plan, pipeline, stage)) {
          const auto holds = [&](const SliceRange& range) { return range.Holds(slice.parameter, slice.slice); };
          EXPECT_EQ(std::count_if(updated.begin(), updated.end(), holds),
                    !sharded || slice.replica == pipeline.replica ? 1 : 0);
        }
        for (size_t i = 1; i < updated.size(); ++i) EXPECT_LT(updated[i - 1].end, updated[i].begin);
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

// As gradients become complete, from the last sublayer down, no replica gets ahead of another by more than a run that a
// slice has lengthened.
TEST(SliceOwnership, AllReceiveAtEveryMomentOfTheLastBackward) {
  const ModelPlan plan = PlanOf(512, 40000);
  for (const int replicas : {2, 3, 8}) {
    const PipelinePlan pipeline = PipelineOf(plan, 2, replicas);
    for (int stage = 0; stage < 2; ++stage) {
      std::vector<OwnedSlice> slices = SlicesOfStage(plan, pipeline, stage);
      std::reverse(slices.begin(), slices.end());
      std::vector<int64_t> owned(replicas, 0);
      for (const OwnedSlice& slice : slices) {
        owned[slice.replica] += slice.elements;
        const auto [least, most] = std::minmax_element(owned.begin(), owned.end());
        ASSERT_LE(*most - *least, kRunElements + kSliceElements);
      }
    }
  }
}

// The first run, from the depth's end, is of a 2R-th of all elements, and its last slice may lengthen it.
TEST(SliceOwnership, RunsBeginShort) {
  const ModelPlan plan = PlanOf(64, 1000);
  for (const int replicas : {2, 3, 5}) {
    const std::vector<OwnedSlice> slices = SlicesOfStage(plan, PipelineOf(plan, 1, replicas), 0);
    int64_t elements = 0, run = 0, last = 0;
    for (const OwnedSlice& slice : slices) elements += slice.elements;
    ASSERT_LT(elements / (2 * replicas), kRunElements);
    for (auto slice = slices.rbegin(); slice != slices.rend() && slice->replica == slices.back().replica; ++slice) {
      last = slice->elements;
      run += last;
    }
    EXPECT_GE(run, elements / (2 * replicas)) << replicas;
    EXPECT_LT(run - last, elements / (2 * replicas)) << replicas;
  }
}

// Of a deep model the runs are as long as messages; only where little is left are they shorter.
TEST(SliceOwnership, NeighboursHaveOneOwner) {
  const ModelPlan plan = ModelPlan::Make(testing::SmallModel(
      ResidualMethod::kDeepNorm,
      {.encoder_layers = 100, .decoder_layers = 100, .d_model = 64, .d_ff = 256, .vocabulary = 1000}));
  for (const int replicas : {2, 8}) {
    const std::vector<OwnedSlice> slices = SlicesOfStage(plan, PipelineOf(plan, 1, replicas), 0);
    int64_t elements = 0, runs = 1;
    for (size_t i = 0; i < slices.size(); ++i) {
      elements += slices[i].elements;
      runs += i > 0 && slices[i].replica != slices[i - 1].replica ? 1 : 0;
    }
    EXPECT_GE(runs, elements / kRunElements - 1);
    // The tail: runs of left/2R, R of which take half of what is left, down to single parameters.
    EXPECT_LE(runs, elements / kRunElements + replicas * 14);
    EXPECT_LT(runs * 10, std::ssize(slices));
  }
}

}  // namespace
}  // namespace hadal

#include "pipeline/exchange/replica_buckets.h"
#include "layers/purpose.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "pipeline/plan/slice_ownership.h"

namespace hadal {
namespace {

// Its embedding, tied three times, is two slices; each of its feed-forward matrices is a little more than two buckets.
ModelPlan PlanOf(Storage storage) {
  ModelPlan plan = ModelPlan::Make({.encoder_layers = 2,
                                    .decoder_layers = 2,
                                    .d_model = 16,
                                    .d_ff = 33000,
                                    .heads = 2,
                                    .source_vocabulary = 66000,
                                    .target_vocabulary = 66000,
                                    .max_positions = 8});
  plan.compute_storage = storage;
  return plan;
}

// What one rank holds of stage 0 of 1.
struct Held {
  Held(const ModelPlan& plan, int replicas, int replica)
      : pipeline(MakePipelinePlan(plan, {.micro_batches = 4, .source_tokens = 16, .target_tokens = 16},
                                  {.replicas = replicas}, replicas, replica)
                     .value()),
        parameters(plan, Sublayers(plan), Purpose::kTraining, layout, UpdatedSlices(plan, pipeline, 0)),
        state(plan, pipeline, 0, Purpose::kTraining, layout),
        arena(Arena::Allocate(layout).value()) {
    parameters.Bind(arena);
    state.Bind(arena, parameters);
  }
  static std::vector<int32_t> Sublayers(const ModelPlan& plan) {
    std::vector<int32_t> sublayers(plan.sublayers.size());
    for (size_t s = 0; s < sublayers.size(); ++s) sublayers[s] = static_cast<int32_t>(s);
    return sublayers;
  }

  PipelinePlan pipeline;
  ArenaLayout layout;
  ParameterStore parameters;
  StageState state;
  Arena arena;
};

class ReplicaBuckets : public testing::TestWithParam<Storage> {
 protected:
  const ModelPlan plan_ = PlanOf(GetParam());
};

TEST_P(ReplicaBuckets, HoldEveryElementOnceWithItsWeightAndItsOwner) {
  const Held held(plan_, 3, 1);
  std::map<const float*, const ReplicaBucket*> by_gradient;
  const std::vector<ReplicaBucket> buckets = MakeReplicaBuckets(held.state);
  int64_t elements = 0;
  for (const ReplicaBucket& bucket : buckets) {
    EXPECT_LE(bucket.gradient.size, ReplicaBucket::kMostElements);
    EXPECT_EQ(bucket.weight.columns, bucket.gradient.size);
    EXPECT_EQ(bucket.mirror, nullptr);
    elements += bucket.gradient.size;
    by_gradient[bucket.gradient.data] = &bucket;
  }
  EXPECT_EQ(elements, plan_.ParameterElements());
  for (const StateSlice& slice : held.state.slices()) {
    for (int64_t element = 0; element < slice.elements; element += 97) {
      const float* const gradient = slice.gradient.data + element;
      const auto behind = by_gradient.upper_bound(gradient);
      ASSERT_NE(behind, by_gradient.begin());
      const ReplicaBucket& bucket = *std::prev(behind)->second;
      const int64_t at = gradient - bucket.gradient.data;
      ASSERT_LT(at, bucket.gradient.size);
      ASSERT_EQ(bucket.owner, slice.owner);
      ASSERT_EQ(bucket.weight.storage, slice.as_read().storage);
      ASSERT_EQ(bucket.weight.Columns(at, 1).data, slice.as_read().Columns(element, 1).data);
    }
  }
}

TEST_P(ReplicaBuckets, DescendInDepthAndEndWithTiedTables) {
  const Held held(plan_, 3, 1);
  const std::vector<ReplicaBucket> buckets = MakeReplicaBuckets(held.state);
  const auto tables =
      std::find_if(buckets.begin(), buckets.end(), [](const ReplicaBucket& b) { return b.first_sublayer < 0; });
  EXPECT_TRUE(std::is_sorted(buckets.begin(), tables, [](const ReplicaBucket& a, const ReplicaBucket& b) {
    return a.first_sublayer > b.first_sublayer;
  }));
  int64_t tied = 0;
  for (auto bucket = tables; bucket != buckets.end(); ++bucket) {
    EXPECT_LT(bucket->first_sublayer, 0);
    tied += bucket->gradient.size;
  }
  EXPECT_EQ(tied, int64_t{66000} * 16);
}

// A bucket is complete no earlier than the last of its slices: what lies in it belongs to its sublayer or to deeper
// ones.
TEST_P(ReplicaBuckets, AreCompleteWithTheirShallowestSlice) {
  const Held held(plan_, 2, 0);
  const std::vector<ReplicaBucket> buckets = MakeReplicaBuckets(held.state);
  for (const StateSlice& slice : held.state.slices()) {
    const int32_t sublayer = plan_.parameters[slice.parameter].sublayer;
    for (const ReplicaBucket& bucket : buckets) {
      const bool overlap = slice.gradient.data < bucket.gradient.data + bucket.gradient.size &&
                           bucket.gradient.data < slice.gradient.data + slice.gradient.size;
      if (!overlap) continue;
      EXPECT_LE(bucket.first_sublayer, sublayer) << plan_.ParameterName(slice.parameter);
    }
  }
}

TEST_P(ReplicaBuckets, NeighboursTravelTogether) {
  const Held held(plan_, 2, 0);
  const std::vector<ReplicaBucket> buckets = MakeReplicaBuckets(held.state);
  const auto whole = std::count_if(buckets.begin(), buckets.end(), [](const ReplicaBucket& b) {
    return b.gradient.size == ReplicaBucket::kMostElements;
  });
  EXPECT_GT(whole, 0) << "a long slice is cut";
  EXPECT_LT(buckets.size(), held.state.slices().size()) << "short ones are joined";
}

TEST_P(ReplicaBuckets, AreTheSameListOnEveryReplica) {
  const Held first(plan_, 3, 0), last(plan_, 3, 2);
  const std::vector<ReplicaBucket> a = MakeReplicaBuckets(first.state), b = MakeReplicaBuckets(last.state);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].owner, b[i].owner);
    EXPECT_EQ(a[i].first_sublayer, b[i].first_sublayer);
    EXPECT_EQ(a[i].gradient.size, b[i].gradient.size);
    EXPECT_EQ(a[i].weight.bytes(), b[i].weight.bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(Storages, ReplicaBuckets, testing::Values(Storage::kFloat32, Storage::kBFloat16),
                         [](const auto& info) { return info.param == Storage::kFloat32 ? "fp32" : "bf16"; });

}  // namespace
}  // namespace hadal

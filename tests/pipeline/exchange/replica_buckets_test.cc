#include <map>

#include "gtest/gtest.h"
#include "layers/parameter_store.h"
#include "pipeline/exchange/replica_buckets.h"
#include "pipeline/layout/slice_ownership.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

// Its embedding, tied three times, is two slices; each of its feed-forward matrices is a little more than half a slice.
ModelPlan PlanOf(Storage storage) {
  ModelPlan plan = TinyPlan(
      {.encoder_layers = 2, .decoder_layers = 2, .d_model = 16, .d_ff = 33000, .heads = 2, .vocabulary = 66000});
  plan.compute_storage = storage;
  return plan;
}

// What one rank holds of stage 0 of 1.
struct Held {
  Held(const ModelPlan& plan, int replicas, int replica)
      : pipeline(MakePipelineLayout(plan, {.micro_batches = 4, .source_tokens = 16, .target_tokens = 16},
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

  PipelineLayout pipeline;
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
  std::map<const float*, std::pair<int, const ReplicaBucket*>> by_gradient;  // round, bucket
  const std::vector<ReplicaRound> rounds = MakeReplicaRounds(held.state);
  int64_t elements = 0;
  for (size_t round = 0; round < rounds.size(); ++round) {
    for (const ReplicaBucket& bucket : rounds[round].buckets) {
      EXPECT_EQ(bucket.weight.columns, bucket.gradient.size);
      EXPECT_EQ(bucket.mirror, nullptr);
      elements += bucket.gradient.size;
      by_gradient[bucket.gradient.data] = {static_cast<int>(round), &bucket};
    }
  }
  EXPECT_EQ(elements, plan_.ParameterElements());
  for (const StateSlice& slice : held.state.slices()) {
    for (int64_t element = 0; element < slice.elements; element += 97) {
      const float* const gradient = slice.gradient.data + element;
      const auto behind = by_gradient.upper_bound(gradient);
      ASSERT_NE(behind, by_gradient.begin());
      const auto& [round, bucket] = std::prev(behind)->second;
      const int64_t at = gradient - bucket->gradient.data;
      ASSERT_LT(at, bucket->gradient.size);
      ASSERT_EQ(round, slice.round);
      ASSERT_EQ(bucket->owner, slice.owner);
      ASSERT_EQ(bucket->weight.storage, slice.as_read().storage);
      ASSERT_EQ(bucket->weight.Columns(at, 1).data, slice.as_read().Columns(element, 1).data);
    }
  }
}

TEST_P(ReplicaBuckets, DescendInDepthAndEndWithTiedTables) {
  const Held held(plan_, 3, 1);
  const std::vector<ReplicaRound> rounds = MakeReplicaRounds(held.state);
  EXPECT_TRUE(std::is_sorted(rounds.begin(), rounds.end(), [](const ReplicaRound& a, const ReplicaRound& b) {
    return a.first_sublayer > b.first_sublayer;
  }));
  int64_t tied = 0;
  for (const ReplicaRound& round : rounds) {
    for (const ReplicaBucket& bucket : round.buckets) tied += round.first_sublayer < 0 ? bucket.gradient.size : 0;
  }
  EXPECT_EQ(tied, int64_t{66000} * 16);
}

// A round is complete no earlier than the last of its slices: what lies in it belongs to its sublayer or to deeper
// ones.
TEST_P(ReplicaBuckets, AreCompleteWithTheirShallowestSlice) {
  const Held held(plan_, 2, 0);
  const std::vector<ReplicaRound> rounds = MakeReplicaRounds(held.state);
  std::vector<int32_t> first(rounds.size(), std::numeric_limits<int32_t>::max());
  for (const StateSlice& slice : held.state.slices()) {
    const int32_t sublayer = IsTiedTable(plan_, slice.parameter) ? -1 : plan_.parameters[slice.parameter].sublayer;
    first[slice.round] = std::min(first[slice.round], sublayer);
  }
  for (size_t round = 0; round < rounds.size(); ++round) EXPECT_EQ(rounds[round].first_sublayer, first[round]);
}

// One message for each owner in a round, but where the gradient of the decoder's use of the table lies between.
TEST_P(ReplicaBuckets, NeighboursTravelTogether) {
  const Held held(plan_, 2, 0);
  int buckets = 0, owners = 0;
  for (const ReplicaRound& round : MakeReplicaRounds(held.state)) {
    std::map<int, int64_t> elements;
    for (const ReplicaBucket& bucket : round.buckets) elements[bucket.owner] += bucket.gradient.size;
    for (const auto& [owner, of_owner] : elements) EXPECT_LE(of_owner, MostElementsOfARound(held.state));
    buckets += static_cast<int>(round.buckets.size());
    owners += static_cast<int>(elements.size());
  }
  EXPECT_LE(buckets, owners + 1);
  EXPECT_LT(buckets, std::ssize(held.state.slices()) / 2);
}

TEST_P(ReplicaBuckets, AreTheSameListOnEveryReplica) {
  const Held first(plan_, 3, 0), last(plan_, 3, 2);
  const std::vector<ReplicaRound> a = MakeReplicaRounds(first.state), b = MakeReplicaRounds(last.state);
  EXPECT_EQ(MostElementsOfARound(first.state), MostElementsOfARound(last.state));
  ASSERT_EQ(a.size(), b.size());
  for (size_t round = 0; round < a.size(); ++round) {
    EXPECT_EQ(a[round].first_sublayer, b[round].first_sublayer);
    ASSERT_EQ(a[round].buckets.size(), b[round].buckets.size());
    for (size_t i = 0; i < a[round].buckets.size(); ++i) {
      EXPECT_EQ(a[round].buckets[i].owner, b[round].buckets[i].owner);
      EXPECT_EQ(a[round].buckets[i].gradient.size, b[round].buckets[i].gradient.size);
      EXPECT_EQ(a[round].buckets[i].weight.bytes(), b[round].buckets[i].weight.bytes());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Storages, ReplicaBuckets, testing::Values(Storage::kFloat32, Storage::kBFloat16),
                         [](const auto& info) { return info.param == Storage::kFloat32 ? "fp32" : "bf16"; });

TEST(ReplicaBlocks, EachBlockHasARelayOfEachOwner) {
  for (int replicas = 1; replicas <= 40; ++replicas) {
    const ReplicaBlocks blocks{.replicas = replicas};
    for (int owner = 0; owner < replicas; ++owner) {
      EXPECT_EQ(blocks.RelayOf(blocks.BlockOf(owner), owner), owner) << "in its own block itself";
      for (int block = 0; block < blocks.count(); ++block) {
        const int relay = blocks.RelayOf(block, owner);
        EXPECT_EQ(blocks.BlockOf(relay), block);
        EXPECT_LT(relay, replicas);
        EXPECT_TRUE(blocks.Meet(relay, owner));
      }
    }
  }
}

TEST(ReplicaBlocks, ABlockIsASubtree) {
  const auto size = [](int replicas) { return ReplicaBlocks{.replicas = replicas}.size(); };
  for (const int one : {1, 3, 6, 8, 9, 27}) EXPECT_EQ(size(one), one);
  for (const int several : {16, 24, 40, 64}) EXPECT_EQ(size(several), 8);
  EXPECT_EQ(size(12), 4);
  EXPECT_EQ(size(18), 2);
}

}  // namespace

}  // namespace hadal

#include "pipeline/layout/slice_ownership.h"

#include <map>

#include "gtest/gtest.h"
#include "kernels/orthogonalize.h"
#include "tests/support/small_model.h"

namespace hadal {
namespace {

ModelPlan PlanOf(int32_t d_model, int32_t vocabulary) {
  return ModelPlan::Make(testing::SmallModel(
      ResidualMethod::kDeepNorm,
      {.encoder_layers = 3, .decoder_layers = 4, .d_model = d_model, .d_ff = 4 * d_model, .vocabulary = vocabulary}));
}

int64_t ElementsOf(const std::vector<OwnedSlice>& slices) {
  int64_t elements = 0;
  for (const OwnedSlice& slice : slices) elements += slice.elements;
  return elements;
}

PipelineLayout PipelineOf(const ModelPlan& plan, int stages, int replicas) {
  return MakePipelineLayout(plan, {.micro_batches = 64}, {.replicas = replicas}, stages * replicas).value();
}

TEST(SliceOwnership, EverySliceOfTheModelOnceInOrder) {
  const ModelPlan plan = PlanOf(64, 40000);  // a table of 3 slices
  const PipelineLayout pipeline = PipelineOf(plan, 3, 4);
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
    PipelineLayout pipeline = PipelineOf(plan, 2, 3);
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
      const PipelineLayout pipeline = PipelineOf(plan, 2, replicas);
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

// As gradients become complete, from the last sublayer down, no replica gets ahead of another by more than a bucket
// that a slice has lengthened, and what a slice has lengthened others by.
TEST(SliceOwnership, AllReceiveAtEveryMomentOfTheLastBackward) {
  const ModelPlan plan = PlanOf(512, 40000);
  for (const int replicas : {2, 3, 8}) {
    const PipelineLayout pipeline = PipelineOf(plan, 2, replicas);
    for (int stage = 0; stage < 2; ++stage) {
      std::vector<OwnedSlice> slices = SlicesOfStage(plan, pipeline, stage);
      std::reverse(slices.begin(), slices.end());
      std::vector<int64_t> owned(replicas, 0);
      const int64_t bucket = BucketElements(ElementsOf(slices), replicas);
      for (const OwnedSlice& slice : slices) {
        owned[slice.replica] += slice.elements;
        const auto [least, most] = std::minmax_element(owned.begin(), owned.end());
        ASSERT_LE(*most - *least, bucket + 2 * kSliceElements) << replicas << " replicas, stage " << stage;
      }
    }
  }
}

// The runs of one owner in one round, in a part whose slices are neighbours in memory.
using RunsOfRounds = std::map<std::pair<int, int>, int>;
RunsOfRounds CountRuns(const ModelPlan& plan, const std::vector<OwnedSlice>& slices) {
  RunsOfRounds runs;
  for (const Storage storage : {Storage::kBFloat16, Storage::kFloat32}) {
    std::pair<int, int> last(-1, -1);
    for (const OwnedSlice& slice : slices) {
      if (plan.read_storage(slice.parameter) != storage) continue;
      const std::pair key(slice.round, slice.replica);
      if (std::exchange(last, key) != key) ++runs[key];
    }
  }
  return runs;
}

TEST(SliceOwnership, AnOwnerHasOneRunInARound) {
  for (const Storage storage : {Storage::kFloat32, Storage::kBFloat16}) {
    ModelPlan plan = PlanOf(512, 40000);
    plan.compute_storage = storage;
    for (const int replicas : {2, 3, 8, 16}) {
      for (int stage = 0; stage < 2; ++stage) {
        const std::vector<OwnedSlice> slices = SlicesOfStage(plan, PipelineOf(plan, 2, replicas), stage);
        for (const auto& [key, runs] : CountRuns(plan, slices)) {
          EXPECT_EQ(runs, 1) << replicas << " replicas, stage " << stage << ", round " << key.first;
        }
      }
    }
  }
}

// So that a message of an earlier round never waits for a gradient of a later one.
TEST(SliceOwnership, RoundsBecomeCompleteInTheirOrder) {
  for (const Storage storage : {Storage::kFloat32, Storage::kBFloat16}) {
    ModelPlan plan = PlanOf(512, 40000);
    plan.compute_storage = storage;
    const std::vector<OwnedSlice> slices = SlicesOfStage(plan, PipelineOf(plan, 1, 4), 0);
    std::map<int, int32_t> first;  // sublayer of each round; −1: tied
    for (const OwnedSlice& slice : slices) {
      const int32_t sublayer = IsTiedTable(plan, slice.parameter) ? -1 : plan.parameters[slice.parameter].sublayer;
      const auto [found, is_new] = first.emplace(slice.round, sublayer);
      if (!is_new) found->second = std::min(found->second, sublayer);
    }
    ASSERT_GT(first.size(), 4u);
    EXPECT_EQ(first.rbegin()->first, std::ssize(first) - 1) << "numbered without gaps";
    EXPECT_EQ(first.rbegin()->second, -1) << "the table, which is tied, is last";
    int32_t before = std::numeric_limits<int32_t>::max();
    for (const auto& [round, sublayer] : first) EXPECT_LE(sublayer, std::exchange(before, sublayer)) << round;
  }
}

// Each of Muon's matrices, of up to two slices here, has one owner and one round, and its operations are balanced to
// within the costliest; the others' elements to within a slice.
TEST(SliceOwnership, MuonsMatricesAreWholeAndBalanced) {
  for (const Storage storage : {Storage::kFloat32, Storage::kBFloat16}) {
    ModelPlan plan = PlanOf(768, 1000);
    plan.compute_storage = storage;
    plan.muon_steps = 5;
    for (const int replicas : {1, 2, 3, 5}) {
      const std::vector<OwnedSlice> slices = SlicesOfStage(plan, PipelineOf(plan, 2, replicas), 1);
      std::map<int32_t, std::pair<int, int>> places;  // of matrices
      std::vector<double> operations(replicas, 0), others(replicas, 0);
      double total = 0, costliest = 0;
      for (const OwnedSlice& slice : slices) {
        if (!plan.uses_muon(slice.parameter)) {
          others[slice.replica] += static_cast<double>(slice.elements);
          continue;
        }
        const auto [place, is_new] = places.emplace(slice.parameter, std::pair(slice.replica, slice.round));
        EXPECT_EQ(place->second, std::pair(slice.replica, slice.round)) << plan.ParameterName(slice.parameter);
        if (!is_new) continue;
        const ParameterRecord& matrix = plan.parameters[slice.parameter];
        const double cost = OrthogonalizeOperations(matrix.rows, matrix.columns, 5, true);
        operations[slice.replica] += cost;
        total += cost;
        costliest = std::max(costliest, cost);
      }
      EXPECT_GT(places.size(), 20u);
      EXPECT_LE(*std::max_element(operations.begin(), operations.end()), total / replicas + costliest);
      const auto [least, most] = std::minmax_element(others.begin(), others.end());
      EXPECT_LE(*most - *least, static_cast<double>(2 * kSliceElements));
    }
  }
}

TEST(SliceOwnership, ABucketIsASixteenthOfAShareBetweenOneAndEightMebibytes) {
  constexpr int64_t kMebi = int64_t{1} << 18;  // elements
  EXPECT_EQ(BucketElements(1000, 8), kMebi);
  EXPECT_EQ(BucketElements(16 * 8 * 3 * kMebi, 8), 3 * kMebi);
  EXPECT_EQ(BucketElements(int64_t{1} << 40, 8), 8 * kMebi);
}

// Of a stage that is shorter than a bucket the first round has half of all elements, and its runs are equal but for a
// slice each.
TEST(SliceOwnership, RunsBeginShort) {
  const ModelPlan plan = PlanOf(64, 1000);
  for (const int replicas : {2, 3, 5}) {
    const std::vector<OwnedSlice> slices = SlicesOfStage(plan, PipelineOf(plan, 1, replicas), 0);
    int64_t untied = 0, longest_slice = 0;
    std::map<int, int64_t> first_runs;
    for (const OwnedSlice& slice : slices) {
      if (IsTiedTable(plan, slice.parameter)) continue;
      untied += slice.elements;
      longest_slice = std::max(longest_slice, slice.elements);
      if (slice.round == 0) first_runs[slice.replica] += slice.elements;
    }
    ASSERT_LT(untied / (2 * replicas), BucketElements(untied, replicas));
    ASSERT_EQ(std::ssize(first_runs), replicas);
    for (const auto& [replica, elements] : first_runs) {
      EXPECT_GE(elements, untied / (2 * replicas)) << replicas;
      EXPECT_LT(elements - longest_slice, untied / (2 * replicas)) << replicas;
    }
  }
}

// 500L-500L on 8 stages of 8 replicas: a rank sends and receives 7 gradients and 7 weights a round, in two groups.
TEST(SliceOwnership, ADeepModelTakesFewRounds) {
  for (const Storage storage : {Storage::kFloat32, Storage::kBFloat16}) {
    ModelPlan plan = ModelPlan::Make(testing::SmallModel(
        ResidualMethod::kDeepNorm,
        {.encoder_layers = 500, .decoder_layers = 500, .d_model = 512, .d_ff = 2048, .vocabulary = 32000}));
    plan.compute_storage = storage;
    const PipelineLayout pipeline = PipelineOf(plan, 8, 8);
    for (int stage = 0; stage < 8; ++stage) {
      int rounds = 0, messages = 0;
      for (const auto& [key, runs] : CountRuns(plan, SlicesOfStage(plan, pipeline, stage))) {
        rounds = std::max(rounds, key.first + 1);
        messages += runs;
      }
      // A bucket is sent by 7 and received by its owner, and its result comes back: 28 calls of the 8 ranks together,
      // of one rank an eighth of that for each of the 8 owners' buckets.
      EXPECT_LE(2 * 2 * 7 * messages / 8, 1000) << "stage " << stage;
      EXPECT_LE(2 * rounds, 200) << "stage " << stage;
      EXPECT_GE(rounds, 16) << "stage " << stage;
    }
  }
}

}  // namespace
}  // namespace hadal

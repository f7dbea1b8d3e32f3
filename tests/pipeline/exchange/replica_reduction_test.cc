// Sums over the replicas of one stage, which are threads: in the order that the header states, and with deadlines.
// Whole runs: tests/integration/data_parallel_test.cc.
#include "pipeline/exchange/replica_reduction.h"

#include <cmath>
#include <future>
#include <numeric>

#include "gtest/gtest.h"
#include "pipeline/layout/slice_ownership.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/random.h"
#include "runtime/status_macros.h"
#include "tests/support/small_model.h"

namespace hadal {
namespace {

constexpr absl::Duration kHang = absl::Seconds(30);
constexpr absl::Duration kSoon = absl::Milliseconds(50);

// One replica of a model on one stage.
class Replica {
 public:
  Replica(const ModelPlan& plan, int replicas, Communicator& communicator)
      : pipeline_(MakePipelineLayout(plan, {.micro_batches = replicas, .source_tokens = 16, .target_tokens = 16},
                                     {.replicas = replicas}, replicas, communicator.rank())
                      .value()),
        parameters_(plan, Sublayers(plan), Purpose::kTraining, layout_, UpdatedSlices(plan, pipeline_, 0)),
        state_(plan, pipeline_, 0, Purpose::kTraining, layout_),
        reduction_(pipeline_, state_, stream_, Purpose::kTraining, layout_),
        arena_(Arena::Allocate(layout_).value()) {
    PrepareComputeThread();
    parameters_.Bind(arena_);
    state_.Bind(arena_, parameters_);
    EXPECT_TRUE(reduction_.Bind(arena_, state_, communicator, trace_).ok());
  }

  const StageState& state() const { return state_; }
  ReplicaReduction& reduction() { return reduction_; }
  const Stream& stream() const { return stream_; }

 private:
  static std::vector<int32_t> Sublayers(const ModelPlan& plan) {
    std::vector<int32_t> sublayers(plan.sublayers.size());
    std::iota(sublayers.begin(), sublayers.end(), 0);
    return sublayers;
  }

  const Stream stream_ = Stream::Cpu(1);
  TraceBuffer trace_;
  PipelineLayout pipeline_;
  ArenaLayout layout_;
  ParameterStore parameters_;
  StageState state_;
  ReplicaReduction reduction_;
  Arena arena_;
};

// Of sizes so different that every order of adding them gives other bits.
float GradientAt(int replica, const StateSlice& slice, int64_t i) {
  const auto draw = [&](uint32_t stream) {
    return UniformAt(7, RandomSite::kSampling, stream, (slice.parameter * 100003 + i) * 32 + replica);
  };
  return static_cast<float>((draw(1) - 0.5) * std::exp2(20 * draw(2)));
}

// Of `count` replicas from `first`, as a binary tree where they are even.
float TreeOf(int first, int count, const StateSlice& slice, int64_t i) {
  if (count == 1) return GradientAt(first, slice, i);
  return TreeOf(first, count / 2, slice, i) + TreeOf(first + count / 2, count / 2, slice, i);
}

float SumOf(int replicas, const StateSlice& slice, int64_t i) {
  const int block = replicas & -replicas;
  float sum = TreeOf(0, block, slice, i);
  for (int first = block; first < replicas; first += block) sum += TreeOf(first, block, slice, i);
  return sum;
}

class ReplicaReductionOrder : public ::testing::TestWithParam<int> {};

TEST_P(ReplicaReductionOrder, IsTheStatedOneOnEveryOwner) {
  const int replicas = GetParam();
  const ModelPlan plan = ModelPlan::Make(testing::SmallModel(ResidualMethod::kDeepNorm));
  InProcessWorld world(replicas);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    Replica replica(plan, replicas, communicator);
    for (const StateSlice& slice : replica.state().slices()) {
      for (int64_t i = 0; i < slice.elements; ++i) slice.gradient[i] = GradientAt(communicator.rank(), slice, i);
    }
    HADAL_RETURN_IF_ERROR(replica.reduction().Begin());
    HADAL_RETURN_IF_ERROR(replica.reduction().Finish(replica.stream(), kHang));
    int64_t wrong = 0, unlike_descending = 0, unlike_ascending = 0;
    for (const StateSlice& slice : replica.state().owned()) {
      for (int64_t i = 0; i < slice.elements; ++i) {
        wrong += slice.gradient[i] != SumOf(replicas, slice, i);
        float descending = GradientAt(replicas - 1, slice, i), ascending = GradientAt(0, slice, i);
        for (int r = replicas - 2; r >= 0; --r) descending += GradientAt(r, slice, i);
        for (int r = 1; r < replicas; ++r) ascending += GradientAt(r, slice, i);
        unlike_descending += slice.gradient[i] != descending;
        unlike_ascending += slice.gradient[i] != ascending;
      }
    }
    EXPECT_GT(unlike_descending, 0) << "the order shows";
    EXPECT_EQ(unlike_ascending > 0, replicas % 2 == 0) << "the tree shows";
    HADAL_RETURN_IF_ERROR(replica.reduction().GatherGradients(replica.stream(), kHang));
    for (const StateSlice& slice : replica.state().slices()) {
      for (int64_t i = 0; i < slice.elements; ++i) wrong += slice.gradient[i] != SumOf(replicas, slice, i);
    }
    EXPECT_EQ(wrong, 0);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

INSTANTIATE_TEST_SUITE_P(Replicas, ReplicaReductionOrder, ::testing::Values(4, 8, 9, 12, 16),
                         ::testing::PrintToStringParamName());

// Both replicas begin a step. The second then does `part` and leaves, the first calls `call`.
void ExpectDeadline(const std::function<absl::Status(Replica&)>& part,
                    const std::function<absl::Status(Replica&)>& call) {
  const ModelPlan plan = ModelPlan::Make(testing::SmallModel(ResidualMethod::kDeepNorm));
  InProcessWorld world(2);
  std::promise<void> returned;
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    Replica replica(plan, 2, communicator);
    HADAL_RETURN_IF_ERROR(replica.reduction().Begin());
    if (communicator.rank() == 1) {
      HADAL_RETURN_IF_ERROR(part(replica));
      const bool ended = returned.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready;
      if (!ended) communicator.Abort(1);  // a wait that does not end
      return absl::OkStatus();
    }
    const absl::Status waited = call(replica);
    returned.set_value();
    EXPECT_EQ(waited.code(), absl::StatusCode::kDeadlineExceeded) << waited;
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ReplicaReductionTest, EveryWaitHasADeadline) {
  const auto nothing = [](Replica&) { return absl::OkStatus(); };
  const auto finish = [](absl::Duration timeout) {
    return [timeout](Replica& replica) { return replica.reduction().Finish(replica.stream(), timeout); };
  };
  ExpectDeadline(nothing, finish(kSoon));
  ExpectDeadline(finish(kHang), [&](Replica& replica) -> absl::Status {
    HADAL_RETURN_IF_ERROR(finish(kHang)(replica));
    return replica.reduction().GatherGradients(replica.stream(), kSoon);
  });
}

}  // namespace
}  // namespace hadal

// What the loop over a program's instructions promises of order, errors, and what is over when it returns. What the
// programs compute, and what runs beside a step's last backward: engine_test.cc and tests/integration.
#include "pipeline/engine/program_executor.h"

#include <thread>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "layers/depth_observer.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "pipeline/exchange/process_grid.h"
#include "pipeline/layout/row_bucket.h"
#include "runtime/clock.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/sampling_order.h"
#include "tests/support/emulated_device.h"
#include "tests/support/random_corpus.h"
#include "tests/support/small_model.h"
#include "tests/support/step_batches.h"

namespace hadal::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kHang = absl::Seconds(30);
constexpr absl::Duration kSoon = absl::Milliseconds(20);
constexpr int64_t kStep = 7;
constexpr int kMicroBatches = 3;

// A language model on some stages, and a step of it.
struct Work {
  // The plan of the replica of world rank `rank`.
  Work(const PipelineOptions& options, int ranks, int rank = 0, int32_t width = 16)
      : plan(ModelPlan::Make(
            SmallModel(ResidualMethod::kDeepNorm, {.encoder_layers = 0, .decoder_layers = 4, .d_model = width}))),
        pipeline(MakePipelineLayout(plan, {.micro_batches = kMicroBatches, .target_tokens = 32}, options, ranks, rank)
                     .value()),
        corpus(RandomCorpusFor(plan.options, 40, 10, 3)) {
    batches = StepOf(*SamplingOrder::Create(corpus, {.capacity = {0, 32}, .micro_batches_per_step = kMicroBatches}),
                     kStep, kMicroBatches)
                  .micro_batches;
  }

  const ModelPlan plan;
  const PipelineLayout pipeline;
  const Corpus corpus;
  std::vector<PackedBatch> batches;
};

// Of the same ranks as another one; counts how often it is moved along.
class Counted final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  absl::StatusOr<CommRequest> Send(const void* /*data*/, int64_t /*bytes*/, int /*peer*/, int /*tag*/) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<CommRequest> Receive(void* /*data*/, int64_t /*bytes*/, int /*peer*/, int /*tag*/) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<bool> Test(CommRequest& /*request*/, int64_t* /*received_bytes*/) override {
    return absl::UnimplementedError("");
  }
  void Progress() override { ++moves; }
  void Abort(int /*exit_code*/) override {}

  int moves = 0;
};

// What a rank's programs run on, put together as the engine does.
class ExecutingRank {
 public:
  // `transfers`: null where it is the world's.
  ExecutingRank(const Work& work, Communicator& world, absl::Duration timeout, Communicator* transfers = nullptr,
                const Stream& stream = Stream::Cpu(1))
      : work_(work),
        grid_(world, work.pipeline.grid),
        collectives_(world, timeout),
        parts_(work.plan, work.pipeline, grid_.stage(), stream, Purpose::kTraining),
        arena_(Arena::Allocate(parts_.layout, stream.device()).value()),
        tail_(work.plan, work.pipeline, parts_, collectives_, timeout),
        executor_({.pipeline = work.pipeline,
                   .stage = grid_.stage(),
                   .parts = parts_,
                   .tail = tail_,
                   .world = world,
                   .transfers = transfers != nullptr ? *transfers : world,
                   .trace = trace_,
                   .timeout = timeout}) {
    PrepareComputeThread();
    EXPECT_TRUE(parts_.Bind(arena_, grid_, grid_, timeout, trace_).ok());
    EXPECT_TRUE(executor_.Prepare().ok());
    trace_.Reserve(1000);
  }

  // The weights that a seed gives.  REQUIRES: one stage.
  void Initialize() {
    EXPECT_TRUE(
        InitializeParameters(work_.pipeline, parts_.stage.parameters(), 1, Stream::Cpu(1), grid_.pipeline(), kHang)
            .ok());
  }
  absl::Status Train(StepResult& result, DepthObserver* observer = nullptr,
                     const std::function<void()>& before_update = {}) {
    tail_.Begin({.learning_rate = 1e-3, .before_update = before_update}, 1);
    EXPECT_TRUE(parts_.reduction.Begin().ok());
    return executor_.Run(work_.pipeline.programs[grid_.stage()],
                         {.batches = std::span(work_.batches).first(work_.pipeline.shape.micro_batches),
                          .scalars = {.seed = 1, .step = kStep, .gradient_scale = 1e-2f},
                          .observer = observer},
                         result);
  }
  // Forward only, over the first `count` micro-batches.
  absl::Status Evaluate(int count, StepResult& result, std::vector<float>* row_nll = nullptr) {
    ScheduleShape shape = work_.pipeline.shape;
    shape.micro_batches = count;
    return executor_.Run(MakeForwardSchedule(shape, grid_.stage()).value(),
                         {.batches = std::span(work_.batches).first(count),
                          .scalars = {.seed = 1, .step = kStep, .training = false},
                          .row_nll = row_nll},
                         result);
  }

  ProgramExecutor& executor() { return executor_; }
  TraceBuffer& trace() { return trace_; }

 private:
  const Work& work_;
  ProcessGrid grid_;
  Collectives collectives_;
  RankParts parts_;
  Arena arena_;
  StepTail tail_;
  TraceBuffer trace_;
  ProgramExecutor executor_;
};

// Two chunks on one rank, which sends to itself.
class OneRankTest : public ::testing::Test {
 protected:
  OneRankTest() { rank_.Initialize(); }

  const Work work_{{.chunks = 2, .schedule = ScheduleKind::kInterleaved1F1B}, 1};
  InProcessWorld world_{1};
  Counted transfers_;
  ExecutingRank rank_{work_, world_.communicator(0), kHang, &transfers_};
};

TEST_F(OneRankTest, ExecutesTheInstructionsInTheirOrder) {
  using Line = std::tuple<TraceKind, int, int, int>;
  std::vector<Line> expected, seen;
  const RankProgram& program = work_.pipeline.programs[0];
  for (const Instruction& instruction : program) {
    const TraceEvent event = EventOf(instruction, work_.pipeline.shape, 0, work_.batches);
    expected.emplace_back(event.kind, event.chunk, event.micro_batch, event.channel);
  }
  expected.emplace_back(TraceKind::kDrain, -1, -1, -1);
  StepResult result;
  ASSERT_TRUE(rank_.Evaluate(1, result).ok());
  const double nll = rank_.executor().losses()[0].nll;
  rank_.trace().Start(kStep);
  const absl::Status status = rank_.Train(result);
  ASSERT_TRUE(status.ok()) << status;
  rank_.trace().Stop();
  for (const TraceEvent& event : rank_.trace().events()) {
    if (event.kind == TraceKind::kArrival) continue;  // beside the instructions
    seen.emplace_back(event.kind, event.chunk, event.micro_batch, event.channel);
  }
  EXPECT_THAT(seen, ElementsAreArray(expected));
  EXPECT_TRUE(result.applied);
  EXPECT_THAT(rank_.executor().losses(), SizeIs(kMicroBatches));
  EXPECT_EQ(rank_.executor().current_instruction().Describe(),
            absl::StrCat("step 8, instruction ", program.size(), " of ", program.size(), ": distribute_tied_weights"));
  ASSERT_TRUE(rank_.Evaluate(1, result).ok());
  EXPECT_NE(rank_.executor().losses()[0].nll, nll) << "of new weights";
}

TEST_F(OneRankTest, LossesAreThoseOfTheLastProgram) {
  std::vector<float> row_nll = {-1};
  StepResult result;
  ASSERT_TRUE(rank_.Evaluate(kMicroBatches, result, &row_nll).ok());
  ASSERT_THAT(rank_.executor().losses(), SizeIs(kMicroBatches));
  EXPECT_EQ(row_nll.front(), -1) << "rows are appended";
  auto row = row_nll.begin() + 1;
  for (int m = 0; m < kMicroBatches; ++m) {
    const LossSums& loss = rank_.executor().losses()[m];
    ASSERT_EQ(loss.tokens, work_.batches[m].target_rows());
    ASSERT_GE(row_nll.end() - row, loss.tokens);
    EXPECT_NEAR(std::accumulate(row, row + loss.tokens, 0.0), loss.nll, 1e-5 * loss.nll) << m;
    row += loss.tokens;
  }
  EXPECT_EQ(row, row_nll.end());
  const LossSums first = rank_.executor().losses()[0];
  ASSERT_TRUE(rank_.Evaluate(1, result).ok());
  ASSERT_THAT(rank_.executor().losses(), SizeIs(1));
  EXPECT_EQ(rank_.executor().losses()[0].nll, first.nll);
}

TEST_F(OneRankTest, TimesAreAddedToTheResults) {
  StepResult result;
  result.times = {
      .forward_seconds = 1000, .backward_seconds = 2000, .wait_seconds = 3000, .communication_seconds = 4000};
  ASSERT_TRUE(rank_.Train(result).ok());
  const std::pair<double, double> times[] = {{result.times.forward_seconds, 1000},
                                             {result.times.backward_seconds, 2000},
                                             {result.times.wait_seconds, 3000},
                                             {result.times.communication_seconds, 4000}};
  for (const auto& [seconds, before] : times) {
    EXPECT_GT(seconds, before);
    EXPECT_LT(seconds, before + 500);
  }
}

TEST_F(OneRankTest, TransfersAreMovedAlongBetweenSublayers) {
  StepResult result;
  ASSERT_TRUE(rank_.Evaluate(1, result).ok());
  const auto sublayers = static_cast<int>(work_.plan.sublayers.size());
  EXPECT_GE(transfers_.moves, sublayers);
  transfers_.moves = 0;
  ASSERT_TRUE(rank_.Train(result).ok());
  EXPECT_GE(transfers_.moves, 2 * kMicroBatches * sublayers);
}

// One stage of two; the other is played by hand.
class TwoRanksTest : public ::testing::Test {
 protected:
  // Of the messages of rank 1's receive or send.
  int Tag(Operation operation) const { return ChannelOf(work_.pipeline.shape, 1, {operation, 0, 0}).number; }
  static CommRequest Post(const absl::StatusOr<CommRequest>& request) {
    EXPECT_TRUE(request.ok()) << request.status();
    return request.value_or(CommRequest());
  }
  static bool IsDone(Communicator& communicator, CommRequest request) { return communicator.Test(request).value(); }
  static bool IsClosed(Communicator& communicator) {
    return communicator.Send(nullptr, 0, communicator.rank(), 0).status().code() == absl::StatusCode::kUnavailable;
  }

  const Work work_{{}, 2};
  InProcessWorld world_{2};
  Communicator& zero_ = world_.communicator(0);
  Communicator& one_ = world_.communicator(1);
  StepResult result_;
};

TEST_F(TwoRanksTest, AWaitEndsAtItsDeadlineAndNamesWhatItWaitedFor) {
  ExecutingRank rank(work_, one_, kSoon);
  EXPECT_EQ(rank.executor().current_instruction().Describe(), "before the first step");
  const absl::Status status = rank.Train(result_);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("receive from rank 0"), HasSubstr("activations of chunk 0, micro-batch 0")));
  EXPECT_THAT(rank.executor().current_instruction().Describe(),
              AllOf(HasSubstr("step 8, instruction 1 of "), HasSubstr("receive_forward(chunk 0, micro-batch 0)")));
  EXPECT_THAT(rank.executor().losses(), IsEmpty());
  EXPECT_TRUE(IsClosed(one_));
}

// Its receives are posted from the program's beginning on; behind an error they take nothing more.
TEST_F(TwoRanksTest, AnErrorOfItsOwnTakesBackWhatWasPosted) {
  const std::vector<std::byte> wrong(64);
  const CommRequest first = Post(zero_.Send(wrong.data(), 64, 1, Tag(Operation::kReceiveForward)));
  ExecutingRank rank(work_, one_, kHang);
  const absl::Status status = rank.Train(result_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("activations of chunk 0, micro-batch 0: expected step 8"));
  EXPECT_TRUE(IsDone(zero_, first));
  EXPECT_FALSE(IsDone(zero_, Post(zero_.Send(wrong.data(), 64, 1, Tag(Operation::kReceiveForward)))));
  EXPECT_TRUE(IsClosed(one_));
}

TEST_F(TwoRanksTest, DoesNotReturnBeforeItsSendsAreReceived) {
  for (const bool is_received : {true, false}) {
    InProcessWorld world(2);
    std::vector<std::byte> place(1 << 16);
    const auto capacity = std::ssize(place);
    ExecutingRank rank(work_, world.communicator(0), is_received ? kHang : kSoon);
    CommRequest received;
    if (is_received) {
      received = Post(world.communicator(1).Receive(place.data(), capacity, 0, Tag(Operation::kReceiveForward)));
    }
    const absl::Status status = rank.Evaluate(1, result_);
    if (is_received) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_TRUE(IsDone(world.communicator(1), received));
      EXPECT_FALSE(IsClosed(world.communicator(0)));
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("activations of chunk 0, micro-batch 0"));
    }
    EXPECT_THAT(rank.executor().losses(), IsEmpty()) << "the head is the other rank's";
  }
}

// Blocks its rank's first backward of a sublayer below `end` until another rank is at an instruction, and a little
// longer.
class BlockedBackward final : public DepthObserver {
 public:
  BlockedBackward(int32_t end, const CurrentInstruction& other, std::string instruction)
      : end_(end), other_(other), instruction_(std::move(instruction)) {}
  void Observe(const Stream& /*stream*/, int32_t /*micro_batch*/, const DepthObservation& seen) override {
    if (!IsBackward(seen.tensor) || seen.sublayer >= end_ || std::exchange(has_blocked_, true)) return;
    while (!absl::StrContains(other_.Describe(), instruction_)) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

 private:
  const int32_t end_;
  const CurrentInstruction& other_;
  const std::string instruction_;
  bool has_blocked_ = false;
};

// Rank 0 waits for the first gradient, and its device ends nothing.
TEST_F(TwoRanksTest, ADeviceThatHangsIsNamedAtTheDeadline) {
  EmulatedDevice device;
  const auto gate = std::make_shared<HeldWork>();
  {
    Work padded({}, 2);
    for (PackedBatch& batch : padded.batches) {
      const PackedBatch whole = batch;
      PadToBuckets(whole, padded.pipeline.capacity, padded.pipeline.bucket_rows, batch);
    }
    ExecutingRank rank(padded, zero_, kSoon, nullptr, Stream::On(device, 1));
    device.emulated_queues().DelayMain(gate);
    const absl::Status status = rank.Train(result_);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0: its device has not finished within 20ms: kernels"));
    EXPECT_THAT(rank.executor().current_instruction().Describe(),
                HasSubstr("receive_backward(chunk 0, micro-batch 0)"));
    gate->done = true;
  }
}

// A second forward is part of a backward's instruction, and the wait for a save part of the optimizer's.
TEST(ProgramExecutorTest, CountsNoTimeTwice) {
  constexpr int32_t kWidth = 64;  // the second forwards last longer than what lies between the instructions
  const Work work({.recompute_every = 2}, 1, 0, kWidth);
  InProcessWorld world(1);
  ExecutingRank rank(work, world.communicator(0), kHang);
  rank.Initialize();
  StepResult result;
  const Stopwatch watch;
  const absl::Status status = rank.Train(result, nullptr, [] { absl::SleepFor(kSoon); });
  const double seconds = watch.Seconds();
  ASSERT_TRUE(status.ok()) << status;
  const StageTimes& times = result.times;
  EXPECT_GT(times.recompute_seconds, 0);
  EXPECT_GE(times.checkpoint_seconds, absl::ToDoubleSeconds(kSoon));
  EXPECT_LE(times.forward_seconds + times.recompute_seconds + times.backward_seconds + times.wait_seconds +
                times.communication_seconds + times.optimizer_seconds + times.checkpoint_seconds,
            seconds);
}

// Two stages of two chunks, two replicas. Rank 0 has computed its upper chunk's gradients and waits for stage 1 before
// its lower chunk, which receives nothing else. Only then does the other replica (rank 1) send the same gradients, and
// only after that does stage 1 (rank 2) go on. Rank 0's trace shows which came first: the sum or the end of the wait.
TEST(ProgramExecutorTest, AddsGradientsOfReplicasWhileItWaitsForAMessage) {
  const PipelineOptions options{.replicas = 2, .chunks = 2, .schedule = ScheduleKind::kInterleaved1F1B};
  constexpr int kRanks = 4;
  constexpr int32_t kWidth = 256;  // the upper chunk's gradients fill a round
  bool added_first = false;
  for (int attempt = 0; attempt < 20 && !added_first; ++attempt) {  // rank 0 may be late on a busy machine
    InProcessWorld world(kRanks);
    std::vector<std::unique_ptr<Work>> work;
    std::vector<std::unique_ptr<ExecutingRank>> ranks;
    for (int r = 0; r < kRanks; ++r) {
      work.push_back(std::make_unique<Work>(options, kRanks, r, kWidth));
      ranks.push_back(std::make_unique<ExecutingRank>(*work[r], world.communicator(r), kHang));
      ranks[r]->trace().Start(kStep);
    }
    const GridShape& grid = work[0]->pipeline.grid;
    ASSERT_EQ(grid.StageOf(1), 0);
    ASSERT_EQ(grid.ReplicaOf(2), 0);
    BlockedBackward replica(std::numeric_limits<int32_t>::max(), ranks[0]->executor().current_instruction(),
                            "receive_backward(chunk 0");
    BlockedBackward next_stage(work[2]->pipeline.last_sublayer(1, 0), ranks[1]->executor().current_instruction(),
                               "reduce_over_replicas");
    DepthObserver* const observers[kRanks] = {nullptr, &replica, &next_stage, nullptr};
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        StepResult result;
        const absl::Status status = ranks[r]->Train(result, observers[r]);
        EXPECT_TRUE(status.ok()) << status;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const TraceEvent& event : ranks[0]->trace().events()) {
      added_first = event.kind == TraceKind::kReplicaGradients;
      if (added_first || (event.kind == TraceKind::kReceive && event.chunk == 0)) break;
    }
  }
  EXPECT_TRUE(added_first);
}

}  // namespace
}  // namespace hadal::testing

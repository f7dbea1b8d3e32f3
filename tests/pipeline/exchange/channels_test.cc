// All channels of all ranks: a message that is passed on by every global chunk must meet them in the order of depth.
#include "layers/parameter_store.h"
#include "pipeline/exchange/channel.h"

#include "gtest/gtest.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

constexpr absl::Duration kHang = absl::Seconds(30);
constexpr int kMicroBatches = 6;
constexpr int64_t kWidth = 16;

// A language model: one edge a border.
ModelPlan Plan() { return TinyPlan({.encoder_layers = 0, .decoder_layers = 4, .d_model = kWidth, .d_ff = 16}); }

// A rank that computes nothing but the number of the global chunks passed: base 10, each chunk one digit.
class Rank {
 public:
  Rank(const PipelineLayout& pipeline, int rank, Channels& channels)
      : shape_(pipeline.shape), rank_(rank), channels_(channels) {
    for (int32_t m = 0; m < shape_.micro_batches; ++m) {
      batches_.emplace_back().micro_batch = m;
      batches_[m].target.resize(2);
    }
    forward_.assign(shape_.chunks, std::vector<float>(shape_.micro_batches));
    backward_ = forward_;
  }

  absl::Status Execute(const Instruction& instruction) {
    const auto [operation, chunk, micro_batch] = instruction;
    Channels::OfChunk& channels = channels_.chunk(chunk);
    const PackedBatch& batch = batches_[micro_batch];
    float& forward = forward_[chunk][micro_batch];
    float& backward = backward_[chunk][micro_batch];
    const auto digit = static_cast<float>(shape_.GlobalChunk(rank_, chunk) + 1);
    switch (operation) {
      case Operation::kReceiveForward:
        return Receive(*channels.receive_forward, batch, forward);
      case Operation::kReceiveBackward:
        return Receive(*channels.receive_backward, batch, backward);
      case Operation::kForward:
        forward = forward * 10 + digit;
        if (shape_.IsLast(rank_, chunk)) last_.push_back(forward);
        return absl::OkStatus();
      case Operation::kBackward:
      case Operation::kBackwardInput:
        backward = backward * 10 + digit;
        if (shape_.IsFirst(rank_, chunk)) first_.push_back(backward);
        return absl::OkStatus();
      case Operation::kSendForward:
        return Send(*channels.send_forward, batch, forward);
      case Operation::kSendBackward:
        return Send(*channels.send_backward, batch, backward);
      default:
        return absl::OkStatus();
    }
  }

  // What came out at the depth's end, and of the backward at its beginning, in order.
  std::vector<float> last_, first_;

 private:
  static absl::Status Receive(ReceiveChannel& channel, const PackedBatch& batch, float& value) {
    HADAL_RETURN_IF_ERROR(channel.Receive(Stream::Cpu(1), batch, /*step=*/0, kHang));
    value = channel.Front(batch)[0].floats().data[0];
    return channel.Release();
  }
  static absl::Status Send(SendChannel& channel, const PackedBatch& batch, float value) {
    const std::vector<float> values(2 * kWidth, value);
    const ConstAnyMatrix edge[] = {ConstMatrix(values.data(), 2, kWidth)};
    return channel.Send(Stream::Cpu(1), batch, /*step=*/0, edge, kHang);
  }

  const ScheduleShape shape_;
  const int rank_;
  Channels& channels_;
  std::vector<PackedBatch> batches_;
  std::vector<std::vector<float>> forward_, backward_;  // [chunks][micro-batches]
};

void RunPrograms(const PipelineOptions& options, int ranks) {
  if (::testing::Test::HasFailure()) return;  // each more would wait for its deadline
  const ModelPlan plan = Plan();
  const BatchOptions batch{.micro_batches = kMicroBatches, .source_tokens = 8, .target_tokens = 8};
  const absl::StatusOr<PipelineLayout> pipeline = MakePipelineLayout(plan, batch, options, ranks);
  float down = 0, up = 0;
  for (int g = 0; g < pipeline->shape.global_chunks(); ++g) {
    down = down * 10 + static_cast<float>(g + 1);
    up = up * 10 + static_cast<float>(pipeline->shape.global_chunks() - g);
  }
  InProcessWorld world(ranks);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    const int rank = communicator.rank();
    ArenaLayout layout;
    Channels channels(plan, *pipeline, rank, Purpose::kTraining, layout);
    HADAL_ASSIGN_OR_RETURN(const Arena arena, Arena::Allocate(layout));
    channels.Bind(arena, communicator);
    Rank relay(*pipeline, rank, channels);
    const RankProgram& program = pipeline->programs[rank];
    HADAL_RETURN_IF_ERROR(channels.Begin(program));
    for (const Instruction& instruction : program) HADAL_RETURN_IF_ERROR(relay.Execute(instruction));
    HADAL_RETURN_IF_ERROR(channels.Drain(kHang));
    const std::vector<float> all_down(rank == ranks - 1 ? kMicroBatches : 0, down);
    const std::vector<float> all_up(rank == 0 ? kMicroBatches : 0, up);
    EXPECT_EQ(relay.last_, all_down) << "rank " << rank;
    EXPECT_EQ(relay.first_, all_up) << "rank " << rank;
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(Channels, AMessagePassesTheChunksInTheOrderOfDepthAndItsGradientBack) {
  for (const int sends : {1, 2}) {
    RunPrograms({.outstanding_sends = sends}, 1);
    RunPrograms({.outstanding_sends = sends}, 4);
    RunPrograms({.schedule = ScheduleKind::kGpipe, .outstanding_sends = sends}, 3);
    RunPrograms({.chunks = 2, .schedule = ScheduleKind::kInterleaved1F1B, .outstanding_sends = sends}, 3);
    RunPrograms({.chunks = 3, .schedule = ScheduleKind::kInterleaved1F1B, .outstanding_sends = sends}, 1);
  }
}

TEST(Channels, OnlyTrainingHasTheWayBack) {
  const ModelPlan plan = Plan();
  const PipelineLayout pipeline =
      MakePipelineLayout(plan, {.micro_batches = 1, .source_tokens = 8, .target_tokens = 8}, {}, 3).value();
  int64_t bytes[2];
  for (const Purpose purpose : {Purpose::kInference, Purpose::kTraining}) {
    const bool trains = purpose == Purpose::kTraining;
    ArenaLayout layout;
    Channels channels(plan, pipeline, /*rank=*/1, purpose, layout);
    const Channels::OfChunk& middle = channels.chunk(0);
    EXPECT_TRUE(middle.receive_forward && middle.send_forward);
    EXPECT_EQ(middle.receive_backward.has_value(), trains);
    EXPECT_EQ(middle.send_backward.has_value(), trains);
    bytes[trains ? 1 : 0] = layout.total_bytes();
  }
  EXPECT_EQ(bytes[1], 2 * bytes[0]);
}

}  // namespace
}  // namespace hadal

// Both ends of a channel on one rank, which sends to itself: nothing but the calls decides what is under way.
// In-process transfers are true rendezvous: a send is complete only once its receive has been posted.
#include "pipeline/exchange/channel.h"

#include <future>

#include "gmock/gmock.h"
#include "runtime/comm/in_process_communicator.h"
#include "tests/support/emulated_device.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kHang = absl::Seconds(30);
constexpr absl::Duration kSoon = absl::Milliseconds(10);
constexpr int64_t kWidth = 3;

// The stream in two entries of source rows, and the encoder output's gradient in target rows.
ChannelSpec Spec(int buffers) {
  return {.number = 4,
          .peer = 0,
          .name = "activations of chunk 1",
          .edges = {{.rows = Stack::kEncoder, .entries = 2},
                    {.rows = Stack::kDecoder, .values = Storage::kBFloat16, .gradient = Storage::kFloat32}},
          .capacity = {.source_rows = 5, .target_rows = 7, .max_length = 7},
          .width = kWidth,
          .buffers = buffers};
}

PackedBatch Batch(int32_t micro_batch, int64_t source_rows = 2, int64_t target_rows = 3) {
  PackedBatch batch;
  batch.micro_batch = micro_batch;
  batch.source.resize(source_rows);
  batch.target.resize(target_rows);
  return batch;
}

// The edges' elements: of fp32, and of bf16 as bits.
struct Contents {
  std::vector<float> first;
  std::vector<uint16_t> second;
  bool operator==(const Contents&) const = default;
};

Contents ContentsOf(const PackedBatch& batch) {
  Contents contents;
  for (int64_t i = 0; i < 2 * batch.source_rows() * kWidth; ++i) {
    contents.first.push_back(static_cast<float>(100 * batch.micro_batch + i));
  }
  for (int64_t i = 0; i < batch.target_rows() * kWidth; ++i) {
    contents.second.push_back(static_cast<uint16_t>(5000 + 100 * batch.micro_batch + i));
  }
  return contents;
}

class ChannelTest : public ::testing::Test {
 protected:
  void Make(int buffers) {
    ArenaLayout layout;
    send_.emplace(Spec(buffers), layout);
    receive_.emplace(Spec(buffers), layout);
    arena_ = Arena::Allocate(layout).value();
    send_->Bind(arena_, world_.communicator(0));
    receive_->Bind(arena_, world_.communicator(0));
  }

  // Copied at the call: what is sent from is overwritten at once.
  absl::Status Send(const PackedBatch& batch, int64_t step = 8, absl::Duration timeout = kHang) {
    Contents contents = ContentsOf(batch);
    const ConstAnyMatrix edges[] = {ConstMatrix(contents.first.data(), 2 * batch.source_rows(), kWidth),
                                    {contents.second.data(), batch.target_rows(), kWidth, Storage::kBFloat16}};
    const absl::Status status = send_->Send(stream_, batch, step, edges, timeout);
    contents.first.assign(contents.first.size(), -1);
    contents.second.assign(contents.second.size(), 0);
    return status;
  }
  absl::Status Receive(const PackedBatch& batch, int64_t step = 8, absl::Duration timeout = kHang) {
    return receive_->Receive(stream_, batch, step, timeout);
  }
  Contents Front(const PackedBatch& batch) {
    const EdgeViews views = receive_->Front(batch);
    EXPECT_EQ(views.size(), 2u);
    EXPECT_EQ(views[0].rows, 2 * batch.source_rows());
    EXPECT_EQ(views[1].rows, batch.target_rows());
    EXPECT_EQ(views[1].storage, Storage::kBFloat16);
    const float* const first = views[0].floats().data;
    const auto* const second = static_cast<const uint16_t*>(views[1].data);
    return {{first, first + views[0].rows * kWidth}, {second, second + views[1].rows * kWidth}};
  }

  const Stream stream_ = Stream::Cpu(1);
  Arena arena_;
  InProcessWorld world_{1};
  std::optional<SendChannel> send_;
  std::optional<ReceiveChannel> receive_;
};

TEST_F(ChannelTest, ASendWaitsOnlyWhenAllBuffersAreUnderWay) {
  for (const int buffers : {1, 2, 3}) {
    InProcessWorld world(1);
    Make(buffers);
    send_->Bind(arena_, world.communicator(0));
    for (int m = 0; m < buffers; ++m) EXPECT_TRUE(Send(Batch(m)).ok()) << m << " of " << buffers;
    const absl::Status status = Send(Batch(buffers), 8, kSoon);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << buffers;
    EXPECT_THAT(std::string(status.message()), HasSubstr("activations of chunk 1, micro-batch 0")) << "the oldest";
  }
}

TEST_F(ChannelTest, AReceiveWaitsNoLongerThanItsTimeout) {
  Make(1);
  InProcessWorld world(2);
  std::promise<void> returned;
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    if (communicator.rank() == 0) {  // sends nothing, and ends a wait that would not end
      const bool ended = returned.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready;
      return ended ? absl::OkStatus() : absl::InternalError("a receive waits for ever");
    }
    receive_->Bind(arena_, communicator);
    EXPECT_TRUE(receive_->Begin(1).ok());
    const absl::Status received = Receive(Batch(0), 8, kSoon);
    returned.set_value();
    EXPECT_EQ(received.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(received.message()), HasSubstr("activations of chunk 1, micro-batch 0"));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// Each message at its own size, the largest at capacity.
TEST_F(ChannelTest, MessagesComeInOrderAsTheyWereSent) {
  Make(2);
  const std::vector<PackedBatch> batches = {Batch(0), Batch(1, 5, 7), Batch(2, 0, 1), Batch(3, 1, 0), Batch(4)};
  ASSERT_TRUE(receive_->Begin(std::ssize(batches)).ok());
  for (const PackedBatch& batch : batches) {
    ASSERT_TRUE(Send(batch).ok());
    ASSERT_TRUE(Receive(batch).ok());
    EXPECT_EQ(Front(batch), ContentsOf(batch)) << batch.micro_batch;
    ASSERT_TRUE(receive_->Release().ok());
  }
  EXPECT_TRUE(send_->Drain(kHang).ok());
}

// 1F1B holds several inputs of a chunk: the oldest is in front until it is released, and nothing that comes touches it.
TEST_F(ChannelTest, AnInputStaysInItsBufferUntilItIsReleased) {
  Make(2);
  ASSERT_TRUE(receive_->Begin(4).ok());
  for (int m = 0; m < 4; ++m) ASSERT_TRUE(Send(Batch(m)).ok()) << "two received, two under way";
  for (int m = 0; m < 2; ++m) ASSERT_TRUE(Receive(Batch(m)).ok());
  for (int m = 0; m < 4; ++m) {
    EXPECT_EQ(Front(Batch(m)), ContentsOf(Batch(m))) << m;
    ASSERT_TRUE(receive_->Release().ok());
    if (m >= 2) continue;
    ASSERT_TRUE(Receive(Batch(m + 2)).ok());
  }
}

// What the last program received is no message of the next one.
TEST_F(ChannelTest, AProgramPostsNoMoreReceivesThanItHas) {
  Make(3);
  for (int program = 0; program < 4; ++program) {
    ASSERT_TRUE(receive_->Begin(2).ok());
    for (int m = 0; m < 2; ++m) {
      ASSERT_TRUE(Send(Batch(m), program).ok());
      ASSERT_TRUE(Receive(Batch(m), program).ok());
      EXPECT_EQ(Front(Batch(m)), ContentsOf(Batch(m)));
      ASSERT_TRUE(receive_->Release().ok());
    }
    ASSERT_TRUE(send_->Drain(kHang).ok());
  }
  ASSERT_TRUE(Send(Batch(0), 4).ok());
  EXPECT_EQ(send_->Drain(kSoon).code(), absl::StatusCode::kDeadlineExceeded) << "nobody has asked for it";
}

TEST_F(ChannelTest, AMessageOfAnotherStepMicroBatchOrShapeIsAnError) {
  struct Case {
    PackedBatch sent;
    int64_t step;
  };
  for (const Case& wrong : {Case{Batch(1), 8}, Case{Batch(0), 9}, Case{Batch(0, 3, 3), 8}, Case{Batch(0, 2, 4), 8}}) {
    Make(1);
    ASSERT_TRUE(receive_->Begin(1).ok());
    ASSERT_TRUE(Send(wrong.sent, wrong.step).ok());
    const absl::Status status = Receive(Batch(0));
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("activations of chunk 1, micro-batch 0: expected step 9 with 2 source and 3 target"),
                      HasSubstr("same configuration")));
  }
}

// All messages are there when they are asked for: with headers of step 9, but for one.
class AtHand final : public Communicator {
 public:
  AtHand(Device& device, int64_t bytes, int64_t wrong) : device_(device), bytes_(bytes), wrong_(wrong) {}

  int rank() const override { return 0; }
  int size() const override { return 2; }
  absl::StatusOr<CommRequest> Send(const void* /*data*/, int64_t /*bytes*/, int /*peer*/, int /*tag*/) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<CommRequest> Receive(void* data, int64_t /*capacity_bytes*/, int peer, int tag) override {
    const MessageHeader header{
        .step = received_ == wrong_ ? 9 : 8, .micro_batch = received_, .source_rows = 2, .target_rows = 3};
    device_.CopyIn(data, &header, sizeof(header));
    return CommRequest{.id = received_++, .peer = peer, .tag = tag};
  }
  absl::StatusOr<bool> Test(CommRequest& request, int64_t* received_bytes) override {
    request.id = CommRequest::kNone;
    *received_bytes = bytes_;
    return true;
  }
  void Progress() override {}
  void Abort(int /*exit_code*/) override {}

 private:
  Device& device_;
  const int64_t bytes_, wrong_;
  int64_t received_ = 0;
};

// A wrong header is found by CheckHeaders, or when the next message has its place.
TEST(DeviceChannelTest, HeadersAreComparedWithoutAWaitForTheDevice) {
  testing::EmulatedDevice device;
  const Stream stream = Stream::On(device, 1);
  constexpr int64_t kBytes = 64 + 2 * 2 * kWidth * 4 + 3 * kWidth * 2;
  for (const int64_t wrong : {0, 1, 2, -1}) {
    ChannelSpec spec = Spec(2);
    spec.on_device = true;
    ArenaLayout layout(DeviceKind::kCuda);
    ReceiveChannel channel(spec, layout);
    const Arena arena = Arena::Allocate(layout, &device).value();
    AtHand at_hand(device, kBytes, wrong);
    channel.Bind(arena, at_hand);
    ASSERT_TRUE(channel.Begin(3).ok());
    const auto receive = [&](int32_t m) {
      const int64_t drains = device.drains();
      const absl::Status status = channel.Receive(stream, Batch(m), 8, kHang);
      EXPECT_EQ(device.drains(), drains);
      return status;
    };
    EXPECT_TRUE(receive(0).ok());
    EXPECT_TRUE(receive(1).ok());
    ASSERT_TRUE(channel.Release().ok());
    device.Synchronize();  // as a transport does before a buffer is filled again
    absl::Status status = receive(2);
    EXPECT_EQ(status.ok(), wrong != 0);
    if (status.ok()) {
      device.Synchronize();
      status = channel.CheckHeaders();
    }
    EXPECT_EQ(status.ok(), wrong < 0);
    if (wrong < 0) continue;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("micro-batch ", wrong,
                                       ": expected step 9 with 2 source and 3 target rows, but "
                                       "rank 0 sent step 10")));
  }
}

// A trace's look at what has come takes nothing away and records each message once.
TEST_F(ChannelTest, PollRecordsAnArrivalOnceAndTheMessageIsReceivedAllTheSame) {
  Make(2);
  const std::vector<PackedBatch> batches = {Batch(0), Batch(1)};
  TraceBuffer trace;
  trace.Reserve(10);
  trace.Start(8);
  ASSERT_TRUE(receive_->Begin(2).ok());
  ASSERT_TRUE(receive_->Poll(batches, trace).ok());
  EXPECT_EQ(trace.events().size(), 0u) << "nothing was sent";
  for (int m = 0; m < 2; ++m) {
    ASSERT_TRUE(Send(batches[m]).ok());
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(receive_->Poll(batches, trace).ok());
    ASSERT_EQ(std::ssize(trace.events()), m + 1);
    EXPECT_EQ(trace.events()[m].micro_batch, m);
    EXPECT_EQ(trace.events()[m].channel, 4);
    ASSERT_TRUE(Receive(batches[m]).ok());
    EXPECT_EQ(Front(batches[m]), ContentsOf(batches[m]));
    ASSERT_TRUE(receive_->Release().ok());
  }
}

// 64 bytes of header; 2 entries · 5 rows · 3 of fp32; 7 rows · 3 of bf16, as a gradient of fp32; filled up to 64.
TEST(ChannelSpec, AMessageHasRoomForItsHeaderAndItsEdgesAsTheyTravel) {
  ChannelSpec spec = Spec(1);
  EXPECT_EQ(spec.message_bytes(), (64 + 120 + 42 + 63) / 64 * 64);
  spec.gradients = true;
  EXPECT_EQ(spec.message_bytes(), (64 + 120 + 84 + 63) / 64 * 64);
}

}  // namespace
}  // namespace hadal

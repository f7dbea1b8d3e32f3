// A rank that ends with an error of its own in the middle of a program, while its peers know of nothing: what it has
// posted is taken back before its buffers go, so that what a peer sends or takes later meets nothing.
#include <barrier>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "layers/parameter_store.h"
#include "pipeline/decode/decoder.h"
#include "pipeline/engine/engine.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/data/sampling_order.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/runtime/comm/transfer_buffer.h"
#include "tests/support/emulated_nccl.h"
#include "tests/support/step_batches.h"

namespace hadal::testing {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kHang = absl::Seconds(30);
constexpr int kVocabulary = 50;
constexpr int kDecodeCommandTag = 30003;

// Two stages: the second is what is tested, the first is played by hand.
struct Pipeline {
  explicit Pipeline(bool device_transfers = false) {
    absl::StatusOr<PipelineLayout> made =
        MakePipelineLayout(plan, batch, {}, 2, /*rank=*/0, {.device_transfers = device_transfers});
    HADAL_CHECK(made.ok());
    pipeline = *std::move(made);
    tag = ChannelOf(pipeline.shape, 1, {Operation::kReceiveForward, 0, 0}).number;
  }

  const ModelPlan plan =
      ModelPlan::Make(SmallModel(ResidualMethod::kDeepNorm, {.d_model = 16, .vocabulary = kVocabulary}));
  const BatchOptions batch{.micro_batches = 2, .source_tokens = 32, .target_tokens = 32};
  PipelineLayout pipeline;
  int tag = 0;  // of what the second stage receives
};

// The first message is not what the step expects; receives for both are posted when it starts.
absl::Status StepBesideABadPeer(const Pipeline& p, const Stream& stream, Communicator& world,
                                Communicator* device_communicator) {
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                         Engine::Create({.plan = p.plan,
                                         .pipeline = p.pipeline,
                                         .stream = stream,
                                         .purpose = Purpose::kTraining,
                                         .world = world,
                                         .timeout = kHang,
                                         .device_communicator = device_communicator}));
  const Corpus corpus = RandomCorpus(40, 10, kVocabulary, 3);
  HADAL_ASSIGN_OR_RETURN(SamplingOrder order,
                         SamplingOrder::Create(corpus, {.seed = 1, .capacity = {32, 32}, .micro_batches_per_step = 2}));
  const StepBatches batches = NextStep(order);
  return engine->TrainingStep(batches.micro_batches, {.seed = 1, .step = 5, .gradient_scale = 1}, {}).status();
}

void ExpectOwnError(const absl::Status& status, const std::string& text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

// Whether it stays undone for a while.
bool MeetsNothing(Communicator& communicator, CommRequest request) {
  for (int i = 0; i < 200; ++i) {
    const absl::StatusOr<bool> done = communicator.Test(request);
    if (!done.ok() || *done) return false;
    absl::SleepFor(absl::Microseconds(50));
  }
  return true;
}

// The second message is offered to a receive whose arena is gone. Within the host: program_executor_test.
TEST(OwnErrorTest, NcclStartsNothingMore) {
  const Pipeline p(/*device_transfers=*/true);
  EmulatedNccl nccl(5);
  std::barrier gone(2);
  std::atomic<bool> tried = false;
  InProcessWorld world(2);
  const absl::Status status = world.Run([&](Communicator& host) -> absl::Status {
    EmulatedDevice device(3 + host.rank());
    const std::unique_ptr<NcclLibrary> library = nccl.LibraryFor(device);
    const std::vector<TransferGroup> groups = {{.ranks = {0, 1}, .pairs = {{0, 1}}}};
    HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<NcclCommunicator> device_communicator,
                           NcclCommunicator::Create(*library, device, host, groups, kHang));
    const Stream stream = Stream::On(device, 1);
    if (host.rank() == 1) {
      ExpectOwnError(StepBesideABadPeer(p, stream, host, device_communicator.get()), "expected step 6");
      gone.arrive_and_wait();
      for (; !tried; absl::SleepFor(absl::Microseconds(50))) device_communicator->Progress();
      return absl::OkStatus();
    }
    const TransferBuffer wrong(stream, std::vector<int32_t>(16));
    HADAL_ASSIGN_OR_RETURN(CommRequest first, device_communicator->Send(wrong.data(), 64, 1, p.tag));
    HADAL_RETURN_IF_ERROR(device_communicator->Wait(first, absl::Now() + kHang, "the first message"));
    gone.arrive_and_wait();
    HADAL_ASSIGN_OR_RETURN(const CommRequest second, device_communicator->Send(wrong.data(), 64, 1, p.tag));
    EXPECT_TRUE(MeetsNothing(*device_communicator, second));
    tried = true;
    host.Abort(1);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// A decoder's sends lie in its arena too: here the searching rank's commands, which nobody has taken yet.
TEST(OwnErrorTest, ADecodersSendsAreGone) {
  const Pipeline p;
  std::barrier gone(2);
  InProcessWorld world(2);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    const Stream stream = Stream::Cpu(1);
    HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create({.plan = p.plan,
                                                                                 .pipeline = p.pipeline,
                                                                                 .stream = stream,
                                                                                 .purpose = Purpose::kInference,
                                                                                 .world = communicator,
                                                                                 .timeout = kHang}));
    HADAL_ASSIGN_OR_RETURN(std::unique_ptr<Decoder> decoder,
                           Decoder::Create(p.plan, p.pipeline, engine->stage().parameters(), stream, communicator,
                                           {.longest_source = 8, .sentences = 1}, kHang));
    if (communicator.rank() == 1) {
      const std::vector<std::vector<int32_t>> sources = {{5, 6, 7}};
      ExpectOwnError(decoder->Translate(sources, 1).status(), "bytes of the decoder's residual stream");
      decoder.reset();
      gone.arrive_and_wait();
      return absl::OkStatus();
    }
    const int32_t wrong = 0;
    HADAL_ASSIGN_OR_RETURN(CommRequest sent, communicator.Send(&wrong, sizeof(wrong), 1, p.tag));
    HADAL_RETURN_IF_ERROR(communicator.Wait(sent, absl::Now() + kHang, "a short stream"));
    gone.arrive_and_wait();
    std::vector<std::byte> command(1 << 16);
    HADAL_ASSIGN_OR_RETURN(const CommRequest taken,
                           communicator.Receive(command.data(), std::ssize(command), 1, kDecodeCommandTag));
    EXPECT_TRUE(MeetsNothing(communicator, taken));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace hadal::testing

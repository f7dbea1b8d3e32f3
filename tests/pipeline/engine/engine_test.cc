// What the engine's one loop makes of a peer that breaks its word, what runs beside a step's last backward, and what
// beside its update.
#include "pipeline/engine/engine.h"
#include "layers/parameter_store.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/comm/message_tags.h"
#include "runtime/data/sampling_order.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/emulated_device.h"
#include "tests/support/step_batches.h"
#include "tests/support/training_engine.h"

namespace hadal::testing {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kHang = absl::Seconds(30);
constexpr int kReadyTag = 30000;

// Stage 0 of two; in place of the other stage somebody who sends gradients that are too long, before anything has been
// asked for.
absl::Status TracedStepBesideABadPeer() {
  const ModelPlan plan = ModelPlan::Make(SmallModel(ResidualMethod::kDeepNorm, {.d_model = 16, .vocabulary = 50}));
  const BatchOptions batch{.micro_batches = 2, .source_tokens = 32, .target_tokens = 32};
  HADAL_ASSIGN_OR_RETURN(const PipelineLayout pipeline, MakePipelineLayout(plan, batch, {}, 2));
  const int tag = ChannelOf(pipeline.shape, 0, {Operation::kReceiveBackward, 0, 0}).number;
  const Corpus corpus = RandomCorpus(40, 10, 50, 3);
  HADAL_ASSIGN_OR_RETURN(SamplingOrder order,
                         SamplingOrder::Create(corpus, {.seed = 1, .capacity = {32, 32}, .micro_batches_per_step = 2}));
  absl::Status outcome;
  InProcessWorld world(2);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    char ready = 0;
    if (communicator.rank() == 1) {
      static const std::vector<std::byte> long_message(int64_t{1} << 20);
      HADAL_RETURN_IF_ERROR(communicator.Send(long_message.data(), std::ssize(long_message), /*peer=*/0, tag).status());
      HADAL_ASSIGN_OR_RETURN(CommRequest word, communicator.Send(&ready, 1, /*peer=*/0, kReadyTag));
      return communicator.Wait(word, absl::Now() + kHang, "word");
    }
    HADAL_ASSIGN_OR_RETURN(const auto engine, TrainingEngine(plan, pipeline, communicator));
    HADAL_ASSIGN_OR_RETURN(CommRequest word, communicator.Receive(&ready, 1, /*peer=*/1, kReadyTag));
    HADAL_RETURN_IF_ERROR(communicator.Wait(word, absl::Now() + kHang, "word"));
    engine->trace().Reserve(1000);
    engine->trace().Start(0);
    const StepBatches batches = NextStep(order);
    outcome = engine->TrainingStep(batches.micro_batches, {.seed = 1, .gradient_scale = 1}, {}).status();
    return absl::OkStatus();
  });
  return status.ok() ? outcome : status;
}

// Found between two sublayers of the forward: the step must end with it, not with the next instruction's discovery that
// communication has ended.
TEST(Engine, AnErrorFoundBesideTheComputationIsTheStepsError) {
  const absl::Status status = TracedStepBesideABadPeer();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("longer than the receive"));
  EXPECT_EQ(status.message().find("earlier error"), std::string::npos) << status;
}

// Notes what a device has been given when its replica's first updated weights leave.
class WatchedWorld final : public Communicator {
 public:
  WatchedWorld(Communicator& world, const Device& device) : world_(world), device_(device) {}

  // −1: nothing has left.
  int64_t launches_before_weights() const { return launches_before_weights_; }
  void Restart() { launches_before_weights_ = -1; }

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  absl::StatusOr<CommRequest> Send(const void* data, int64_t bytes, int peer, int tag) override {
    return world_.Send(data, bytes, peer, tag);
  }
  absl::StatusOr<CommRequest> Receive(void* data, int64_t capacity_bytes, int peer, int tag) override {
    return world_.Receive(data, capacity_bytes, peer, tag);
  }
  absl::Status Exchange(std::span<const ExchangePart> parts, int tag, DeviceQueues::Event after,
                        std::vector<CommRequest>& requests) override {
    if (tag == kReplicaResultTag && launches_before_weights_ < 0) launches_before_weights_ = device_.launches();
    return world_.Exchange(parts, tag, after, requests);
  }
  absl::StatusOr<bool> Test(CommRequest& request, int64_t* received_bytes) override {
    return world_.Test(request, received_bytes);
  }
  void Progress() override { world_.Progress(); }
  void Abort(int exit_code) override { world_.Abort(exit_code); }

 private:
  Communicator& world_;
  const Device& device_;
  int64_t launches_before_weights_ = -1;
};

// What one replica's trace says of a step: when its last backward or weight half ended, and which of its own sums
// could begin before; and how many kernels updated weights after the first had left.
struct Overlap {
  double backward_end = 0;
  int sums = 0, sums_before = 0;
  int64_t updates_behind = 0;
};

Overlap OverlapIn(std::span<const TraceEvent> events) {
  Overlap overlap;
  for (const TraceEvent& event : events) {
    const bool backward = event.kind == TraceKind::kBackward || event.kind == TraceKind::kBackwardWeight;
    if (backward) overlap.backward_end = event.end_seconds;
  }
  for (const TraceEvent& event : events) {
    if (event.kind != TraceKind::kReplicaGradients) continue;
    ++overlap.sums;
    overlap.sums_before += event.begin_seconds < overlap.backward_end;
  }
  return overlap;
}

struct OverlapCase {
  PipelineOptions pipeline;  // of two replicas
  int ranks = 2;
  int micro_batches = 2;
};

// Trains two replicas and looks at the two ranks of the last stage.
void ExpectOverlap(const OverlapCase& overlap_case) {
  // Several messages' worth of gradients.
  const ModelPlan plan = ModelPlan::Make(SmallModel(
      ResidualMethod::kDeepNorm, {.encoder_layers = 2, .decoder_layers = 2, .d_model = 128, .vocabulary = 50}));
  const int micro_batches = overlap_case.micro_batches, ranks = overlap_case.ranks;
  const BatchOptions batch{.micro_batches = micro_batches, .source_tokens = 8, .target_tokens = 8};
  Overlap overlaps[2];
  double launches[2];  // of a step that is launched one by one, and of one that is not
  InProcessWorld world(ranks);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    const int rank = communicator.rank();
    HADAL_ASSIGN_OR_RETURN(const PipelineLayout pipeline,
                           MakePipelineLayout(plan, batch, overlap_case.pipeline, ranks, rank));
    EmulatedDevice device(rank);
    WatchedWorld watched(communicator, device);
    const Stream stream = Stream::On(device, 1);
    HADAL_ASSIGN_OR_RETURN(const auto engine, TrainingEngine(plan, pipeline, watched, stream));
    const Corpus corpus = RandomCorpus(40, 1, 50, 3);
    HADAL_ASSIGN_OR_RETURN(
        SamplingOrder order,
        SamplingOrder::Create(corpus, {.seed = 1, .capacity = {8, 8}, .micro_batches_per_step = micro_batches}));
    engine->trace().Reserve(1000);
    for (int step = 0; step < 3; ++step) {
      if (step == 2) engine->trace().Start(step);
      const StepBatches batches = NextStep(order);
      watched.Restart();
      HADAL_ASSIGN_OR_RETURN(
          const StepResult result,
          engine->TrainingStep(batches.micro_batches, {.seed = 1, .step = step, .gradient_scale = 1}, {}));
      if (rank == 0 && step != 1) launches[step / 2] = result.times.launches;
    }
    if (rank < ranks - 2) return absl::OkStatus();
    Overlap& overlap = overlaps[ranks - 1 - rank] = OverlapIn(engine->trace().events());
    EXPECT_GE(watched.launches_before_weights(), 0);
    overlap.updates_behind = device.launches() - watched.launches_before_weights();
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_LT(launches[1], launches[0] / 2) << "no graphs";
  EXPECT_GT(overlaps[0].sums + overlaps[1].sums, 2);
  EXPECT_GT(overlaps[0].sums_before + overlaps[1].sums_before, 0) << "all gradients left at the end";
  for (const Overlap& overlap : overlaps) EXPECT_GT(overlap.updates_behind, 0) << "weights waited for the whole update";
}

// On a device that backward is a few graphs, and the gradients of the depth's end are on their way before those of its
// beginning are there. So are its weights before those of the beginning are updated.
TEST(Engine, GradientsLeaveBetweenTheGraphsOfAStepsLastBackward) { ExpectOverlap({.pipeline = {.replicas = 2}}); }

TEST(Engine, GradientsLeaveBetweenTheGraphsOfAStepsLastWeightHalf) {
  ExpectOverlap({.pipeline = {.replicas = 2, .schedule = ScheduleKind::k1F1BSplit}, .ranks = 4, .micro_batches = 4});
}

}  // namespace
}  // namespace hadal::testing

// Whole training runs whose ranks exchange what their devices work on by NCCL, emulated, beside the same through the
// host: the same bits for every layout and schedule; and how a run ends when NCCL fails.
#include <set>

#include "gmock/gmock.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/layout/slice_ownership.h"
#include "runtime/comm/message_tags.h"
#include "tests/integration/nccl_run_cases.h"
#include "tests/support/emulated_nccl.h"

namespace hadal::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

// What ranks say to each other about transfers is late, as it may be on a network: of `looks` for a word one finds it,
// about.
class LateWords final : public Communicator {
 public:
  LateWords(Communicator& world, uint64_t looks) : world_(world), looks_(looks), random_(11 + world.rank()) {}

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  absl::StatusOr<CommRequest> Send(const void* data, int64_t bytes, int peer, int tag) override {
    return world_.Send(data, bytes, peer, tag);
  }
  absl::StatusOr<CommRequest> Receive(void* data, int64_t capacity_bytes, int peer, int tag) override {
    return world_.Receive(data, capacity_bytes, peer, tag);
  }
  absl::StatusOr<bool> Test(CommRequest& request, int64_t* received_bytes) override {
    if (request.tag == kNcclControlTag && random_() % looks_ != 0) return false;
    return world_.Test(request, received_bytes);
  }
  void Progress() override { world_.Progress(); }
  void Abort(int exit_code) override { world_.Abort(exit_code); }

 private:
  Communicator& world_;
  const uint64_t looks_;
  std::mt19937_64 random_;
};

// NCCL for the ranks of one run, each with an emulated device.
class NcclOfRun {
 public:
  explicit NcclOfRun(uint64_t seed, uint64_t looks = 1) : nccl_(seed), looks_(looks) {}

  EmulatedNccl& nccl() { return nccl_; }
  RunSpec Over(RunSpec spec) {
    spec.connect_devices = [this](Device& device, Communicator& world, std::span<const TransferGroup> groups) {
      NcclLibrary* library = nullptr;
      LateWords* control = nullptr;
      {
        const std::lock_guard lock(mutex_);
        library = libraries_.emplace_back(nccl_.LibraryFor(static_cast<EmulatedDevice&>(device))).get();
        control = controls_.emplace_back(std::make_unique<LateWords>(world, looks_)).get();
      }
      auto made = NcclCommunicator::Create(*library, device, *control, groups, absl::Seconds(60));
      if (made.ok()) world.Carry(made->get());
      return made;
    };
    return spec;
  }

 private:
  EmulatedNccl nccl_;
  const uint64_t looks_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<NcclLibrary>> libraries_;
  std::vector<std::unique_ptr<LateWords>> controls_;
};

RunSpec OnDevices(RunSpec spec) {
  spec.make_device = [](int rank) { return std::make_unique<EmulatedDevice>(7 + rank); };
  return spec;
}

class NcclRunTest : public ::testing::TestWithParam<NcclRunCase> {};

TEST_P(NcclRunTest, HasTheHostsBits) {
  const RunSpec spec = OnDevices(GetParam().spec);
  const Corpus corpus = RandomCorpus(60, 7, kNcclRunVocabulary, 5);
  NcclOfRun run(3);
  RunSpec over_nccl = run.Over(spec);
  over_nccl.poison = true;  // nothing of a program is still under way when another one has the memory
  const RunOutcome by_nccl = Train(over_nccl, corpus);
  EXPECT_EQ(FirstDifference(Train(spec, corpus), by_nccl), "");
  const int warm_up = 2 * spec.ranks * (spec.ranks - 1) / 2;  // one a link, at most
  EXPECT_GT(run.nccl().messages(), warm_up + spec.steps * spec.batch.micro_batches);
}

INSTANTIATE_TEST_SUITE_P(TwoRanks, NcclRunTest, ::testing::ValuesIn(NcclRunCases(2)),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(EightRanks, NcclRunTest, ::testing::ValuesIn(NcclRunCases(8)),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(FourRanks, NcclRunTest, ::testing::ValuesIn(NcclRunCases(4)),
                         [](const auto& info) { return info.param.name; });

// Of 64 ranks each has three links and as few streams as any, and 32 hardware queues.
TEST(NcclGridTest, EightStagesOfEightReplicasHaveTheHostsBits) {
  RunSpec spec = OnDevices(SmallNcclRun(ResidualMethod::kDeepNorm));
  spec.pipeline.replicas = 8;
  spec.ranks = 8 * spec.pipeline.replicas;
  spec.batch.micro_batches = 2 * spec.pipeline.replicas;
  spec.steps = 1;
  const Corpus corpus = RandomCorpus(200, 7, kNcclRunVocabulary, 5);
  NcclOfRun run(3);
  EXPECT_EQ(FirstDifference(Train(spec, corpus), Train(run.Over(spec), corpus)), "");
}

// Five blocks of 2.
TEST(NcclGridTest, ReplicasBeyondABlockHaveTheHostsBits) {
  for (const bool sharded : {true, false}) {
    RunSpec spec = OnDevices(SmallNcclRun(ResidualMethod::kDeepNorm));
    spec.pipeline.shard_optimizer_state = sharded;
    spec.pipeline.replicas = spec.ranks = spec.batch.micro_batches = 10;
    spec.steps = 1;
    const Corpus corpus = RandomCorpus(200, 7, kNcclRunVocabulary, 5);
    NcclOfRun run(3);
    EXPECT_EQ(FirstDifference(Train(spec, corpus), Train(run.Over(spec), corpus)), "");
  }
}

// What the last of `spec.steps` steps takes of NCCL, over all ranks: calls, and groups of them (one is its own).
struct NcclUse {
  int calls = 0, groups = 0;
  bool operator==(const NcclUse&) const = default;
};
NcclUse UseOfAStep(RunSpec spec) {
  const Corpus corpus = RandomCorpus(60, 7, kNcclRunVocabulary, 5);
  NcclUse use;
  for (int before : {1, 0}) {
    NcclOfRun run(3);
    RunSpec shorter = OnDevices(spec);
    shorter.steps -= before;
    Train(run.Over(shorter), corpus);
    use = {run.nccl().calls() - use.calls, run.nccl().groups() - use.groups};
  }
  return use;
}
// Of messages by themselves.
NcclUse Singly(int messages) { return {2 * messages, 2 * messages}; }

class DrainedDevice final : public EmulatedDevice {
 public:
  DrainedDevice(uint64_t seed, int64_t& drains) : EmulatedDevice(seed), drains_(drains) {}
  ~DrainedDevice() override { drains_ = drains(); }

 private:
  int64_t& drains_;
};

// How often each rank's host waits for all that it has enqueued, in the last of two steps.
std::vector<int64_t> DrainsOfAStep(RunSpec spec) {
  const Corpus corpus = RandomCorpus(60, 7, kNcclRunVocabulary, 5);
  std::vector<int64_t> of_run[2];  // of one step, of two
  for (const int steps : {1, 2}) {
    std::vector<int64_t>& drains = of_run[steps - 1];
    drains.resize(spec.ranks);
    spec.steps = steps;
    spec.make_device = [&](int rank) { return std::make_unique<DrainedDevice>(7 + rank, drains[rank]); };
    NcclOfRun run(3);
    Train(run.Over(spec), corpus);
  }
  for (int rank = 0; rank < spec.ranks; ++rank) of_run[1][rank] -= of_run[0][rank];
  return of_run[1];
}

// The device has work while its host waits for messages, copies micro-batches, and reads losses.
TEST(NcclDrainTest, AStepHasAsManyForAnyNumberOfPhases) {
  RunSpec spec = SmallNcclRun(ResidualMethod::kDeepNorm);
  spec.model.encoder_layers = spec.model.decoder_layers = 1;
  spec.model.sharing = EmbeddingSharing::kNone;
  spec.ranks = 2;
  spec.batch.micro_batches = 2;
  const std::vector<int64_t> drains = DrainsOfAStep(spec);
  EXPECT_THAT(drains, Each(AllOf(Ge(1), Le(6))))
      << "gradients cleared, the computation's end, the tail's, the program's end";
  spec.pipeline.chunks = 2;
  spec.pipeline.schedule = ScheduleKind::kInterleavedZb;
  spec.batch.micro_batches = 4;
  EXPECT_EQ(DrainsOfAStep(spec), drains);
}

// A message is a send and a receive. Each micro-batch passes each cut once in both directions, with all that passes it
// in one message.
TEST(NcclCallsTest, AMicroBatchIsTwoMessagesACut) {
  RunSpec spec = SmallNcclRun(ResidualMethod::kDeepNorm);
  spec.model.sharing = EmbeddingSharing::kNone;
  spec.ranks = 4;
  spec.batch.micro_batches = 2;
  EXPECT_EQ(UseOfAStep(spec), Singly(spec.batch.micro_batches * 2 * 3));
  spec.ranks = spec.pipeline.chunks = 2;
  spec.pipeline.schedule = ScheduleKind::kInterleaved1F1B;
  EXPECT_EQ(UseOfAStep(spec), Singly(spec.batch.micro_batches * 2 * 3));
}

// A table's two uses on the other stage send a gradient each, and its weights come back once.
TEST(NcclCallsTest, ATiedTableIsThreeMessagesAStep) {
  RunSpec spec = SmallNcclRun(ResidualMethod::kDeepNorm);
  spec.model.sharing = EmbeddingSharing::kAll;
  spec.ranks = 2;
  spec.batch.micro_batches = 2;
  spec.pipeline.split = {2};
  EXPECT_EQ(UseOfAStep(spec), Singly(spec.batch.micro_batches * 2 + 3));
}

// What a step's exchanges between the replicas of all stages take. A bucket, which is all that an owner has of a round,
// travels twice between its owner and each other replica: a piece of the gradient there, and the result back. Each way
// a round is one group on each rank.
NcclUse OfReplicas(const RunSpec& spec) {
  const ModelPlan plan = ModelPlan::Make(spec.model);
  const PipelineLayout pipeline = MakePipelineLayout(plan, spec.batch, spec.pipeline, spec.ranks).value();
  const int replicas = spec.pipeline.replicas;
  NcclUse use;
  for (const std::vector<OwnedSlice>& slices : SlicesByStage(plan, pipeline)) {
    std::set<std::pair<int, int>> buckets;
    std::set<int> rounds;
    for (const OwnedSlice& slice : slices) {
      buckets.emplace(slice.round, slice.replica);
      rounds.insert(slice.round);
    }
    const int messages = 2 * static_cast<int>(buckets.size()) * (replicas - 1);
    use.calls += 2 * messages;
    use.groups += 2 * static_cast<int>(rounds.size()) * replicas;
  }
  return use;
}
NcclUse operator+(const NcclUse& a, const NcclUse& b) { return {a.calls + b.calls, a.groups + b.groups}; }

// Replicas exchange what belongs to the weights, whatever the number of micro-batches, all of a round in one group.
TEST(NcclCallsTest, ReplicasExchangeOnceAStepInOneGroupARound) {
  RunSpec spec = SmallNcclRun(ResidualMethod::kDeepNorm);
  spec.model.sharing = EmbeddingSharing::kNone;
  spec.ranks = spec.pipeline.replicas = 2;
  for (const int micro_batches : {2, 6}) {
    spec.batch.micro_batches = micro_batches;
    EXPECT_EQ(UseOfAStep(spec), OfReplicas(spec));
  }
  spec.model.d_ff = 1504;  // a multiple of 8: no gaps between sublayers
  spec.ranks = spec.pipeline.replicas = spec.batch.micro_batches = 3;
  const NcclUse expected = OfReplicas(spec);
  EXPECT_EQ(UseOfAStep(spec), expected);
  EXPECT_GT(expected.groups, 2 * 3) << "one round would not show what a round is";
  EXPECT_GT(expected.calls, 2 * expected.groups);
}

// Two stages of two chunks, twice: three cuts, which each of the step's micro-batches passes in its own replica.
TEST(NcclCallsTest, AGridSendsWhatItsPipelinesAndItsReplicasSend) {
  RunSpec spec = SmallNcclRun(ResidualMethod::kDeepNorm);
  spec.model.sharing = EmbeddingSharing::kNone;
  spec.ranks = 4;
  spec.pipeline.replicas = spec.pipeline.chunks = 2;
  spec.pipeline.schedule = ScheduleKind::kInterleaved1F1B;
  EXPECT_EQ(UseOfAStep(spec), Singly(spec.batch.micro_batches * 2 * 3) + OfReplicas(spec));
}

// Gradients go both ways while kernels, products and graphs are new: no rank's device waits for another's host.
TEST(NcclStandstillTest, NoRankWaitsForAnothersHost) {
  RunSpec spec =
      OnDevices(SmallNcclRun(ResidualMethod::kReZero));  // whose scalars part the weights: many messages a round
  spec.ranks = spec.pipeline.replicas = 2;
  spec.batch.micro_batches = 2;
  const Corpus corpus = RandomCorpus(60, 7, kNcclRunVocabulary, 5);
  NcclOfRun run(3, /*looks=*/16);
  EXPECT_EQ(FirstDifference(Train(spec, corpus), Train(run.Over(spec), corpus)), "");
}

// A peer that NCCL has lost ends the run on every rank, as a lost peer (exit code 6), wherever it happens; nothing
// hangs.
TEST(NcclFailureTest, AnAsynchronousErrorEndsTheRun) {
  RunSpec spec = OnDevices(SmallNcclRun(ResidualMethod::kDeepNorm));
  spec.ranks = 4;
  spec.pipeline.replicas = 2;
  const Corpus corpus = RandomCorpus(60, 7, kNcclRunVocabulary, 5);
  NcclOfRun whole(3);
  Train(whole.Over(spec), corpus);
  const int messages = whole.nccl().messages();
  constexpr int kWarmUp = 8;  // one a link: four pairs, both ways
  for (const int after : {0, kWarmUp, (kWarmUp + messages) / 2, messages - 1}) {
    NcclOfRun run(3);
    run.nccl().FailAfter(after);
    const absl::Status status = TryToTrain(run.Over(spec), corpus).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << "after " << after << " messages: " << status;
    EXPECT_THAT(std::string(status.message()), AnyOf(HasSubstr("remote process exited"), HasSubstr("aborted by rank")));
  }
}

}  // namespace
}  // namespace hadal::testing

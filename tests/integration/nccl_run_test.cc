// Whole training runs whose ranks exchange what their devices work on by NCCL, emulated, beside the same through the host: the same bits for
// every layout and schedule; and how a run ends when NCCL fails.
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/emulated_nccl.h"

namespace hadal::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kVocabulary = 47;

// NCCL for the ranks of one run, each with an emulated device.
class NcclOfRun {
 public:
  explicit NcclOfRun(uint64_t seed) : nccl_(seed) {}

  EmulatedNccl& nccl() { return nccl_; }
  RunSpec Over(RunSpec spec) {
    spec.connect_devices = [this](Device& device, Communicator& world, std::span<const RankPair> pairs) {
      NcclLibrary* library = nullptr;
      {
        const std::lock_guard lock(mutex_);
        libraries_.push_back(nccl_.LibraryFor(static_cast<EmulatedDevice&>(device)));
        library = libraries_.back().get();
      }
      return NcclCommunicator::Create(*library, device, world, pairs, absl::Seconds(60));
    };
    return spec;
  }

 private:
  EmulatedNccl nccl_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<NcclLibrary>> libraries_;
};

RunSpec SmallRun(ResidualMethod method) {
  RunSpec spec;
  spec.model = SmallModel(method, 16, kVocabulary);
  spec.model.encoder_layers = spec.model.decoder_layers = 2;
  ApplyResidualMethod(method, spec.model);
  spec.batch = {.micro_batches = 4, .source_tokens = 12, .target_tokens = 12};
  spec.optimizer.clip_norm = 0.5;
  spec.steps = 2;
  spec.make_device = [](int rank) { return std::make_unique<EmulatedDevice>(7 + rank); };
  return spec;
}

// Trains both ways and expects the same bits; returns how many messages NCCL has carried.
int ExpectTheHostsBits(const RunSpec& spec) {
  const Corpus corpus = RandomCorpus(60, 7, kVocabulary, 5);
  NcclOfRun run(3);
  const RunOutcome by_nccl = Train(run.Over(spec), corpus);
  EXPECT_EQ(FirstDifference(Train(spec, corpus), by_nccl), "");
  return run.nccl().messages();
}

TEST(NcclRunTest, APipelineHasTheHostsBits) {
  RunSpec spec = SmallRun(ResidualMethod::kDeepNorm);
  spec.ranks = 3;
  spec.pipeline.checkpoint_every = 2;
  spec.validate_every_step = true;
  EXPECT_GT(ExpectTheHostsBits(spec), 2 * 4 * 2 * 2);
}

TEST(NcclRunTest, InterleavedChunksShareALink) {
  RunSpec spec = SmallRun(ResidualMethod::kB2t);
  spec.ranks = 2;
  spec.pipeline.schedule = ScheduleKind::kInterleaved1F1B;
  spec.pipeline.chunks = 2;
  spec.pipeline.outstanding_sends = 1;
  ExpectTheHostsBits(spec);
}

TEST(NcclRunTest, ReplicasAddInTheSameOrder) {
  for (const bool sharded : {false, true}) {
    RunSpec spec = SmallRun(ResidualMethod::kPreLn);
    spec.ranks = 4;
    spec.pipeline.replicas = 4;
    spec.pipeline.shard_optimizer_state = sharded;
    spec.steps = 1;
    ExpectTheHostsBits(spec);
  }
}

TEST(NcclRunTest, ReplicasOfAPipelineWithTiedTables) {
  RunSpec spec = SmallRun(ResidualMethod::kDeepNorm);
  spec.ranks = 4;
  spec.pipeline.replicas = 2;
  spec.pipeline.placement = Placement::kStagesTogether;
  ExpectTheHostsBits(spec);
}

// Borders in bf16; what replicas and users of a table receive is rounded for their products.
TEST(NcclRunTest, Bf16HasTheHostsBits) {
  RunSpec spec = SmallRun(ResidualMethod::kDeepNorm);
  spec.compute_storage = Storage::kBFloat16;
  spec.ranks = 4;
  spec.pipeline.replicas = 2;
  ExpectTheHostsBits(spec);
}

// A peer that NCCL has lost ends the run on every rank, as a lost peer (exit code 6), wherever it happens; nothing hangs.
TEST(NcclRunTest, AnAsynchronousErrorEndsTheRun) {
  RunSpec spec = SmallRun(ResidualMethod::kDeepNorm);
  spec.ranks = 4;
  spec.pipeline.replicas = 2;
  const Corpus corpus = RandomCorpus(60, 7, kVocabulary, 5);
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

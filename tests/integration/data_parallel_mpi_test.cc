// Run by mpirun: a grid of processes ends with the very bits of the same grid as threads of one process.

#include "gtest/gtest.h"
#include "runtime/comm/mpi_communicator.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/mpi_test_main.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 203;

TEST(DataParallelMpiTest, TheBitsOfRanksAsThreads) {
  auto communicator = MpiCommunicator::Create(TestMpiEnvironment()).value();
  const Corpus corpus = RandomCorpus(400, 24, kVocabulary, 5);
  RunSpec spec;
  // Messages beyond MPI's eager limit.
  spec.model = SmallModel(ResidualMethod::kDeepNorm, {.d_model = 128, .vocabulary = kVocabulary});
  spec.batch = {.micro_batches = 3, .source_tokens = 96, .target_tokens = 96};
  spec.pipeline.replicas = 2;
  spec.ranks = communicator->size();
  spec.steps = 2;
  const RunOutcome reference = Train(spec, corpus);
  for (const bool sharded : {true, false}) {
    spec.pipeline.shard_optimizer_state = sharded;
    const RunOutcome mine = TrainRank(spec, corpus, *communicator);
    if (communicator->rank() == 0) {
      EXPECT_EQ(mine.loss, reference.loss);
      EXPECT_EQ(mine.gradient_norm, reference.gradient_norm);
    }
    int owned = 0;
    for (size_t p = 0; p < reference.weights.size(); ++p) {
      if (mine.weights[p].empty()) continue;  // another rank's; parameters here have one slice
      ++owned;
      EXPECT_EQ(mine.weights[p], reference.weights[p]) << "parameter " << p;
      EXPECT_EQ(mine.first_moments[p], reference.first_moments[p]) << "parameter " << p;
    }
    EXPECT_GT(owned, 0);
  }
}

}  // namespace
}  // namespace hadal::testing

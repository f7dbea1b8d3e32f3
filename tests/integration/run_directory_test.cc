// A run and its directory: saves by the clock, and the end of a run that has lost its directory.

#include "gmock/gmock.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "tests/integration/small_trainer.h"
#include "tests/support/saved_steps.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class Listener : public MetricsSink {
 public:
  void OnStep(const StepMetrics& metrics) override {
    losses.push_back(metrics.loss);
    if (metrics.step == 2 && after_two_steps) after_two_steps();
  }
  std::vector<double> losses;
  std::function<void()> after_two_steps;
};

class RunDirectory : public ::testing::TestWithParam<int> {
 protected:
  RunDirectory() {
    const testing::RunSpec spec = testing::SmallRun(ResidualMethod::kDeepNorm);
    options_.model = spec.model;
    options_.batch = spec.batch;
    options_.run_directory = directory_ / "run";
    options_.stop.steps = 5;
  }

  // Trains on ranks that are threads. Returns the first error of a rank.
  absl::Status Train() {
    InProcessWorld world(GetParam());
    return world.Run([&](Communicator& communicator) {
      return testing::WithTrainer(
          options_, {.communicator = communicator, .stream = Stream::Cpu(1), .train = corpus_, .sink = listener_},
          [](Trainer& trainer) { return trainer.Run().status(); });
    });
  }

  TemporaryDirectory directory_;
  TrainOptions options_;
  Corpus corpus_ = testing::SmallCorpus();
  Listener listener_;
};

TEST_P(RunDirectory, ByTheClockAllRanksSaveTheSameStepsAndNoBitChanges) {
  options_.checkpoint.save_at_end = false;
  ASSERT_TRUE(Train().ok());
  EXPECT_THAT(SavedSteps(options_.run_directory), SizeIs(0)) << "half an hour is not over";
  const std::vector<double> losses = std::exchange(listener_.losses, {});
  options_.run_directory = directory_ / "saved";
  options_.checkpoint.every_minutes = 1e-9;
  const absl::Status trained = Train();
  ASSERT_TRUE(trained.ok()) << trained;
  EXPECT_THAT(SavedSteps(options_.run_directory), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(listener_.losses, losses);
}

// It saves only at its end, and would otherwise find out there.
TEST_P(RunDirectory, ARunThatIsTakenOverEndsBeforeItReportsAnotherStep) {
  std::optional<CheckpointCommitter> other;
  listener_.after_two_steps = [&] { other.emplace(SmallCommitter(options_.run_directory)); };
  const absl::Status ended = Train();
  EXPECT_EQ(ended.code(), absl::StatusCode::kAborted);
  if (GetParam() == 1) {
    EXPECT_THAT(std::string(ended.message()), HasSubstr("has taken it over"));
  }
  EXPECT_THAT(listener_.losses, SizeIs(2));
  EXPECT_TRUE(other->CheckClaim().ok());
}

TEST_P(RunDirectory, ARunWhoseDirectoryIsRemovedEndsWithOneError) {
  listener_.after_two_steps = [&] { std::filesystem::remove_all(options_.run_directory); };
  const absl::Status ended = Train();
  EXPECT_EQ(ended.code(), absl::StatusCode::kAborted);
  if (GetParam() == 1) {
    EXPECT_THAT(std::string(ended.message()), HasSubstr("was removed while"));
  }
  EXPECT_THAT(listener_.losses, SizeIs(2));
}

INSTANTIATE_TEST_SUITE_P(Ranks, RunDirectory, ::testing::Values(1, 2), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace hadal

// What validations leave behind: in checkpoints the nll of the very weights that are saved, `best` where it is lowest;
// no BLEU of nothing.
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "tests/integration/small_trainer.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

class ValidationSink : public MetricsSink {
 public:
  void OnValidation(const ValidationMetrics& metrics) override { validations.push_back(metrics); }
  std::vector<ValidationMetrics> validations;
};

class ValidationRun : public ::testing::Test {
 protected:
  ValidationRun() {
    const testing::RunSpec spec = testing::SmallRun(ResidualMethod::kDeepNorm);
    options_.model = spec.model;
    options_.batch = spec.batch;
    options_.run_directory = directory_.path();
    options_.stop.steps = 5;
    options_.validation.every_steps = 2;
    options_.checkpoint.every_steps = 1;
  }

  void Train(std::optional<double> bleu) {
    const ModelPlan plan = ModelPlan::Make(options_.model);
    const PipelinePlan pipeline = MakePipelinePlan(plan, options_.batch, options_.pipeline, 1, 0).value();
    InProcessWorld world(1);
    PrepareComputeThread();
    const TrainingSurroundings surroundings{
        .communicator = world.communicator(0),
        .stream = Stream::Cpu(1),
        .train = corpus_,
        .validation = &corpus_,
        .sink = sink_,
        .validation_bleu = [&](Engine&, int64_t) -> absl::StatusOr<TranslatedValidation> {
          return TranslatedValidation{.bleu = bleu};
        }};
    const absl::StatusOr<std::unique_ptr<Trainer>> trainer =
        Trainer::Create(options_, plan, pipeline, surroundings, {.run_directory = options_.run_directory});
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    const absl::StatusOr<TrainingOutcome> outcome = (*trainer)->Run();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
  }

  double NllOf(int64_t step) {
    const std::string directory = CheckpointsDirectory(directory_.path()) + "/" + CheckpointName(step);
    return CheckpointReader::Open(directory).value().manifest().progress.validation_nll;
  }

  TemporaryDirectory directory_;
  TrainOptions options_;
  Corpus corpus_ = testing::SmallCorpus();
  ValidationSink sink_;
};

TEST_F(ValidationRun, ACheckpointHasTheNllOfItsOwnWeightsOrNone) {
  Train(std::nullopt);
  ASSERT_EQ(sink_.validations.size(), 2u);
  EXPECT_EQ(NllOf(2), sink_.validations[0].nll);
  EXPECT_EQ(NllOf(4), sink_.validations[1].nll);
  for (const int64_t step : {1, 3, 5}) EXPECT_TRUE(std::isinf(NllOf(step))) << "step " << step << " was not validated";
}

TEST_F(ValidationRun, BestIsTheLowest) {
  Train(std::nullopt);
  ASSERT_EQ(sink_.validations.size(), 2u);
  const int64_t lowest = sink_.validations[1].nll < sink_.validations[0].nll ? 4 : 2;
  EXPECT_EQ(*ReadCheckpointPointer(directory_.path(), CheckpointPointer::kBest), lowest);
}

TEST_F(ValidationRun, BleuOfNothingIsNone) {
  Train(std::nullopt);
  EXPECT_EQ(sink_.validations.size(), 2u);
  for (const ValidationMetrics& metrics : sink_.validations) EXPECT_EQ(metrics.bleu, std::nullopt);
  sink_.validations.clear();
  options_.run_directory = directory_ / "another";
  Train(12.5);
  EXPECT_EQ(sink_.validations.size(), 2u);
  for (const ValidationMetrics& metrics : sink_.validations) EXPECT_EQ(metrics.bleu, 12.5);
}

}  // namespace
}  // namespace hadal

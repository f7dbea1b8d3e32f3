#include "tests/integration/model_loss.h"

#include "gtest/gtest.h"
#include "layers/parameter_store.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "runtime/compute_thread.h"
#include "tests/support/moved_parameters.h"
#include "tests/support/random_corpus.h"
#include "tests/support/step_batches.h"
#include "tests/support/training_engine.h"

namespace hadal::testing {
namespace {

constexpr int kMicroBatches = 2, kRows = 16, kLongest = 5;
constexpr uint64_t kSeed = 11;

StepBatches BatchesFor(const ModelOptions& options) {
  const Corpus corpus = RandomCorpusFor(options, 40, kLongest, 3);
  SamplingOrder order = SamplingOrder::Create(corpus, {.seed = 1,
                                                       .capacity = {kRows, kRows},
                                                       .micro_batches_per_step = kMicroBatches,
                                                       .masking = MaskingFor(options)})
                            .value();
  return NextStep(order);
}

}  // namespace

ModelLoss::ModelLoss(const ModelOptions& options)
    : plan_(ModelPlan::Make(options)),
      batches_(BatchesFor(options)),
      pipeline_(MakePipelineLayout(plan_,
                                   {.micro_batches = kMicroBatches, .source_tokens = kRows, .target_tokens = kRows}, {},
                                   /*ranks=*/1)
                    .value()) {
  PrepareComputeThread();
  const Stream stream = Stream::Cpu(1);
  Communicator& rank = world_.communicator(0);
  engine_ = TrainingEngine(plan_, pipeline_, rank, stream).value();
  EXPECT_TRUE(InitializeParameters(pipeline_, parameters(), kSeed, stream, rank, absl::Seconds(60)).ok());
  MoveParametersOffTheirStart(parameters(), kSeed + 1);
  MoveHiddenUnitsOffTheBend(parameters());
  EXPECT_TRUE(engine_->ProfileResidualStream(batches_.micro_batches[0], {.seed = kSeed}).ok());
}

double ModelLoss::operator()() {
  const StepScalars scalars{
      .seed = kSeed, .step = 5, .update = 3, .gradient_scale = 1.0f / static_cast<float>(batches_.target_tokens)};
  const StepResult result = engine_->TrainingStep(batches_.micro_batches, scalars, {.apply = false}).value();
  EXPECT_EQ(result.gradient.loss.tokens, batches_.target_tokens);
  return result.gradient.loss.MeanLoss();
}

std::vector<std::vector<float>> ModelLoss::Gradients() {
  (*this)();
  std::vector<std::vector<float>> gradients(plan_.parameters.size());
  for (const StateSlice& slice : engine_->state().owned()) {
    gradients[slice.parameter].assign(slice.gradient.data, slice.gradient.data + slice.gradient.size);
  }
  return gradients;
}

}  // namespace hadal::testing

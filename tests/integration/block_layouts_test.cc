// Llama's and BERT's blocks with the methods that people lay over them: for every number of stages, chunks and threads,
// every schedule, with and without recomputation, saved on one layout and resumed on another, a run has the losses,
// gradients, weights and moments of the unbroken run on one rank, bit for bit.
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/trainer.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/temporary_directory.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 61;
constexpr int kStepsBefore = 2, kStepsAfter = 2;
constexpr Block kLlamaBlock = {.norm = NormKind::kRms,
                               .norm_shift = false,
                               .activation = Activation::kSilu,
                               .gated = true,
                               .biases = Biases::kNone,
                               .positions = Positions::kRotary,
                               .kv_heads = 2};

struct Layout {
  int stages = 1;
  int threads = 1;
  ScheduleKind schedule = ScheduleKind::k1F1B;
  int chunks = 1;
  int recompute_every = 0;
};
// A run resumes on the layout behind its own.
constexpr Layout kLayouts[] = {
    {1, 2},
    {2, 1, ScheduleKind::k1F1BSplit, 1, 1},
    {3, 2, ScheduleKind::kGpipe, 1, 3},
    {2, 1, ScheduleKind::kInterleaved1F1B, 3},
    {4, 1, ScheduleKind::kZbH1, 1, 2},
    {3, 1, ScheduleKind::kInterleavedZb, 2},
};

struct Outcome {
  std::vector<std::pair<double, double>> steps;  // loss and gradient norm
  // By parameter and slice: checksums of weight and moments.
  std::map<std::pair<int32_t, int64_t>, std::array<std::optional<uint32_t>, kStateKinds.size()>> state;
  std::string checkpoint;
};

class Steps final : public MetricsSink {
 public:
  void OnStep(const StepMetrics& metrics) override { steps.emplace_back(metrics.loss, metrics.gradient_norm); }
  std::vector<std::pair<double, double>> steps;
};

struct Case {
  bool encoder_alone = false;
  ResidualMethod method;
};
std::string Name(const Case& c) {
  return std::string(c.encoder_alone ? "bert_" : "llama_") + std::string(ResidualMethodName(c.method));
}

ModelOptions ModelOf(const Case& c) {
  const int32_t encoder = c.encoder_alone ? 7 : 0;
  ModelOptions model = SmallModel(
      c.method, {.encoder_layers = encoder, .decoder_layers = 7 - encoder, .d_model = 16, .vocabulary = kVocabulary});
  model.block = c.encoder_alone ? kBertBlock : kLlamaBlock;
  return model;
}

class BlockLayoutsTest : public ::testing::TestWithParam<Case> {
 protected:
  BlockLayoutsTest() : corpus_(RandomCorpusFor(ModelOf(GetParam()), 60, 16, 5)) {
    options_.model = ModelOf(GetParam());
    options_.masking = MaskingFor(options_.model);
    options_.batch = {.micro_batches = 4, .source_tokens = 48, .target_tokens = 48};
    options_.optimizer.clip_norm = 0.5;
    options_.rate.warmup_updates = 2;
    options_.pipeline.wait_timeout_seconds = 60;
  }

  // To step `steps`, from `checkpoint` unless that is empty.
  Outcome Train(const Layout& layout, int steps, const std::string& checkpoint) {
    TrainOptions options = options_;
    options.stop.steps = steps;
    options.run_directory = directory_ / std::to_string(runs_++);
    options.pipeline.stages = layout.stages;
    options.pipeline.schedule = layout.schedule;
    options.pipeline.chunks = layout.chunks;
    options.pipeline.recompute_every = layout.recompute_every;
    Steps sink;
    Outcome outcome;
    InProcessWorld world(layout.stages);
    const absl::Status status = world.Run([&](Communicator& communicator) {
      const TrainingSurroundings surroundings{
          .communicator = communicator, .stream = Stream::Cpu(layout.threads), .train = corpus_, .sink = sink};
      return WithTrainer(options, surroundings, [&](Trainer& trainer) -> absl::Status {
        if (!checkpoint.empty()) HADAL_RETURN_IF_ERROR(trainer.Resume(FindNamed(checkpoint)));
        HADAL_ASSIGN_OR_RETURN(const TrainingOutcome trained, trainer.Run());
        if (communicator.rank() == 0) outcome.checkpoint = trained.checkpoint;
        return absl::OkStatus();
      });
    });
    EXPECT_TRUE(status.ok()) << status;
    outcome.steps = sink.steps;
    const absl::StatusOr<CheckpointReader> saved = CheckpointReader::Open(outcome.checkpoint);
    EXPECT_TRUE(saved.ok()) << saved.status();
    if (!saved.ok()) return outcome;
    for (const WrittenFile& file : saved->manifest().files) {
      for (const WrittenSlice& slice : file.slices) outcome.state[{slice.parameter, slice.slice}] = slice.crc32c;
    }
    return outcome;
  }

  Corpus corpus_;
  TemporaryDirectory directory_;
  TrainOptions options_;
  int runs_ = 0;
};

TEST_P(BlockLayoutsTest, SavedOnOneResumedOnAnother) {
  const Outcome unbroken = Train({}, kStepsBefore + kStepsAfter, "");
  ASSERT_EQ(unbroken.steps.size(), static_cast<size_t>(kStepsBefore + kStepsAfter));
  ASSERT_FALSE(unbroken.state.empty());
  for (size_t i = 0; i < std::size(kLayouts); ++i) {
    SCOPED_TRACE("saved on layout " + std::to_string(i));
    const Outcome before = Train(kLayouts[i], kStepsBefore, "");
    const Outcome after = Train(kLayouts[(i + 1) % std::size(kLayouts)], kStepsBefore + kStepsAfter, before.checkpoint);
    std::vector<std::pair<double, double>> steps = before.steps;
    steps.insert(steps.end(), after.steps.begin(), after.steps.end());
    EXPECT_EQ(steps, unbroken.steps);
    EXPECT_EQ(after.state, unbroken.state);
  }
}

using enum ResidualMethod;
constexpr Case kCases[] = {{false, kPreLn},  {false, kLnScaling}, {false, kCompleteP}, {false, kKeel},
                           {false, kPeriLn}, {false, kDeepNorm},  {false, kDlclPre},   {false, kMhc},
                           {true, kPostLn},  {true, kPreLn},      {true, kDeepNorm},   {true, kBranchNorm}};
INSTANTIATE_TEST_SUITE_P(Methods, BlockLayoutsTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace hadal::testing

// Whole models on one rank: the gradient of every parameter that a training step leaves is the slope of the loss that
// the same step reports, for every method. Dropout is on: its randomness is counted, so that the loss is a function of
// the parameters alone.

#include "gtest/gtest.h"
#include "layers/parameter_store.h"
#include "pipeline/engine/engine.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/sampling_order.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/directional_difference.h"
#include "tests/support/moved_parameters.h"
#include "tests/support/step_batches.h"
#include "tests/support/training_engine.h"

namespace hadal::testing {
namespace {

constexpr int kWidth = 16, kVocabulary = 23, kMicroBatches = 2, kRows = 16, kLongest = 5;
constexpr uint64_t kSeed = 11;
constexpr absl::Duration kTimeout = absl::Seconds(60);

// Of a mean over some 25 rows of losses of about 3, each the end of some 20 products and norms.
constexpr DifferenceModel kModel{.rounding = 8 * 0x1p-24, .directions = 2};

// The loss of one training step as a function of the parameters.
class LossOfModel {
 public:
  explicit LossOfModel(const ModelOptions& options)
      : plan_(ModelPlan::Make(options)),
        batches_(StepOf(options)),
        pipeline_(MakePipelineLayout(
                      plan_, {.micro_batches = kMicroBatches, .source_tokens = kRows, .target_tokens = kRows}, {},
                      /*ranks=*/1)
                      .value()) {
    PrepareComputeThread();
    const Stream stream = Stream::Cpu(1);
    Communicator& rank = world_.communicator(0);
    engine_ = TrainingEngine(plan_, pipeline_, rank, stream).value();
    EXPECT_TRUE(InitializeParameters(pipeline_, parameters(), kSeed, stream, rank, kTimeout).ok());
    MoveParametersOffTheirStart(parameters(), kSeed + 1);
    MoveHiddenUnitsOffTheBend(parameters());
    EXPECT_TRUE(engine_->ProfileResidualStream(batches_.micro_batches[0], {.seed = kSeed}).ok());
  }

  const ModelPlan& plan() const { return plan_; }

  // A token's; weights stay as they are.
  double operator()() {
    const StepScalars scalars{
        .seed = kSeed, .step = 5, .update = 3, .gradient_scale = 1.0f / static_cast<float>(batches_.target_tokens)};
    const StepResult result = engine_->TrainingStep(batches_.micro_batches, scalars, {.apply = false}).value();
    EXPECT_EQ(result.gradient.loss.tokens, batches_.target_tokens);
    return result.gradient.loss.MeanLoss();
  }

  // By parameter, where the optimizer reads them: tied tables' uses summed.
  std::vector<std::vector<float>> Gradients() {
    (*this)();
    std::vector<std::vector<float>> gradients(plan_.parameters.size());
    for (const StateSlice& slice : engine_->state().owned()) {
      gradients[slice.parameter].assign(slice.gradient.data, slice.gradient.data + slice.gradient.size);
    }
    return gradients;
  }

  std::span<float> Weight(int32_t parameter) {
    const Vector weight = parameters().WeightVector(parameter);
    return {weight.data, static_cast<size_t>(weight.size)};
  }

 private:
  static StepBatches StepOf(const ModelOptions& options) {
    const Corpus corpus = RandomCorpusFor(options, 40, kLongest, 3);
    SamplingOrder order =
        SamplingOrder::Create(corpus, {.seed = 1, .capacity = {kRows, kRows}, .micro_batches_per_step = kMicroBatches})
            .value();
    return NextStep(order);
  }
  const ParameterStore& parameters() const { return engine_->stage().parameters(); }

  const ModelPlan plan_;
  const StepBatches batches_;
  const PipelineLayout pipeline_;
  InProcessWorld world_{1};
  std::unique_ptr<Engine> engine_;
};

DifferenceModel ModelFor(ParameterRole role) {
  DifferenceModel model = kModel;
  if (role == ParameterRole::kKeyBias) model.may_vanish = true;              // softmax(q·(k + b)) does not depend on b
  if (role == ParameterRole::kCombinationWeight) model.largest_step = 2e-2;  // a norm of few terms bends early
  if (role == ParameterRole::kHyperMapWeight) model.longest = 2;             // small gates stand behind it
  return model;
}

void ExpectGradientsOfTheLoss(const ModelOptions& options) {
  ASSERT_TRUE(ValidateModelOptions(options).ok()) << ValidateModelOptions(options);
  LossOfModel loss(options);
  const std::vector<std::vector<float>> gradients = loss.Gradients();
  for (size_t p = 0; p < gradients.size(); ++p) {
    const auto parameter = static_cast<int32_t>(p);
    const DifferenceModel model = ModelFor(loss.plan().parameters[p].role);
    EXPECT_TRUE(IsGradientAlongDirections(
        loss.Weight(parameter), gradients[p], [&] { return loss(); }, model, parameter))
        << loss.plan().ParameterName(parameter);
  }
}

ModelOptions TwoLayers(ResidualMethod method, int32_t encoder_layers) {
  return SmallModel(
      method, {.encoder_layers = encoder_layers, .decoder_layers = 2, .d_model = kWidth, .vocabulary = kVocabulary});
}

class ModelGradientTest : public ::testing::TestWithParam<ResidualMethod> {};

TEST_P(ModelGradientTest, IsTheSlopeOfTheLossOfAnEncoderDecoder) {
  ExpectGradientsOfTheLoss(TwoLayers(GetParam(), /*encoder_layers=*/2));
}

TEST_P(ModelGradientTest, IsTheSlopeOfTheLossOfALanguageModel) {
  ExpectGradientsOfTheLoss(TwoLayers(GetParam(), /*encoder_layers=*/0));
}

INSTANTIATE_TEST_SUITE_P(Methods, ModelGradientTest, ::testing::ValuesIn(AllResidualMethods()),
                         [](const auto& info) { return ResidualMethodName(info.param); });

TEST(ModelGradientTest, IsTheSlopeOfTheLossWhateverTablesAreShared) {
  for (const EmbeddingSharing sharing : {EmbeddingSharing::kNone, EmbeddingSharing::kDecoder}) {
    SCOPED_TRACE(absl::StrCat("sharing ", static_cast<int>(sharing)));
    ModelOptions model = TwoLayers(ResidualMethod::kTFixup, /*encoder_layers=*/2);
    model.sharing = sharing;
    model.source_vocabulary += 6;
    ExpectGradientsOfTheLoss(model);
  }
}

// What no preset combines.
TEST(ModelGradientTest, IsTheSlopeOfTheLossOfSettingsOverAPreset) {
  ModelOptions streams = TwoLayers(ResidualMethod::kMhc, /*encoder_layers=*/2);
  streams.branch_growth = BranchGrowth::kLinear;
  streams.encoder.norm_gain = streams.decoder.norm_gain = DepthInit::kInverseSqrt;
  ModelOptions scaled_heads = TwoLayers(ResidualMethod::kNormFormer, /*encoder_layers=*/2);
  scaled_heads.encoder.attention_inner_norm = scaled_heads.decoder.attention_inner_norm = true;
  for (const ModelOptions& model : {streams, scaled_heads}) {
    SCOPED_TRACE(absl::StrCat(model.encoder.residual_streams, " streams"));
    ExpectGradientsOfTheLoss(model);
  }
}

TEST(ModelGradientTest, IsTheSlopeOfTheLossOfAnAdaptiveSoftmax) {
  for (const int32_t encoder_layers : {0, 2}) {
    for (const EmbeddingSharing sharing :
         {EmbeddingSharing::kNone, EmbeddingSharing::kDecoder, EmbeddingSharing::kAll}) {
      SCOPED_TRACE(absl::StrCat(encoder_layers, " encoder layers, sharing ", static_cast<int>(sharing)));
      ExpectGradientsOfTheLoss(
          WithAdaptiveSoftmax(TwoLayers(ResidualMethod::kDeepNorm, encoder_layers), sharing, 8, 14));
    }
  }
}

}  // namespace
}  // namespace hadal::testing

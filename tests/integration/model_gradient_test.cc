// Whole models on one rank: the gradient of every parameter that a training step leaves is the slope of the loss that
// the same step reports, for every method. Dropout is on: its randomness is counted, so that the loss is a function of
// the parameters alone.

#include <span>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/integration/model_loss.h"
#include "tests/support/directional_difference.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/small_model.h"

namespace hadal::testing {
namespace {

constexpr int kWidth = 16, kVocabulary = 23;

// Of a mean over some 25 rows of losses of about 3, each the end of some 20 products and norms.
constexpr DifferenceModel kModel{.rounding = 8 * 0x1p-24, .directions = 2};

std::span<float> WeightOf(const ModelLoss& loss, int32_t parameter) {
  const Vector weight = loss.Weight(parameter);
  return {weight.data, static_cast<size_t>(weight.size)};
}

DifferenceModel ModelFor(ParameterRole role) {
  DifferenceModel model = kModel;
  if (role == ParameterRole::kKeyBias) model.may_vanish = true;              // softmax(q·(k + b)) does not depend on b
  if (role == ParameterRole::kCombinationWeight) model.largest_step = 2e-2;  // a norm of few terms bends early
  if (role == ParameterRole::kHyperMapWeight) model.longest = 2;             // small gates stand behind it
  if (role == ParameterRole::kReaderQuery) model.largest_step = 1.5e-2;      // rows cancel in the slope alone
  if (role == ParameterRole::kReaderScale) {                                 // small queries multiply it
    model.longest = 2, model.largest_step = 0.25, model.curvature = 4e-2;
  }
  return model;
}

void ExpectGradientsOfTheLoss(const ModelOptions& options) {
  ASSERT_TRUE(ValidateModelOptions(options).ok()) << ValidateModelOptions(options);
  ModelLoss loss(options);
  const std::vector<std::vector<float>> gradients = loss.Gradients();
  for (size_t p = 0; p < gradients.size(); ++p) {
    const auto parameter = static_cast<int32_t>(p);
    const DifferenceModel model = ModelFor(loss.plan().parameters[p].role);
    EXPECT_TRUE(IsGradientAlongDirections(
        WeightOf(loss, parameter), gradients[p], [&] { return loss(); }, model, parameter))
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

TEST_P(ModelGradientTest, IsTheSlopeOfTheLossOfAnEncoderAlone) {
  ExpectGradientsOfTheLoss(
      SmallModel(GetParam(), {.encoder_layers = 2, .decoder_layers = 0, .d_model = kWidth, .vocabulary = kVocabulary}));
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

// Norms of heads, turned queries, gates, windows, activations; the head of masked tokens.
TEST(ModelGradientTest, IsTheSlopeOfTheLossOfOtherBlocksOnEachInstructionSet) {
  const auto model = [](int32_t encoder_layers, int32_t decoder_layers, const Block& block) {
    ModelOptions options = SmallModel(ResidualMethod::kPreLn, {.encoder_layers = encoder_layers,
                                                               .decoder_layers = decoder_layers,
                                                               .d_model = kWidth,
                                                               .vocabulary = kVocabulary});
    options.block = block;
    return options;
  };
  Block bert = kBertBlock, gpt2 = kBertBlock;
  bert.initial_deviation = gpt2.initial_deviation = 0.2;  // 0.02 leaves slopes that rounding hides
  gpt2.activation = Activation::kGeluTanh;
  ForEachInstructionSet([&] {
    for (const ModelOptions& options : {model(0, 2, kModernBlock), model(2, 2, kModernBlock), model(2, 0, kModernBlock),
                                        model(2, 0, bert), model(0, 2, gpt2)}) {
      SCOPED_TRACE(absl::StrCat(DepthName(options), ", ", BlockText(options.block)));
      ExpectGradientsOfTheLoss(options);
    }
  });
}

// What no preset combines.
TEST(ModelGradientTest, IsTheSlopeOfTheLossOfSettingsOverAPreset) {
  ModelOptions streams = TwoLayers(ResidualMethod::kMhc, /*encoder_layers=*/2);
  streams.branch_growth = BranchGrowth::kLinear;
  streams.encoder.norm_gain = streams.decoder.norm_gain = DepthInit::kInverseSqrt;
  ModelOptions scaled_heads = TwoLayers(ResidualMethod::kNormFormer, /*encoder_layers=*/2);
  scaled_heads.encoder.attention_inner_norm = scaled_heads.decoder.attention_inner_norm = true;
  ModelOptions blocks = TwoLayers(ResidualMethod::kAttnRes, /*encoder_layers=*/2);
  blocks.encoder.attention_residual_block_sublayers = blocks.decoder.attention_residual_block_sublayers = 3;
  for (const ModelOptions& model : {streams, scaled_heads, blocks}) {
    SCOPED_TRACE(absl::StrCat(model.encoder.residual_streams, " streams, blocks of ",
                              model.encoder.attention_residual_block_sublayers));
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

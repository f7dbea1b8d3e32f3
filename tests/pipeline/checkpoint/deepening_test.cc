#include "pipeline/checkpoint/deepening.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layers/method_presets.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;

ModelPlan Model(ResidualMethod method, int encoder_layers, int decoder_layers, int words = 9, int width = 4) {
  ModelOptions options = TinyModel({.encoder_layers = encoder_layers,
                                    .decoder_layers = decoder_layers,
                                    .d_model = width,
                                    .heads = 2,
                                    .vocabulary = words});
  ApplyResidualMethod(method, options);
  return ModelPlan::Make(options);
}

DeepenedParameter StartOf(const ModelPlan& from, const ModelPlan& to, const std::string& name) {
  const std::vector<DeepenedParameter> starts = DeepenedParameters(from, to, DeepeningRule::kSplit).value();
  for (size_t p = 0; p < to.parameters.size(); ++p) {
    if (to.ParameterName(static_cast<int32_t>(p)) == name) return starts[p];
  }
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

std::string Refusal(const ModelPlan& from, const ModelPlan& to) {
  return std::string(DeepenedParameters(from, to, DeepeningRule::kSplit).status().message());
}

// The layers of `from` from which the model's layers start, and that a layer's parameters all start from one layer.
std::vector<int> SourceLayers(const ModelPlan& from, const ModelPlan& to, Stack stack) {
  const std::vector<DeepenedParameter> starts = DeepenedParameters(from, to, DeepeningRule::kSplit).value();
  std::vector<int> layers;
  for (size_t p = 0; p < to.parameters.size(); ++p) {
    const SublayerRecord& sublayer = to.sublayers[to.parameters[p].sublayer];
    const ParameterRecord& source = from.parameters[starts[p].source];
    EXPECT_EQ(source.role, to.parameters[p].role);
    EXPECT_EQ(from.sublayers[source.sublayer].kind, sublayer.kind);
    EXPECT_EQ(from.sublayers[source.sublayer].stack, sublayer.stack);
    if (sublayer.layer < 0 || sublayer.stack != stack) continue;
    layers.resize(sublayer.layer + 1, from.sublayers[source.sublayer].layer);
    EXPECT_EQ(layers[sublayer.layer], from.sublayers[source.sublayer].layer);
  }
  return layers;
}

TEST(DeepeningTest, CopiesOfALayerFollowOneAnother) {
  // Numbers of one and of two digits; a number of layers that divides the other, and others.
  const ModelPlan from = Model(ResidualMethod::kPreLn, 2, 3), to = Model(ResidualMethod::kPreLn, 5, 3);
  EXPECT_THAT(SourceLayers(from, to, Stack::kEncoder), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(SourceLayers(from, to, Stack::kDecoder), ElementsAre(0, 1, 2));
  EXPECT_THAT(SourceLayers(Model(ResidualMethod::kPreLn, 11, 1), Model(ResidualMethod::kPreLn, 12, 2), Stack::kEncoder),
              ElementsAre(0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
}

TEST(DeepeningTest, CopiesShareTheStepOfTheirLayer) {
  const ModelPlan pre = Model(ResidualMethod::kPreLn, 2, 3), deep = Model(ResidualMethod::kPreLn, 5, 3);
  EXPECT_EQ(StartOf(pre, deep, "encoder.layers.1.self_attn.out_proj.weight").factor, 1.0f / 3);
  EXPECT_EQ(StartOf(pre, deep, "encoder.layers.2.fc2.bias").factor, 1.0f / 3);
  EXPECT_EQ(StartOf(pre, deep, "encoder.layers.3.fc2.weight").factor, 1.0f / 2);
  for (const char* const whole : {"encoder.layers.3.fc1.weight", "encoder.layers.3.self_attn.v_proj.weight",
                                  "encoder.layers.3.final_layer_norm.weight", "encoder.layers.3.final_layer_norm.bias",
                                  "encoder.layer_norm.bias", "decoder.layers.2.fc2.weight"}) {
    const DeepenedParameter start = StartOf(pre, deep, whole);
    EXPECT_EQ(start.factor, 1) << whole;
    EXPECT_EQ(start.power, 1) << whole;
  }
  // Where the method has gains for the step, they count.
  const ModelPlan gains = Model(ResidualMethod::kCompleteP, 2, 3), more = Model(ResidualMethod::kCompleteP, 4, 12);
  EXPECT_THAT(StartOf(gains, more, "encoder.layers.3.fc2.weight").factor, FloatEq(1));
  EXPECT_THAT(StartOf(gains, more, "decoder.layers.3.encoder_attn.out_proj.bias").factor, FloatEq(1));
}

TEST(DeepeningTest, NormsOnTheStreamTakeTheirPart) {
  const ModelPlan from = Model(ResidualMethod::kDeepNorm, 2, 3), to = Model(ResidualMethod::kDeepNorm, 8, 3);
  const float alpha = from.sublayers[1].residual_gain, deeper_alpha = to.sublayers[1].residual_gain;
  ASSERT_GT(deeper_alpha, alpha);
  EXPECT_THAT(StartOf(from, to, "encoder.layers.7.fc2.weight").factor, FloatEq(deeper_alpha / alpha / 4));
  EXPECT_EQ(StartOf(from, to, "encoder.layers.7.final_layer_norm.weight").power, 1.0f / 4);
  EXPECT_EQ(StartOf(from, to, "encoder.layers.7.final_layer_norm.weight").factor, 1);
  EXPECT_EQ(StartOf(from, to, "encoder.layers.0.self_attn_layer_norm.bias").factor, 1.0f / 4);
  EXPECT_EQ(StartOf(from, to, "encoder.layers.7.fc1.weight").factor, 1);
  // What all elements share stays, because the next norm takes it away.
  std::vector<float> weights = {2, 2, -2};
  StartOf(from, to, "encoder.layers.7.final_layer_norm.weight").Apply({weights.data(), 3});
  EXPECT_THAT(weights, ElementsAre(2, 2, -2));
  weights = {1, 7};  // root mean square 5
  StartOf(from, to, "encoder.layers.7.final_layer_norm.weight").Apply({weights.data(), 2});
  EXPECT_THAT(weights, ElementsAre(FloatEq(3.3437016), FloatEq(5.4387866)));
  weights = {8, -4, 0};
  StartOf(from, to, "encoder.layers.0.self_attn_layer_norm.bias").Apply({weights.data(), 3});
  EXPECT_THAT(weights, ElementsAre(2, -1, 0));
}

TEST(DeepeningTest, ANormBehindTheBranchTakesTheStep) {
  const ModelPlan from = Model(ResidualMethod::kPeriLn, 2, 2), to = Model(ResidualMethod::kPeriLn, 4, 2);
  int scaled = 0;
  const std::vector<DeepenedParameter> starts = DeepenedParameters(from, to, DeepeningRule::kSplit).value();
  for (size_t p = 0; p < starts.size(); ++p) {
    const ParameterRole role = to.parameters[p].role;
    const bool ends = (role == ParameterRole::kOutputNormScale || role == ParameterRole::kOutputNormShift) &&
                      to.sublayers[to.parameters[p].sublayer].stack == Stack::kEncoder;
    EXPECT_EQ(starts[p].factor, ends ? 0.5f : 1.0f) << to.ParameterName(static_cast<int32_t>(p));
    EXPECT_EQ(starts[p].power, 1);
    scaled += ends;
  }
  EXPECT_EQ(scaled, 4 * 2 * 2);
}

TEST(DeepeningTest, WhatDoesNotFitIsNamed) {
  using enum ResidualMethod;
  EXPECT_THAT(Refusal(Model(kPostLn, 2, 3), Model(kPostLn, 2, 2)), HasSubstr("decoder has 3 layers, more than"));
  EXPECT_THAT(Refusal(Model(kPostLn, 0, 3), Model(kPostLn, 2, 3)), HasSubstr("the checkpoint has no encoder."));
  EXPECT_THAT(Refusal(Model(kDlclPre, 2, 3), Model(kDlclPre, 4, 3)), HasSubstr("combined layers"));
  EXPECT_THAT(Refusal(Model(kAdmin, 2, 3), Model(kPostLn, 4, 3)),
              HasSubstr("no place for the checkpoint's encoder.layers.0"));
  EXPECT_THAT(Refusal(Model(kPostLn, 2, 3), Model(kPostLn, 4, 3, 9, 8)),
              HasSubstr("encoder.embed_tokens.weight has the shape [9, 4]"));
  EXPECT_THAT(Refusal(Model(kPostLn, 2, 3), Model(kPostLn, 4, 3, 10)),
              HasSubstr("[9, 4], the model's encoder.embed_tokens.weight [10, 4]"));
}

}  // namespace
}  // namespace hadal

#include "tools/config/model_config.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "layers/model_fields.h"
#include "tests/tools/config/parsed_config.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

ModelOptions ModelOf(const std::string& text) {
  ModelOptions model;
  const absl::Status status = ReadModel(Parsed(text).model(), model);
  EXPECT_TRUE(status.ok()) << status;
  return model;
}

std::string ErrorOf(const std::string& text) {
  ModelOptions model;
  const absl::Status status = ReadModel(Parsed(text).model(), model);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(ModelConfig, MethodIsAppliedForTheDepth) {
  const ModelOptions model =
      ModelOf("model { encoder_layers: 100 decoder_layers: 100 residual { method: \"deepnorm\" } }");
  EXPECT_NEAR(model.encoder.residual_gain, 3.4157, 1e-4);
  EXPECT_NEAR(model.encoder.value_gain, 0.2063, 1e-4);
  EXPECT_NEAR(model.decoder.residual_gain, 4.1618, 1e-4);
  EXPECT_NEAR(model.decoder.ffn_gain, 0.1699, 1e-4);
  EXPECT_EQ(model.distribution, WeightDistribution::kXavierNormal);
}

TEST(ModelConfig, FieldsOverrideTheMethodOneByOne) {
  const ModelOptions model = ModelOf(R"(model { encoder_layers: 100 decoder_layers: 100 residual {
    method: "deepnorm" distribution: "xavier_uniform" branch_growth: "exponential"
    encoder { norm: "pre" residual_gain: 1.5 branch_gain: 6 query_key_gain: 2 value_gain: 3 output_gain: 4 ffn_gain: 5
              cross_value_gain: 7 cross_output_gain: 8 depth_init: "from_top" embedding_gain: 9
              skip_gain: 10 layer_gain: 11 learned_branch_gain: true attention_inner_norm: true ffn_inner_norm: true
              fixup_scalars: true linear_bias: false ffn_output_factor: 12 projection_gain: 13
              omega: "constant" initial_omega: 14 combine_layers: true }
    decoder { ffn_gain: 0.25 } } })");
  EXPECT_EQ(model.encoder.norm, NormPlacement::kPre);
  EXPECT_EQ(model.encoder.residual_gain, 1.5);
  EXPECT_EQ(model.encoder.query_key_gain, 2);
  EXPECT_EQ(model.encoder.value_gain, 3);
  EXPECT_EQ(model.encoder.output_gain, 4);
  EXPECT_EQ(model.encoder.ffn_gain, 5);
  EXPECT_EQ(model.encoder.branch_gain, 6);
  EXPECT_EQ(model.encoder.cross_value_gain, 7);
  EXPECT_EQ(model.encoder.cross_output_gain, 8);
  EXPECT_EQ(model.encoder.depth_init, DepthInit::kFromTop);
  EXPECT_EQ(model.encoder.embedding_gain, 9);
  EXPECT_EQ(model.encoder.skip_gain, 10);
  EXPECT_EQ(model.encoder.layer_gain, 11);
  EXPECT_TRUE(model.encoder.learned_branch_gain && model.encoder.attention_inner_norm && model.encoder.ffn_inner_norm);
  EXPECT_TRUE(model.encoder.fixup_scalars && !model.encoder.linear_bias && model.decoder.linear_bias);
  EXPECT_EQ(model.encoder.omega, Omega::kConstant);
  EXPECT_TRUE(model.encoder.combine_layers && !model.decoder.combine_layers);
  EXPECT_EQ(model.encoder.initial_omega, 14);
  EXPECT_EQ(model.decoder.omega, Omega::kNone);
  EXPECT_EQ(model.encoder.ffn_output_factor, 12);
  EXPECT_EQ(model.encoder.projection_gain, 13);
  EXPECT_FALSE(model.encoder.attention_output_norm || model.encoder.head_scale || model.decoder.ffn_inner_norm);
  EXPECT_EQ(model.decoder.norm, NormPlacement::kPost);
  EXPECT_EQ(model.decoder.ffn_gain, 0.25);
  EXPECT_NEAR(model.decoder.value_gain, 0.1699, 1e-4) << "what is not overridden stays the method's";
  EXPECT_EQ(model.distribution, WeightDistribution::kXavierUniform);
  EXPECT_EQ(model.branch_growth, BranchGrowth::kExponential);
  EXPECT_EQ(model.branch_growth_steepness, 5) << "the growth's own";
}

TEST(ModelConfig, TheSchemaHasTheFieldsOfAStackAndNoOther) {
  std::set<std::string> fields, schema;
  ForEachStackField([&](const char* name, auto, FieldAge, const auto&...) { fields.insert(name); });
  const auto& descriptor = *config::StackResidual::descriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) schema.insert(descriptor.field(i)->name());
  EXPECT_EQ(schema, fields);
}

TEST(ModelConfig, TorchscaleCompatIsAboutDeepNorm) {
  const std::string model = "model { encoder_layers: 100 decoder_layers: 100 residual { torchscale_compat: true ";
  EXPECT_NEAR(ModelOf(model + "} }").encoder.ffn_gain, 0.2727, 1e-4);
  EXPECT_EQ(ModelOf(model + "encoder { ffn_gain: 0.5 } } }").encoder.ffn_gain, 0.5);
  EXPECT_THAT(ErrorOf(model + "method: \"post_ln\" } }"),
              HasSubstr("not allowed with model.residual.method = \"post_ln\""));
}

TEST(ModelConfig, APresetBackInFieldsIsThePreset) {
  for (const char* method : {"deepnorm", "normformer", "r_fixup", "dlcl_pre", "admin_closed"}) {
    const ModelOptions preset = ModelOf(absl::StrCat("model { residual { method: \"", method, "\" } }"));
    config::RunConfig overridden = Parsed("model { residual { method: \"post_ln\" } }");
    *overridden.mutable_model()->mutable_residual()->mutable_encoder() = ToStackResidual(preset.encoder);
    ModelOptions again;
    ASSERT_TRUE(ReadModel(overridden.model(), again).ok());
    EXPECT_EQ(ToStackResidual(again.encoder).SerializeAsString(), ToStackResidual(preset.encoder).SerializeAsString())
        << method;
  }
}

}  // namespace
}  // namespace hadal

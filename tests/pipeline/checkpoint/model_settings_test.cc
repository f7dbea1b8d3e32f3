#include "pipeline/checkpoint/model_settings.h"

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "layers/method_presets.h"
#include "layers/model_plan.h"

namespace hadal {
namespace {

ModelOptions SomeOptions(ResidualMethod method) {
  ModelOptions options{.encoder_layers = 18,
                       .decoder_layers = 7,
                       .d_model = 96,
                       .d_ff = 250,
                       .heads = 3,
                       .source_vocabulary = 8001,
                       .target_vocabulary = 7999,
                       .max_positions = 300,
                       .sharing = EmbeddingSharing::kDecoder,
                       .dropout = 0.1,
                       .attention_dropout = 1.0 / 3,
                       .activation_dropout = 0.05,
                       .label_smoothing = 0.1};
  ApplyResidualMethod(method, options);
  options.branch_growth_updates = 1234.5;
  return options;
}

// ValidateModelOptions refuses them for new runs.
TEST(ModelSettingsTest, ModelsOfEarlierRulesAreRead) {
  ModelOptions options = SomeOptions(ResidualMethod::kPreLn);
  options.block.scale_embedding = false;
  options.base_width = 48;
  EXPECT_FALSE(ValidateModelOptions(options).ok());
  const absl::StatusOr<ModelOptions> read = ParseModelSettings(ModelSettingsJson(options));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->base_width, 48);
}

TEST(ModelSettingsTest, ReadsBackEveryBit) {
  for (const ResidualMethod method : AllResidualMethods()) {
    ModelOptions options = SomeOptions(method);
    options.decoder.branch_gain = 0.7;
    if (method == ResidualMethod::kPreLn) {
      options.branch_growth = BranchGrowth::kSigmoid;
      options.branch_growth_steepness = 0.3;
      options.sharing = EmbeddingSharing::kNone;
      options.distribution = WeightDistribution::kXavierNormal;
      options.adaptive_cutoffs = {.ids = {100, 4000}, .count = 2};
      options.label_smoothing = 0;
      options.block = {.norm = NormKind::kRms, .norm_epsilon = 1e-6, .norm_shift = false};
      options.block.activation = Activation::kGeluTanh, options.block.gated = true;
      options.block.biases = Biases::kQkv;
      options.block.positions = Positions::kRotary, options.block.rotary_theta = 5e5, options.block.rotary_share = 0.25;
      options.block.kv_heads = 1, options.block.head_width = 40, options.block.scale_embedding = false;
      options.block.query_key_norm = options.block.attention_gate = true;
      options.block.window = 7, options.block.global_every = 2, options.block.rotary_local_theta = 300;
      options.block.rotary_scaling = 8, options.block.rotary_scaling_positions = 512;
      options.block.first_norm = false;
    } else {
      options.z_loss = 1e-4;
    }
    const std::string text = ModelSettingsJson(options);
    const absl::StatusOr<ModelOptions> read = ParseModelSettings(text);
    EXPECT_EQ(ModelSettingsJson(*read), text);
    EXPECT_EQ(ModelPlan::Make(*read).Hash(), ModelPlan::Make(options).Hash());
    EXPECT_EQ(read->block, options.block);
    EXPECT_EQ(read->z_loss, options.z_loss);
    EXPECT_EQ(read->encoder.residual_gain, options.encoder.residual_gain);
    EXPECT_EQ(read->decoder.branch_gain, 0.7);
    EXPECT_EQ(read->attention_dropout, options.attention_dropout);
    EXPECT_EQ(read->branch_growth_updates, options.branch_growth_updates);
  }
}

// So that versions before blocks read it.
TEST(ModelSettingsTest, ADefaultBlockIsLeftOut) {
  EXPECT_EQ(ModelSettingsJson(SomeOptions(ResidualMethod::kDeepNorm)).find("\"block\""), std::string::npos);
}

// A version that makes another plan of the same settings would read the weights as other layers'.
TEST(ModelSettingsTest, AnotherVersionsPlanIsRefused) {
  const ModelOptions options = SomeOptions(ResidualMethod::kDeepNorm);
  const ModelPlan plan = ModelPlan::Make(options);
  CheckpointManifest manifest{
      .plan_hash = plan.Hash(), .model_settings = ModelSettingsJson(options), .parameters = DescribeParameters(plan)};
  EXPECT_EQ(PlanOfCheckpoint(manifest, "run")->Hash(), plan.Hash());
  ++manifest.plan_hash;
  const absl::Status refused = PlanOfCheckpoint(manifest, "run").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("Use the version that wrote it"));
}

TEST(ModelSettingsTest, FieldsOfLaterVersionsMayBeMissing) {
  const ModelOptions options = SomeOptions(ResidualMethod::kDeepNorm);
  const std::string old =
      absl::StrReplaceAll(ModelSettingsJson(options), {{"\"fixup_scalars\":false,\"linear_bias\":true,", ""},
                                                       {"\"omega\":\"none\",\"initial_omega\":1.0,", ""},
                                                       {"\"combine_layers\":false,", ""},
                                                       {"\"ffn_output_factor\":1.0,", ""},
                                                       {",\"projection_gain\":1.0", ""}});
  EXPECT_EQ(old.find("projection_gain"), std::string::npos);
  const absl::StatusOr<ModelOptions> read = ParseModelSettings(old);
  EXPECT_EQ(ModelPlan::Make(*read).Hash(), ModelPlan::Make(options).Hash());
}

TEST(ModelSettingsTest, ReadsBackLanguageModels) {
  for (const ResidualMethod method : AllResidualMethods()) {
    ModelOptions options = SomeOptions(method);
    options.encoder_layers = options.source_vocabulary = 0;
    ApplyResidualMethod(method, options);
    const absl::StatusOr<ModelOptions> read = ParseModelSettings(ModelSettingsJson(options));
    EXPECT_FALSE(read->has_encoder());
    EXPECT_EQ(ModelPlan::Make(*read).Hash(), ModelPlan::Make(options).Hash());
  }
}

TEST(ModelSettingsTest, NamesWhatIsWrong) {
  const std::string text = ModelSettingsJson(SomeOptions(ResidualMethod::kDeepNorm));
  const auto message = [&](const std::string& from, const std::string& to) {
    const std::string altered = absl::StrReplaceAll(text, {{from, to}});
    EXPECT_NE(altered, text);
    return std::string(ParseModelSettings(altered).status().message());
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message("\"heads\":3", "\"heads\":\"3\""), HasSubstr("heads is \"3\", expected a whole number from 0"));
  EXPECT_THAT(message("\"heads\":3", "\"heads\":-3"), HasSubstr("heads is -3, expected a whole number from 0"));
  EXPECT_THAT(message("\"heads\":3", "\"heads\":5"), HasSubstr("heads"));
  EXPECT_THAT(message("\"heads\":3,", ""), HasSubstr("heads is missing"));
  EXPECT_THAT(message("\"heads\":3", "\"heads\":3,\"tails\":1"), HasSubstr("cannot read"));
  EXPECT_THAT(message("\"norm\":\"post\"", "\"norm\":\"past\""),
              HasSubstr("coder.norm has an unknown value, \"past\""));
  EXPECT_THAT(message("\"norm\":\"post\"", "\"norm\":\"post\",\"tails\":1"), HasSubstr("cannot read"));
  EXPECT_FALSE(ParseModelSettings("[]").ok());
  EXPECT_FALSE(ParseModelSettings("{").ok());
}

}  // namespace
}  // namespace hadal

#include "layers/method_presets.h"

#include <cmath>

#include "gtest/gtest.h"

namespace hadal {
namespace {

ModelOptions WithDepth(ResidualMethod method, int encoder, int decoder) {
  ModelOptions options{
      .encoder_layers = encoder, .decoder_layers = decoder, .source_vocabulary = 100, .target_vocabulary = 100};
  ApplyResidualMethod(method, options);
  return options;
}

struct DeepNormRow {
  int n, m;
  double encoder_alpha, encoder_beta, decoder_alpha, decoder_beta;
};

// DeepNet figure 2 evaluated at the depths of the papers.
class DeepNormConstantsTest : public ::testing::TestWithParam<DeepNormRow> {};

TEST_P(DeepNormConstantsTest, MatchTheTable) {
  const DeepNormRow& row = GetParam();
  const ModelOptions options = WithDepth(ResidualMethod::kDeepNorm, row.n, row.m);
  EXPECT_NEAR(options.encoder.residual_gain, row.encoder_alpha, 1e-4);
  EXPECT_NEAR(options.encoder.value_gain, row.encoder_beta, 1e-4);
  EXPECT_NEAR(options.decoder.residual_gain, row.decoder_alpha, 1e-4);
  EXPECT_NEAR(options.decoder.ffn_gain, row.decoder_beta, 1e-4);
  EXPECT_EQ(options.encoder.query_key_gain, 1);
  EXPECT_EQ(options.encoder.output_gain, options.encoder.value_gain);
  EXPECT_EQ(options.decoder.cross_value_gain, options.decoder.value_gain);
  EXPECT_EQ(options.decoder.cross_output_gain, options.decoder.value_gain);
}

INSTANTIATE_TEST_SUITE_P(Depths, DeepNormConstantsTest,
                         ::testing::Values(DeepNormRow{6, 6, 1.4179, 0.4970, 2.0598, 0.3433},
                                           DeepNormRow{18, 18, 1.9987, 0.3526, 2.7108, 0.2608},
                                           DeepNormRow{50, 50, 2.7505, 0.2562, 3.4996, 0.2021},
                                           DeepNormRow{60, 12, 2.6331, 0.2676, 2.4495, 0.2887},
                                           DeepNormRow{100, 100, 3.4157, 0.2063, 4.1618, 0.1699},
                                           DeepNormRow{250, 250, 4.5482, 0.1549, 5.2332, 0.1351},
                                           DeepNormRow{500, 500, 5.6482, 0.1248, 6.2233, 0.1136}));

TEST(ResidualMethodTest, BranchNormHasDeepNormsWeightsAndNoResidualGain) {
  const ModelOptions deepnorm = WithDepth(ResidualMethod::kDeepNorm, 100, 100);
  const ModelOptions branchnorm = WithDepth(ResidualMethod::kBranchNorm, 100, 100);
  EXPECT_EQ(branchnorm.encoder.residual_gain, 1);
  EXPECT_EQ(branchnorm.decoder.residual_gain, 1);
  EXPECT_EQ(branchnorm.encoder.ffn_gain, deepnorm.encoder.ffn_gain);
  EXPECT_EQ(branchnorm.decoder.value_gain, deepnorm.decoder.value_gain);
  EXPECT_EQ(branchnorm.branch_growth, BranchGrowth::kLinear);
  EXPECT_EQ(branchnorm.distribution, WeightDistribution::kXavierNormal);
}

TEST(ResidualMethodTest, PostAndPreLnDifferInPlacementOnly) {
  const ModelOptions post = WithDepth(ResidualMethod::kPostLn, 6, 6);
  const ModelOptions pre = WithDepth(ResidualMethod::kPreLn, 6, 6);
  EXPECT_EQ(post.encoder.norm, NormPlacement::kPost);
  EXPECT_EQ(pre.decoder.norm, NormPlacement::kPre);
  EXPECT_EQ(post.encoder.residual_gain, 1);
  EXPECT_EQ(post.encoder.value_gain, pre.encoder.value_gain);
  EXPECT_NEAR(post.encoder.query_key_gain, 0.70711, 1e-5);
  EXPECT_EQ(post.distribution, WeightDistribution::kXavierUniform);
}

TEST(ResidualMethodTest, NamesRoundTripAndUnknownOnesListTheRest) {
  for (const ResidualMethod method : AllResidualMethods()) {
    EXPECT_EQ(ParseResidualMethod(ResidualMethodName(method)).value(), method);
  }
  EXPECT_NE(ParseResidualMethod("deepnrom").status().message().find("branchnorm"), absl::string_view::npos);
}

TEST(ResidualMethodTest, DepthScaledInitialisationsAreOtherwisePostLn) {
  const ModelOptions init = WithDepth(ResidualMethod::kPostLnInit, 18, 18);
  const ModelOptions ds = WithDepth(ResidualMethod::kDsInit, 18, 18);
  for (const ModelOptions& options : {init, ds}) {
    EXPECT_EQ(options.encoder.norm, NormPlacement::kPost);
    EXPECT_EQ(options.decoder.residual_gain, 1);
    EXPECT_EQ(options.branch_growth, BranchGrowth::kConstant);
  }
  EXPECT_EQ(init.distribution, WeightDistribution::kXavierNormal);
  EXPECT_EQ(init.decoder.depth_init, DepthInit::kFromTop);
  EXPECT_EQ(ds.distribution, WeightDistribution::kXavierUniform);
  EXPECT_EQ(ds.encoder.depth_init, DepthInit::kInverseSqrt);
  EXPECT_EQ(ds.decoder.query_key_gain, 1);
  EXPECT_EQ(ds.decoder.cross_value_gain, 1);
}

}  // namespace
}  // namespace hadal

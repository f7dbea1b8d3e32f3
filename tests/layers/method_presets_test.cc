#include "layers/method_presets.h"

#include <cmath>
#include <set>
#include <tuple>

#include "gtest/gtest.h"
#include "layers/model_plan.h"

namespace hadal {
namespace {

ModelOptions WithDepth(ResidualMethod method, int encoder, int decoder) {
  ModelOptions options{
      .encoder_layers = encoder, .decoder_layers = decoder, .source_vocabulary = 100, .target_vocabulary = 100};
  ApplyResidualMethod(method, options);
  return options;
}

// DeepNet figure 2 evaluated at the depths of the papers: N, M; alpha, beta of the encoder and of the decoder.
TEST(ResidualMethodTest, DeepNormsConstantsAreThoseOfThePaper) {
  for (const auto& [n, m, encoder_alpha, encoder_beta, decoder_alpha, decoder_beta] :
       {std::tuple(6, 6, 1.4179, 0.4970, 2.0598, 0.3433),
        {60, 12, 2.6331, 0.2676, 2.4495, 0.2887},
        {100, 100, 3.4157, 0.2063, 4.1618, 0.1699},
        {500, 500, 5.6482, 0.1248, 6.2233, 0.1136}}) {
    const ModelOptions options = WithDepth(ResidualMethod::kDeepNorm, n, m);
    EXPECT_NEAR(options.encoder.residual_gain, encoder_alpha, 1e-4);
    EXPECT_NEAR(options.encoder.value_gain, encoder_beta, 1e-4);
    EXPECT_NEAR(options.decoder.residual_gain, decoder_alpha, 1e-4);
    EXPECT_NEAR(options.decoder.ffn_gain, decoder_beta, 1e-4);
    EXPECT_EQ(options.encoder.query_key_gain, 1);
    EXPECT_EQ(options.encoder.output_gain, options.encoder.value_gain);
    EXPECT_EQ(options.decoder.cross_value_gain, options.decoder.value_gain);
    EXPECT_EQ(options.decoder.cross_output_gain, options.decoder.value_gain);
  }
}

TEST(ResidualMethodTest, KeelsStreamWeighsAsMuchAsAllBranches) {
  const ModelOptions options = WithDepth(ResidualMethod::kKeel, 500, 250);
  EXPECT_EQ(options.encoder.residual_gain, 1000);
  EXPECT_EQ(options.decoder.residual_gain, 750);
  EXPECT_EQ(WithDepth(ResidualMethod::kKeel, 0, 250).decoder.residual_gain, 500);
}

TEST(ResidualMethodTest, LnScalingDividesTheNormsByTheRootOfTheLayer) {
  ModelOptions options = WithDepth(ResidualMethod::kLnScaling, 2, 4);
  const ModelPlan plan = ModelPlan::Make(options);
  for (const SublayerRecord& sublayer : plan.sublayers) {
    EXPECT_FLOAT_EQ(sublayer.norm_gain, sublayer.layer < 0 ? 1 : 1 / std::sqrt(sublayer.layer + 1.0f));
  }
  ModelOptions pre_ln = WithDepth(ResidualMethod::kPreLn, 2, 4);
  EXPECT_NE(plan.Hash(), ModelPlan::Make(pre_ln).Hash());
  options.encoder.norm_gain = options.decoder.norm_gain = DepthInit::kFlat;
  EXPECT_EQ(ModelPlan::Make(options).Hash(), ModelPlan::Make(pre_ln).Hash()) << "with equal scales it is Pre-LN";
}

TEST(ResidualMethodTest, MixLnIsPostLnBelowAndPreLnAbove) {
  const auto plan_of = [](ResidualMethod method, double share) {
    ModelOptions options = WithDepth(method, 9, 4);
    if (method == ResidualMethod::kMixLn && share >= 0) {
      options.encoder.post_norm_share = options.decoder.post_norm_share = share;
    }
    return ModelPlan::Make(options);
  };
  int post = 0;
  for (const SublayerRecord& sublayer : plan_of(ResidualMethod::kMixLn, -1).sublayers) {
    const int boundary = sublayer.stack == Stack::kEncoder ? 2 : 1;  // of 9 and of 4 layers
    const bool below = sublayer.layer >= 0 && sublayer.layer < boundary;
    EXPECT_EQ(sublayer.norm, below ? NormPlacement::kPost : NormPlacement::kPre);
    post += below ? 1 : 0;
  }
  EXPECT_EQ(post, 2 * 2 + 3);
  ModelOptions deep = WithDepth(ResidualMethod::kMixLn, 100, 4);
  deep.encoder.post_norm_share = 0.29;  // times 100 it is a little less than 29
  const ModelPlan plan = ModelPlan::Make(deep);
  EXPECT_EQ(plan.sublayers[2 * 29].norm, NormPlacement::kPost);
  EXPECT_EQ(plan.sublayers[2 * 29 + 1].norm, NormPlacement::kPre);
  EXPECT_EQ(plan_of(ResidualMethod::kMixLn, 0).Hash(), plan_of(ResidualMethod::kPreLn, 0).Hash());
  EXPECT_EQ(plan_of(ResidualMethod::kMixLn, 1).Hash(), plan_of(ResidualMethod::kPostLn, 0).Hash());
}

TEST(ResidualMethodTest, CompletePOfTwoLayersIsPreLn) {
  const ModelOptions deep = WithDepth(ResidualMethod::kCompleteP, 8, 4);
  EXPECT_EQ(deep.encoder.branch_gain, 0.25);
  EXPECT_EQ(deep.decoder.branch_gain, 0.5);
  EXPECT_EQ(deep.encoder.adam_epsilon_factor, 0.25);
  EXPECT_EQ(deep.decoder.adam_epsilon_factor, 0.5);
  ModelOptions base = WithDepth(ResidualMethod::kCompleteP, 2, 2), pre_ln = WithDepth(ResidualMethod::kPreLn, 2, 2);
  EXPECT_EQ(ModelPlan::Make(base).Hash(), ModelPlan::Make(pre_ln).Hash());
  EXPECT_EQ(base.decoder.adam_epsilon_factor, 1);
}

// Xavier's bounds fall with the width as muP's do; the norm in front of the output alone starts otherwise.
TEST(ResidualMethodTest, AWiderModelThanItsBaseStartsWithSmallerLogits) {
  ModelOptions options = WithDepth(ResidualMethod::kCompleteP, 8, 4);
  const ModelPlan plain = ModelPlan::Make(options);
  options.base_width = options.d_model;
  EXPECT_EQ(ModelPlan::Make(options).Hash(), plain.Hash());
  options.base_width = options.d_model / 4;
  const ModelPlan wide = ModelPlan::Make(options);
  EXPECT_NE(wide.Hash(), plain.Hash());
  options.d_model /= 4, options.d_ff /= 4;
  const ModelPlan base = ModelPlan::Make(options);
  int closing = 0;
  for (size_t p = 0; p < wide.parameters.size(); ++p) {
    const ParameterRecord& parameter = wide.parameters[p];
    const bool closes_decoder = parameter.role == ParameterRole::kClosingNormScale &&
                                wide.sublayers[parameter.sublayer].stack == Stack::kDecoder;
    closing += closes_decoder ? 1 : 0;
    if (closes_decoder) {
      EXPECT_EQ(parameter.init, InitKind::kConstant);
      EXPECT_EQ(parameter.init_scale, 0.5f);
      continue;
    }
    EXPECT_EQ(parameter.init, plain.parameters[p].init);
    EXPECT_EQ(parameter.init_scale, plain.parameters[p].init_scale);
    EXPECT_FLOAT_EQ(parameter.init_scale, base.parameters[p].init_scale / 2) << "a variance of 1/m";
  }
  EXPECT_EQ(closing, 1);
  options = WithDepth(ResidualMethod::kCompleteP, 8, 4);
  options.base_width = options.d_model / 4;
  options.block.norm_shift = false;
  const ModelPlan unshifted = ModelPlan::Make(options);
  const int32_t scale = unshifted.ParameterOf(unshifted.output_head() - 1, ParameterRole::kClosingNormScale);
  EXPECT_EQ(unshifted.parameters[scale].init_scale, 0.5f);
}

// (2N)^1/4 and (8N)^-1/4: DeepNet's figure 2.
TEST(ResidualMethodTest, DeepNormOfOneStack) {
  for (const auto& [layers, alpha, beta] : {std::tuple(6, 1.8612, 0.3799), {1000, 6.6874, 0.1057}}) {
    ModelOptions encoder = WithDepth(ResidualMethod::kDeepNorm, layers, 0);
    ApplyTorchscaleBeta(encoder);
    const ModelOptions decoder = WithDepth(ResidualMethod::kDeepNorm, 0, layers);
    for (const StackMethod& stack : {encoder.encoder, decoder.decoder}) {
      EXPECT_NEAR(stack.residual_gain, alpha, 1e-4);
      EXPECT_NEAR(stack.value_gain, beta, 1e-4);
    }
    for (const StackMethod& branchnorm : {WithDepth(ResidualMethod::kBranchNorm, layers, 0).encoder,
                                          WithDepth(ResidualMethod::kBranchNorm, 0, layers).decoder}) {
      EXPECT_EQ(branchnorm.residual_gain, 1);
      EXPECT_NEAR(branchnorm.ffn_gain, beta, 1e-4);
    }
  }
}

TEST(ResidualMethodTest, ConstantsOfOneStack) {
  EXPECT_DOUBLE_EQ(WithDepth(ResidualMethod::kTFixup, 0, 6).decoder.ffn_gain, std::pow(36, -0.25));
  EXPECT_DOUBLE_EQ(WithDepth(ResidualMethod::kTFixup, 0, 6).decoder.embedding_gain, std::pow(36, -0.25));
  EXPECT_DOUBLE_EQ(WithDepth(ResidualMethod::kSubLn, 0, 24).decoder.value_gain, std::sqrt(std::log(48)));
  EXPECT_DOUBLE_EQ(WithDepth(ResidualMethod::kB2tRescaled, 0, 100).decoder.ffn_gain, 0.1);
  EXPECT_NEAR(WithDepth(ResidualMethod::kB2tNoLn, 0, 18).decoder.skip_gain, 0.648, 1e-3);
  EXPECT_DOUBLE_EQ(WithDepth(ResidualMethod::kSubLn, 24, 0).encoder.value_gain, std::sqrt(std::log(48)));
  EXPECT_DOUBLE_EQ(WithDepth(ResidualMethod::kRFixup, 6, 0).encoder.ffn_gain, 1 / std::sqrt(12));
  for (const ResidualMethod method : AllResidualMethods()) {
    const ModelOptions both = WithDepth(method, 6, 6), encoder = WithDepth(method, 6, 0),
                       decoder = WithDepth(method, 0, 6);
    for (const StackMethod& absent : {encoder.decoder, decoder.encoder}) {
      EXPECT_EQ(absent.residual_gain, 1) << ResidualMethodName(method);
      EXPECT_EQ(absent.ffn_gain, 1) << ResidualMethodName(method) << ": constants of no layers";
    }
    EXPECT_EQ(encoder.encoder.norm, both.encoder.norm);
    EXPECT_EQ(decoder.decoder.norm, both.decoder.norm);
    EXPECT_TRUE(std::isfinite(encoder.encoder.ffn_gain));
  }
}

TEST(ResidualMethodTest, BranchNormHasDeepNormsWeightsAndNoResidualGain) {
  const ModelOptions deepnorm = WithDepth(ResidualMethod::kDeepNorm, 100, 100);
  const ModelOptions branchnorm = WithDepth(ResidualMethod::kBranchNorm, 100, 100);
  EXPECT_EQ(branchnorm.encoder.residual_gain, 1);
  EXPECT_EQ(branchnorm.decoder.residual_gain, 1);
  EXPECT_EQ(branchnorm.encoder.ffn_gain, deepnorm.encoder.ffn_gain);
  EXPECT_EQ(branchnorm.decoder.value_gain, deepnorm.decoder.value_gain);
  EXPECT_EQ(branchnorm.branch_growth, BranchGrowth::kLinear);
}

TEST(ResidualMethodTest, PostAndPreLnDifferInPlacementOnly) {
  const ModelOptions post = WithDepth(ResidualMethod::kPostLn, 6, 6);
  const ModelOptions pre = WithDepth(ResidualMethod::kPreLn, 6, 6);
  EXPECT_EQ(post.encoder.norm, NormPlacement::kPost);
  EXPECT_EQ(pre.decoder.norm, NormPlacement::kPre);
  EXPECT_EQ(post.encoder.residual_gain, 1);
  EXPECT_EQ(post.encoder.value_gain, pre.encoder.value_gain);
  EXPECT_NEAR(post.encoder.query_key_gain, 0.70711, 1e-5);
}

TEST(ResidualMethodTest, NamesRoundTripAndUnknownOnesListTheRest) {
  for (const ResidualMethod method : AllResidualMethods()) {
    EXPECT_EQ(ParseResidualMethod(ResidualMethodName(method)).value(), method);
  }
  EXPECT_NE(ParseResidualMethod("deepnrom").status().message().find("branchnorm"), absl::string_view::npos);
}

TEST(ResidualMethodTest, FewMethodsStartFromANormalDistribution) {
  const std::set<ResidualMethod> normal = {ResidualMethod::kDeepNorm, ResidualMethod::kBranchNorm,
                                           ResidualMethod::kPostLnInit, ResidualMethod::kSubLn};
  for (const ResidualMethod method : AllResidualMethods()) {
    EXPECT_EQ(WithDepth(method, 6, 6).distribution == WeightDistribution::kXavierNormal, normal.contains(method))
        << ResidualMethodName(method);
  }
}

TEST(ResidualMethodTest, DepthScaledInitialisationsAreOtherwisePostLn) {
  const ModelOptions init = WithDepth(ResidualMethod::kPostLnInit, 18, 18);
  const ModelOptions ds = WithDepth(ResidualMethod::kDsInit, 18, 18);
  for (const ModelOptions& options : {init, ds}) {
    EXPECT_EQ(options.encoder.norm, NormPlacement::kPost);
    EXPECT_EQ(options.decoder.residual_gain, 1);
    EXPECT_EQ(options.branch_growth, BranchGrowth::kConstant);
  }
  EXPECT_EQ(init.decoder.depth_init, DepthInit::kFromTop);
  EXPECT_EQ(ds.encoder.depth_init, DepthInit::kInverseSqrt);
  EXPECT_EQ(ds.decoder.query_key_gain, 1);
  EXPECT_EQ(ds.decoder.cross_value_gain, 1);
}

// Encoder, decoder: 0.67 N^-1/4 and (9M)^-1/4.
TEST(ResidualMethodTest, TFixupScalesByDepth) {
  for (const auto& [layers, encoder, decoder] :
       {std::tuple(6, 0.428, 0.369), {18, 0.325, 0.280}, {100, 0.212, 0.183}}) {
    const ModelOptions options = WithDepth(ResidualMethod::kTFixup, layers, layers);
    EXPECT_NEAR(options.encoder.ffn_gain, encoder, 6e-4);
    EXPECT_NEAR(options.encoder.value_gain, encoder, 6e-4);
    EXPECT_NEAR(options.decoder.cross_output_gain, decoder, 6e-4);
    EXPECT_NEAR(options.decoder.embedding_gain, decoder, 6e-4);
    EXPECT_NEAR(options.encoder.embedding_gain, decoder, 6e-4);
    EXPECT_NEAR(options.encoder.query_key_gain, 0.70711, 1e-5);
    EXPECT_EQ(options.decoder.norm, NormPlacement::kNone);
  }
}

TEST(ResidualMethodTest, DlclIsPreOrPostLnWithCombinedLayers) {
  for (const auto& [dlcl, plain] : {std::pair(ResidualMethod::kDlclPre, ResidualMethod::kPreLn),
                                    {ResidualMethod::kDlclPost, ResidualMethod::kPostLn}}) {
    for (const int encoder_layers : {0, 18}) {
      const ModelOptions options = WithDepth(dlcl, encoder_layers, 18), other = WithDepth(plain, encoder_layers, 18);
      EXPECT_EQ(options.encoder.combine_layers, encoder_layers > 0);
      EXPECT_TRUE(options.decoder.combine_layers && !other.decoder.combine_layers);
      EXPECT_EQ(options.decoder.norm, other.decoder.norm);
      EXPECT_EQ(options.decoder.query_key_gain, other.decoder.query_key_gain);
      EXPECT_EQ(options.distribution, other.distribution);
    }
  }
}

// admin-torch's constant for n sublayers of a stack: here 2N and 3M.
TEST(ResidualMethodTest, ClosedAdminStartsFromAConstantOfTheDepth) {
  for (const auto& [layers, encoder, decoder] : {std::tuple(100, 6.075, 7.193), {500, 11.995, 14.291}}) {
    const ModelOptions options = WithDepth(ResidualMethod::kAdminClosed, layers, layers);
    EXPECT_NEAR(options.encoder.initial_omega, encoder, 1e-3);
    EXPECT_NEAR(options.decoder.initial_omega, decoder, 1e-3);
    EXPECT_EQ(options.encoder.residual_gain, 1);
    EXPECT_EQ(options.decoder.norm, NormPlacement::kPost);
  }
  EXPECT_EQ(WithDepth(ResidualMethod::kAdmin, 6, 6).encoder.omega, Omega::kProfiled);
}

// L^-1/6 and L^-1/2 of L = 5N branches.
TEST(ResidualMethodTest, RFixupScalesByTheNumberOfBranches) {
  for (const auto& [layers, attention, ffn] : {std::tuple(18, 0.4724, 0.1054), {500, 0.2714, 0.0200}}) {
    const ModelOptions options = WithDepth(ResidualMethod::kRFixup, layers, layers);
    EXPECT_EQ(options.encoder.norm, NormPlacement::kNone);
    EXPECT_NEAR(options.encoder.query_key_gain * std::sqrt(2), attention, 1e-4);
    EXPECT_NEAR(options.decoder.value_gain * std::sqrt(2), attention, 1e-4);
    EXPECT_NEAR(options.decoder.cross_value_gain * std::sqrt(2), attention, 1e-4);
    EXPECT_NEAR(options.decoder.ffn_gain, ffn, 1e-4);
    EXPECT_EQ(options.encoder.output_gain, 0);
    EXPECT_EQ(options.decoder.cross_output_gain, 0);
    EXPECT_EQ(options.encoder.ffn_output_factor, 0);
    EXPECT_EQ(options.decoder.projection_gain, 0);
    EXPECT_FALSE(options.encoder.linear_bias || options.decoder.linear_bias);
  }
}

TEST(ResidualMethodTest, SubLnGainsGrowWithDepth) {
  for (const auto& [layers, encoder, decoder] : {std::tuple(6, 1.547, 1.700), {500, 4.104, 2.704}}) {
    const ModelOptions options = WithDepth(ResidualMethod::kSubLn, layers, layers);
    EXPECT_NEAR(options.encoder.value_gain, encoder, 1e-3);
    EXPECT_NEAR(options.decoder.ffn_gain, decoder, 1e-3);
    EXPECT_EQ(options.decoder.cross_value_gain, 1) << "cross-attention is not scaled";
    EXPECT_EQ(options.decoder.cross_output_gain, 1);
    EXPECT_EQ(options.encoder.query_key_gain, 1);
    EXPECT_TRUE(options.decoder.attention_inner_norm && options.encoder.ffn_inner_norm);
  }
}

TEST(ResidualMethodTest, ResiDualIsPostLnWithASecondStreamAndANormBehindIt) {
  ModelOptions options = WithDepth(ResidualMethod::kResidualDual, 2, 3);
  const ModelPlan plan = ModelPlan::Make(options);
  int closing = 0;
  for (const SublayerRecord& sublayer : plan.sublayers) {
    EXPECT_EQ(sublayer.second_gain, sublayer.layer >= 0 ? 0.05f : 0);
    closing += sublayer.closing_norm;
  }
  EXPECT_EQ(closing, 2);
  EXPECT_EQ(plan.ParameterName(plan.ParameterOf(4, ParameterRole::kClosingNormScale)), "encoder.layer_norm.weight");
  ModelOptions post_ln = WithDepth(ResidualMethod::kPostLn, 2, 3);
  EXPECT_NE(plan.Hash(), ModelPlan::Make(post_ln).Hash());
  options.encoder.second_stream_gain = 0.1;
  EXPECT_NE(plan.Hash(), ModelPlan::Make(options).Hash());
  options.encoder.second_stream_gain = options.decoder.second_stream_gain = 0;
  EXPECT_EQ(ModelPlan::Make(options).Hash(), ModelPlan::Make(post_ln).Hash());
}

TEST(ResidualMethodTest, MhcIsPreLnWithMapsOfFourStreams) {
  const ModelPlan lite = ModelPlan::Make(WithDepth(ResidualMethod::kMhcLite, 2, 3));
  EXPECT_EQ(lite.parameters[lite.ParameterOf(1, ParameterRole::kHyperMapWeight)].rows, 8 + 24);
  ModelOptions options = WithDepth(ResidualMethod::kMhc, 2, 3);
  const ModelPlan plan = ModelPlan::Make(options);
  for (int32_t s = 0; s < static_cast<int32_t>(plan.sublayers.size()); ++s) {
    const int32_t weight = plan.ParameterOf(s, ParameterRole::kHyperMapWeight);
    EXPECT_EQ(weight >= 0, plan.sublayers[s].layer >= 0);
    if (weight < 0) continue;
    EXPECT_EQ(plan.parameters[weight].rows, 24);
    EXPECT_EQ(plan.parameters[weight].columns, 4 * options.d_model);
    EXPECT_EQ(plan.parameters[weight + 1].init_scale, 0.01f);
    EXPECT_EQ(plan.parameters[weight + 2].init, InitKind::kZero);
  }
  EXPECT_EQ(plan.ParameterName(plan.ParameterOf(1, ParameterRole::kHyperMapGates)),
            "encoder.layers.0.self_attn.streams.gates");
  EXPECT_EQ(plan.ParameterName(plan.ParameterOf(2, ParameterRole::kHyperMapBias)), "encoder.layers.0.ffn.streams.bias");
}

// Blocks are counted in sublayers: 16 of a stack, or of a given length.
TEST(ResidualMethodTest, AttnResIsPreLnWithAQueryForEachSublayerButTheFirst) {
  for (const ResidualMethod method : {ResidualMethod::kAttnRes, ResidualMethod::kAttnResDelta}) {
    const bool delta = method == ResidualMethod::kAttnResDelta;
    ModelOptions options = WithDepth(method, 2, 18);
    const ModelPlan plan = ModelPlan::Make(options);
    EXPECT_EQ(plan.BlockSublayers(Stack::kEncoder), 1);
    EXPECT_EQ(plan.BlockSublayers(Stack::kDecoder), 4);  // of 54
    for (int32_t s = 0; s < static_cast<int32_t>(plan.sublayers.size()); ++s) {
      EXPECT_EQ(plan.ParameterOf(s, ParameterRole::kReaderQuery) >= 0,
                plan.sublayers[s].layer >= 0 && !plan.begins_stack(s));
      EXPECT_EQ(plan.ParameterOf(s, ParameterRole::kClosingReaderQuery) >= 0,
                plan.sublayers[s].closing_norm == 1 && !delta);
    }
    const auto name = [&](int32_t sublayer, ParameterRole role) {
      return plan.ParameterName(plan.ParameterOf(sublayer, role));
    };
    const int32_t decoder = plan.target_embedding() + 1;
    EXPECT_EQ(name(2, ParameterRole::kReaderQuery), "encoder.layers.0.ffn_res_proj.weight");
    EXPECT_EQ(name(decoder + 1, ParameterRole::kReaderScale), "decoder.layers.0.encoder_attn_res_norm.weight");
    EXPECT_EQ(name(decoder + 3, ParameterRole::kReaderQuery), "decoder.layers.1.self_attn_res_proj.weight");
    if (!delta) {
      EXPECT_EQ(name(4, ParameterRole::kClosingReaderQuery), "encoder.output_attn_res_proj.weight");
    }
    options.decoder.attention_residual_block_sublayers = 6;
    const ModelPlan longer = ModelPlan::Make(options);
    EXPECT_EQ(longer.BlockSublayers(Stack::kDecoder), 6);
    EXPECT_NE(longer.Hash(), plan.Hash());
    options.decoder.attention_residual_block_sublayers = 4;
    EXPECT_EQ(ModelPlan::Make(options).Hash(), plan.Hash());
    EXPECT_NE(plan.Hash(), ModelPlan::Make(WithDepth(ResidualMethod::kPreLn, 2, 18)).Hash());
  }
}

// Of 60 and 12 layers: what depends on the encoder's depth, on the decoder's, or on both.
TEST(ResidualMethodTest, ConstantsOfStacksOfUnequalDepth) {
  const ModelOptions t_fixup = WithDepth(ResidualMethod::kTFixup, 60, 12);
  EXPECT_DOUBLE_EQ(t_fixup.encoder.ffn_gain, 0.67 * std::pow(60.0, -0.25));
  EXPECT_DOUBLE_EQ(t_fixup.encoder.embedding_gain, std::pow(9 * 60.0, -0.25));
  EXPECT_DOUBLE_EQ(t_fixup.decoder.ffn_gain, std::pow(9 * 12.0, -0.25));
  const ModelOptions r_fixup = WithDepth(ResidualMethod::kRFixup, 60, 12);
  EXPECT_DOUBLE_EQ(r_fixup.encoder.ffn_gain, std::pow(2 * 60.0 + 3 * 12, -0.5));
  EXPECT_DOUBLE_EQ(WithDepth(ResidualMethod::kRFixup, 0, 12).decoder.ffn_gain, std::pow(2 * 12.0, -0.5));
  const ModelOptions sub_ln = WithDepth(ResidualMethod::kSubLn, 60, 12);
  EXPECT_DOUBLE_EQ(sub_ln.encoder.value_gain, std::sqrt(std::log(3 * 12.0) * std::log(2 * 60.0) / 3));
  EXPECT_DOUBLE_EQ(sub_ln.decoder.value_gain, std::sqrt(std::log(3 * 12.0)));
  const ModelOptions deepnorm = WithDepth(ResidualMethod::kDeepNorm, 60, 12);
  ModelOptions torchscale = deepnorm;
  ApplyTorchscaleBeta(torchscale);  // what torchscale's code makes of (N^4 M)^-1/16 in the encoder
  EXPECT_NEAR(torchscale.encoder.ffn_gain, 1.15 * std::pow(std::pow(60.0, 4) * 12, -1.0 / 16), 1e-12);
  EXPECT_EQ(torchscale.encoder.value_gain, torchscale.encoder.ffn_gain);
  EXPECT_EQ(torchscale.encoder.query_key_gain, 1);
  EXPECT_EQ(torchscale.encoder.residual_gain, deepnorm.encoder.residual_gain);
  EXPECT_EQ(torchscale.decoder.ffn_gain, deepnorm.decoder.ffn_gain);
  const ModelOptions admin = WithDepth(ResidualMethod::kAdminClosed, 60, 12);
  EXPECT_DOUBLE_EQ(admin.encoder.initial_omega, std::sqrt(121 / std::log(121.0) - 1));
  EXPECT_DOUBLE_EQ(admin.decoder.initial_omega, std::sqrt(37 / std::log(37.0) - 1));
}

TEST(ResidualMethodTest, B2tAddsTheLayersInput) {
  const ModelOptions b2t = WithDepth(ResidualMethod::kB2t, 60, 12);
  const ModelOptions post = WithDepth(ResidualMethod::kPostLn, 60, 12);
  EXPECT_EQ(b2t.encoder.skip_gain, 1);
  EXPECT_EQ(b2t.decoder.layer_gain, 1);
  EXPECT_EQ(b2t.encoder.norm, NormPlacement::kPost);
  EXPECT_EQ(b2t.encoder.output_gain, post.encoder.output_gain);
  const ModelOptions rescaled = WithDepth(ResidualMethod::kB2tRescaled, 100, 25);
  EXPECT_DOUBLE_EQ(rescaled.encoder.ffn_gain, 0.1);
  EXPECT_DOUBLE_EQ(rescaled.encoder.query_key_gain, 0.1 * post.encoder.query_key_gain);
  EXPECT_DOUBLE_EQ(rescaled.decoder.cross_output_gain, 0.2);
  for (double StackMethod::*gain :
       {&StackMethod::value_gain, &StackMethod::output_gain, &StackMethod::cross_value_gain}) {
    EXPECT_DOUBLE_EQ(rescaled.encoder.*gain, 0.1 * (post.encoder.*gain));
    EXPECT_DOUBLE_EQ(rescaled.decoder.*gain, 0.2 * (post.decoder.*gain));
  }
}

// Equations 6 to 8: a is largest at 9 layers.
TEST(ResidualMethodTest, B2tWithoutNormsHasGains) {
  for (const auto& [layers, skip] : {std::pair(6, 0.5), {9, 0.719}, {18, 0.648}, {60, 0.541}}) {
    const ModelOptions options = WithDepth(ResidualMethod::kB2tNoLn, layers, 6);
    EXPECT_NEAR(options.encoder.skip_gain, skip, 1e-3);
    EXPECT_NEAR(options.encoder.layer_gain, 0.2872, 1e-4);  // d_model 512
    EXPECT_EQ(options.encoder.norm, NormPlacement::kNone);
    EXPECT_EQ(options.decoder.skip_gain, 0.5);
  }
}

}  // namespace
}  // namespace hadal

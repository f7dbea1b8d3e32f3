#include "layers/model_options.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(ValidateModelOptionsTest, NamesFieldValueAndRange) {
  ModelOptions options = {.source_vocabulary = 100, .target_vocabulary = 100};
  EXPECT_TRUE(ValidateModelOptions(options).ok());
  options.heads = 7;
  EXPECT_EQ(ValidateModelOptions(options).message(), "model: heads = 7 must divide d_model = 512");
  options.heads = 8;
  options.dropout = 1.5;
  EXPECT_EQ(ValidateModelOptions(options).message(), "model: dropout = 1.5, allowed: 0 to 0.99");
  options.dropout = 0;
  options.target_vocabulary = 99;
  EXPECT_FALSE(ValidateModelOptions(options).ok());
  options.sharing = EmbeddingSharing::kDecoder;
  EXPECT_TRUE(ValidateModelOptions(options).ok());
  options.branch_growth = BranchGrowth::kSigmoid;
  EXPECT_EQ(ValidateModelOptions(options).message(), "model: branch_growth_steepness = 0, allowed: 0.01 to 50");
}

TEST(ValidateModelOptionsTest, EveryFieldHasARange) {
  const ModelOptions good = {.source_vocabulary = 100, .target_vocabulary = 100, .sharing = EmbeddingSharing::kDecoder};
  ASSERT_TRUE(ValidateModelOptions(good).ok());
  const auto refused = [&](const char* field, auto change) {
    ModelOptions options = good;
    change(options);
    const std::string message(ValidateModelOptions(options).message());
    EXPECT_NE(message.find(std::string("model: ") + field + " = "), std::string::npos) << field << ": " << message;
  };
  refused("encoder_layers", [](ModelOptions& o) { o.encoder_layers = 10001; });
  refused("decoder_layers", [](ModelOptions& o) { o.decoder_layers = 0; });
  refused("decoder_layers", [](ModelOptions& o) { o.decoder_layers = 10001; });
  refused("d_model", [](ModelOptions& o) { o.d_model = 0; });
  refused("d_ff", [](ModelOptions& o) { o.d_ff = 0; });
  refused("heads", [](ModelOptions& o) { o.heads = 0; });
  refused("source_vocabulary", [](ModelOptions& o) { o.source_vocabulary = 4; });
  refused("target_vocabulary", [](ModelOptions& o) { o.target_vocabulary = 4; });
  refused("max_positions", [](ModelOptions& o) { o.max_positions = 1; });
  refused("max_positions", [](ModelOptions& o) { o.max_positions = 65537; });
  refused("dropout", [](ModelOptions& o) { o.dropout = -0.1; });
  refused("attention_dropout", [](ModelOptions& o) { o.attention_dropout = 1; });
  refused("activation_dropout", [](ModelOptions& o) { o.activation_dropout = 1; });
  refused("label_smoothing", [](ModelOptions& o) { o.label_smoothing = 1; });
  refused("branch_growth_updates", [](ModelOptions& o) {
    o.branch_growth = BranchGrowth::kLinear;
    o.branch_growth_updates = 0;
  });
}

TEST(ValidateModelOptionsTest, AdaptiveCutoffsAscendAndLeaveWidthAndSmoothingAlone) {
  ModelOptions options = {.source_vocabulary = 100, .target_vocabulary = 100, .label_smoothing = 0};
  options.adaptive_cutoffs = {.ids = {20, 60}, .count = 2};
  EXPECT_TRUE(ValidateModelOptions(options).ok());
  options.adaptive_factor = 23;
  EXPECT_EQ(ValidateModelOptions(options).message(),
            "model: d_model = 512 leaves no column for band 2 of adaptive_cutoffs with adaptive_factor = 23; use fewer "
            "cutoffs or a smaller factor");
  options.adaptive_factor = 4;
  options.adaptive_cutoffs.ids[1] = 20;
  EXPECT_EQ(ValidateModelOptions(options).message(), "model: adaptive_cutoffs = 20, allowed: 21 to 99");
  options.adaptive_cutoffs.ids[1] = 100;
  EXPECT_FALSE(ValidateModelOptions(options).ok());
  options.adaptive_cutoffs.ids[1] = 60;
  options.label_smoothing = 0.1;
  EXPECT_EQ(ValidateModelOptions(options).message(),
            "model: label_smoothing = 0.1 is not allowed with adaptive_cutoffs: the adaptive softmax does not compute "
            "the other words' probabilities. Set model.label_smoothing to 0.");
}

TEST(ValidateModelOptionsTest, FixupsScalarsTakeThePlaceOfOthers) {
  ModelOptions options = {.source_vocabulary = 100, .target_vocabulary = 100};
  options.decoder.fixup_scalars = true;
  EXPECT_TRUE(ValidateModelOptions(options).ok());
  options.decoder.ffn_inner_norm = true;
  EXPECT_EQ(ValidateModelOptions(options).message(),
            "model: fixup_scalars of the decoder is not allowed with ffn_inner_norm: both stand in front of W_2");
  options.decoder.learned_branch_gain = true;
  EXPECT_EQ(
      ValidateModelOptions(options).message(),
      "model: fixup_scalars of the decoder is not allowed with learned_branch_gain: a branch has one learned gain");
}

TEST(ValidateModelOptionsTest, FixupsScalarsBehindAStackExcludeACombinationThere) {
  ModelOptions options = {.source_vocabulary = 100, .target_vocabulary = 100};
  options.encoder.combine_layers = options.decoder.fixup_scalars = true;
  EXPECT_TRUE(ValidateModelOptions(options).ok());
  options.encoder.fixup_scalars = true;
  EXPECT_EQ(ValidateModelOptions(options).message(),
            "model: fixup_scalars of the encoder is not allowed with combine_layers: both stand behind the stack");
}

TEST(ValidateModelOptionsTest, ASecondStreamStandsBesideNormsBehindSums) {
  ModelOptions options = {.source_vocabulary = 100, .target_vocabulary = 100};
  options.decoder.second_stream_gain = 0.5;
  EXPECT_TRUE(ValidateModelOptions(options).ok());
  options.decoder.norm = NormPlacement::kPre;
  EXPECT_EQ(
      ValidateModelOptions(options).message(),
      "model: second_stream_gain of the decoder is 0.5, but norm is not \"post\": without norms between sublayers "
      "the two streams are one. Set second_stream_gain to 0, or norm to \"post\".");
  options.decoder.norm = NormPlacement::kPost;
  options.decoder.combine_layers = true;
  EXPECT_NE(ValidateModelOptions(options).message().find("combine_layers is set"), absl::string_view::npos);
}

TEST(ValidateModelOptionsTest, AnEncoderThatIsNotThereIsNotJudged) {
  ModelOptions options = {.encoder_layers = 0, .target_vocabulary = 100};
  options.encoder.norm_gain = DepthInit::kInverseSqrt;  // which needs Pre-LN
  EXPECT_TRUE(ValidateModelOptions(options).ok()) << ValidateModelOptions(options);
}

TEST(ValidateModelOptionsTest, ASecondStreamIsNoneOrCanBeSeen) {
  ModelOptions options = {.source_vocabulary = 100, .target_vocabulary = 100};
  options.decoder.second_stream_gain = 1e-50;  // 0 as a float
  EXPECT_FALSE(ValidateModelOptions(options).ok());
}

TEST(ValidateModelOptionsTest, GainsOfNormsNeedNormsInFrontOfBranches) {
  ModelOptions options = {.source_vocabulary = 100, .target_vocabulary = 100};
  options.decoder.norm_gain = DepthInit::kInverseSqrt;
  EXPECT_EQ(ValidateModelOptions(options).message(),
            "model: norm_gain of the decoder is \"inverse_sqrt\", but norm is \"post\": the gain stands behind a norm "
            "in front of each branch. Set norm to \"pre\", or norm_gain to \"flat\".");
  options.decoder.norm = NormPlacement::kPre;
  EXPECT_TRUE(ValidateModelOptions(options).ok());
}

TEST(ValidateModelOptionsTest, PostLnBelowIsForPreLnAbove) {
  ModelOptions options = {.source_vocabulary = 100, .target_vocabulary = 100};
  options.encoder.post_norm_share = 0.25;
  EXPECT_EQ(ValidateModelOptions(options).message(),
            "model: post_norm_share of the encoder is 0.25, but norm is not \"pre\": the layers above that share are "
            "Pre-LN. Set post_norm_share to 0, or norm to \"pre\".");
  options.encoder.norm = NormPlacement::kPre;
  EXPECT_TRUE(ValidateModelOptions(options).ok());
  options.encoder.combine_layers = true;
  EXPECT_EQ(ValidateModelOptions(options).message(),
            "model: post_norm_share of the encoder is 0.25, but combine_layers is set: a combination has norms of one "
            "placement. Set post_norm_share to 0, or combine_layers to false.");
}

TEST(ValidateModelOptionsTest, ABaseWidthIsForPreLn) {
  ModelOptions good = {.source_vocabulary = 100, .target_vocabulary = 100, .base_width = 64};
  good.encoder.norm = good.decoder.norm = NormPlacement::kPre;
  EXPECT_TRUE(ValidateModelOptions(good).ok());
  const auto refused = [&](const char* words, auto change) {
    ModelOptions options = good;
    change(options);
    const std::string message(ValidateModelOptions(options).message());
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  refused("not Pre-LN", [](ModelOptions& o) { o.encoder.norm = NormPlacement::kPost; });
  refused("are combined", [](ModelOptions& o) { o.decoder.combine_layers = true; });
  refused("with speech", [](ModelOptions& o) { o.source_vocabulary = 0, o.frame_width = 80; });
  refused("not Pre-LN", [](ModelOptions& o) { o.decoder.post_norm_share = 0.25; });
  refused("with an adaptive softmax", [](ModelOptions& o) {
    o.label_smoothing = 0;
    o.adaptive_cutoffs = {.ids = {20}, .count = 1};
  });
  refused("base_width = -1, allowed", [](ModelOptions& o) { o.base_width = -1; });
}

TEST(ValidateModelOptionsTest, SeveralStreamsTakeThePlaceOfGainsAndSkips) {
  ModelOptions good = {.source_vocabulary = 100, .target_vocabulary = 100};
  good.encoder = good.decoder = {.norm = NormPlacement::kPre, .residual_streams = 4};
  EXPECT_TRUE(ValidateModelOptions(good).ok());
  const auto refused = [&](const char* words, auto change) {
    ModelOptions options = good;
    change(options.decoder);
    const std::string message(ValidateModelOptions(options).message());
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  refused("residual_streams = 9, allowed: 1 to 8", [](StackMethod& s) { s.residual_streams = 9; });
  refused("residual_streams of the decoder is 4, but norm", [](StackMethod& s) { s.norm = NormPlacement::kPost; });
  refused("residual_gain is not 1", [](StackMethod& s) { s.residual_gain = 2; });
  refused("learned_branch_gain is set", [](StackMethod& s) { s.learned_branch_gain = true; });
  refused("combine_layers is set", [](StackMethod& s) { s.combine_layers = true; });
  refused("post_norm_share is not 0", [](StackMethod& s) { s.post_norm_share = 0.25; });
  refused("omega is not \"none\"", [](StackMethod& s) { s.omega = Omega::kProfiled; });
  refused("skip_gain is not 0", [](StackMethod& s) { s.skip_gain = 1; });
  refused("layer_gain is not 1", [](StackMethod& s) { s.layer_gain = 0.5; });
  refused("fixup_scalars is set", [](StackMethod& s) { s.fixup_scalars = true; });
}

TEST(ValidateModelOptionsTest, SourceAndEncoderBelongTogether) {
  ModelOptions options = {.encoder_layers = 0, .target_vocabulary = 100};
  EXPECT_TRUE(ValidateModelOptions(options).ok()) << "sharing has nothing to share with";
  options.source_vocabulary = 100;
  EXPECT_NE(ValidateModelOptions(options).message().find("hadal prepare --monolingual"), absl::string_view::npos);
  options.encoder_layers = 3;
  EXPECT_TRUE(ValidateModelOptions(options).ok());
  options.source_vocabulary = 0;
  EXPECT_NE(ValidateModelOptions(options).message().find("the corpus is plain text"), absl::string_view::npos);
}

TEST(ValidateModelOptionsTest, SpeechHasAnEncoderAndNoSourceVocabulary) {
  const ModelOptions good = {.target_vocabulary = 100, .frame_width = 80};
  EXPECT_TRUE(ValidateModelOptions(good).ok());
  const auto refused = [&](const char* words, auto change) {
    ModelOptions options = good;
    change(options);
    const std::string message(ValidateModelOptions(options).message());
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  refused("encoder_layers = 0 is a language model", [](ModelOptions& o) { o.encoder_layers = 0; });
  refused("source_vocabulary = 100", [](ModelOptions& o) { o.source_vocabulary = 100; });
  refused("front_end_channels = 7 must be even", [](ModelOptions& o) { o.front_end_channels = 7; });
  refused("front_end_channels = 0, allowed", [](ModelOptions& o) { o.front_end_channels = 0; });
  refused("frame_width = 65537, allowed", [](ModelOptions& o) { o.frame_width = 65537; });
}

TEST(ModelOptionsTest, DepthInWords) {
  EXPECT_EQ(DepthName({.encoder_layers = 3, .decoder_layers = 5}), "3L-5L");
  EXPECT_EQ(DepthName({.encoder_layers = 0, .decoder_layers = 5}), "5L decoder-only");
  EXPECT_EQ((ModelOptions{.encoder_layers = 3, .decoder_layers = 5}.decoder_sublayers()), 15);
  EXPECT_EQ((ModelOptions{.encoder_layers = 0, .decoder_layers = 5}.decoder_sublayers()), 10);
}

TEST(DepthInitTest, FactorsOfEachLayer) {
  for (const DepthInit init : {DepthInit::kFlat, DepthInit::kInverseSqrt, DepthInit::kFromTop}) {
    EXPECT_EQ(DepthInitFactor(init, init == DepthInit::kFromTop ? 17 : 0, 18), 1);
  }
  EXPECT_EQ(DepthInitFactor(DepthInit::kFlat, 9, 18), 1);
  EXPECT_DOUBLE_EQ(DepthInitFactor(DepthInit::kInverseSqrt, 17, 18), 1 / std::sqrt(18.0));
  EXPECT_DOUBLE_EQ(DepthInitFactor(DepthInit::kFromTop, 0, 18), 1.0 / 18);
  EXPECT_DOUBLE_EQ(DepthInitFactor(DepthInit::kFromTop, 16, 18), 1.0 / 2);
}

}  // namespace
}  // namespace hadal

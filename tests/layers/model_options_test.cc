#include "layers/model_options.h"

#include <cmath>
#include <initializer_list>
#include <set>

#include "gtest/gtest.h"
#include "layers/model_fields.h"

namespace hadal {
namespace {

using O = ModelOptions;
using Change = void (*)(ModelOptions&);

struct Case {
  const char* words;  // of the message; "": the options are allowed
  Change change;
};

// Each change of `good` is refused with its words.
void ExpectMessages(const ModelOptions& good, std::initializer_list<Case> cases) {
  EXPECT_TRUE(ValidateModelOptions(good).ok()) << ValidateModelOptions(good);
  for (const Case& c : cases) {
    ModelOptions options = good;
    c.change(options);
    const std::string message(ValidateModelOptions(options).message());
    EXPECT_NE(message.find(c.words), std::string::npos) << c.words << ", but: " << message;
    EXPECT_EQ(message.empty(), *c.words == '\0') << message;
  }
}

const ModelOptions kGood = {.source_vocabulary = 100, .target_vocabulary = 100};

TEST(ValidateModelOptionsTest, NamesFieldValueAndRange) {
  ExpectMessages(kGood, {{"model: heads = 7 must divide d_model = 512", [](O& o) { o.heads = 7; }},
                         {"model: dropout = 1.5, allowed: 0 to 0.99", [](O& o) { o.dropout = 1.5; }},
                         {"one embedding for all needs one vocabulary", [](O& o) { o.target_vocabulary = 99; }},
                         {"", [](O& o) { o.target_vocabulary = 99, o.sharing = EmbeddingSharing::kDecoder; }},
                         {"model: branch_growth_steepness = 0, allowed: 0.01 to 50",
                          [](O& o) { o.branch_growth = BranchGrowth::kSigmoid; }},
                         {"model: encoder_layers = ", [](O& o) { o.encoder_layers = 10001; }},
                         {"model: decoder_layers = ", [](O& o) { o.decoder_layers = 0; }},
                         {"model: decoder_layers = ", [](O& o) { o.decoder_layers = 10001; }},
                         {"model: d_model = ", [](O& o) { o.d_model = 0; }},
                         {"model: d_ff = ", [](O& o) { o.d_ff = 0; }},
                         {"model: heads = ", [](O& o) { o.heads = 0; }},
                         {"model: source_vocabulary = ", [](O& o) { o.source_vocabulary = 4; }},
                         {"model: target_vocabulary = ", [](O& o) { o.target_vocabulary = 4; }},
                         {"model: max_positions = ", [](O& o) { o.max_positions = 1; }},
                         {"model: max_positions = ", [](O& o) { o.max_positions = 65537; }},
                         {"model: dropout = ", [](O& o) { o.dropout = -0.1; }},
                         {"model: attention_dropout = ", [](O& o) { o.attention_dropout = 1; }},
                         {"model: activation_dropout = ", [](O& o) { o.activation_dropout = 1; }},
                         {"model: label_smoothing = ", [](O& o) { o.label_smoothing = 1; }},
                         {"model: block.norm_epsilon = 0", [](O& o) { o.block.norm_epsilon = 0; }},
                         {"model: block.kv_heads = 3 must divide heads = 8", [](O& o) { o.block.kv_heads = 3; }},
                         {"", [](O& o) { o.heads = 7, o.block.head_width = 10; }},
                         {"model: block.rotary_share = 0.02 of heads of 64 columns turns 1 columns",
                          [](O& o) { o.block.positions = Positions::kRotary, o.block.rotary_share = 0.02; }},
                         {"model: block.positions \"learned\" is not allowed with speech",
                          [](O& o) {
                            o.block.positions = Positions::kLearned;
                            o.source_vocabulary = 0, o.frame_width = 80;
                          }},
                         {"model: block.first_norm is false, but norm is not \"pre\" in the encoder",
                          [](O& o) { o.block.first_norm = false; }},
                         {"fixup_scalars is not allowed with block.activation \"relu\" and block.gated",
                          [](O& o) { o.decoder.fixup_scalars = o.block.gated = true; }},
                         {"model: branch_growth_updates = ",
                          [](O& o) { o.branch_growth = BranchGrowth::kLinear, o.branch_growth_updates = 0; }}});
}

TEST(ValidateModelOptionsTest, ABlocksNumbersHaveRanges) {
  ModelOptions good = kGood;
  good.block.positions = Positions::kRotary;
  ExpectMessages(good, {{"turns 0 columns", [](O& o) { o.block.rotary_share = 0; }},
                        {"block.rotary_share = 1.5, allowed", [](O& o) { o.block.rotary_share = 1.5; }},
                        {"block.rotary_theta = 0.5, allowed", [](O& o) { o.block.rotary_theta = 0.5; }},
                        {"block.rotary_local_theta = 0.5, allowed", [](O& o) { o.block.rotary_local_theta = 0.5; }},
                        {"block.rotary_scaling = 0.5, allowed", [](O& o) { o.block.rotary_scaling = 0.5; }},
                        {"block.rotary_scaling_positions = 0", [](O& o) { o.block.rotary_scaling_positions = 0; }},
                        {"block.window = -1, allowed", [](O& o) { o.block.window = -1; }},
                        {"block.global_every = -1, allowed", [](O& o) { o.block.global_every = -1; }},
                        {"block.head_width = -1, allowed", [](O& o) { o.block.head_width = -1; }},
                        {"block.kv_heads = 9, allowed", [](O& o) { o.block.kv_heads = 9; }},
                        {"block.embedding_norm is not allowed with speech",
                         [](O& o) { o.block.embedding_norm = true, o.source_vocabulary = 0, o.frame_width = 80; }},
                        {"fixup_scalars is not allowed with block.activation \"gelu\":",
                         [](O& o) { o.encoder.fixup_scalars = true, o.block.activation = Activation::kGelu; }}});
  good.block = {.head_width = 100};
  good.block.rotary_share = 0.29;  // times 100 it is a little less than 29
  EXPECT_EQ(good.rotary_width(), 29);
}

TEST(ValidateModelOptionsTest, AdaptiveCutoffsAscendAndLeaveWidthAndSmoothingAlone) {
  ModelOptions good = kGood;
  good.label_smoothing = 0;
  good.adaptive_cutoffs = {.ids = {20, 60}, .count = 2};
  ExpectMessages(good,
                 {{"model: d_model = 512 leaves no column for band 2 of adaptive_cutoffs with adaptive_factor = "
                   "23; use fewer cutoffs or a smaller factor",
                   [](O& o) { o.adaptive_factor = 23; }},
                  {"model: adaptive_cutoffs = 20, allowed: 21 to 99", [](O& o) { o.adaptive_cutoffs.ids[1] = 20; }},
                  {"model: adaptive_cutoffs = 100", [](O& o) { o.adaptive_cutoffs.ids[1] = 100; }},
                  {"model: label_smoothing = 0.1 is not allowed with adaptive_cutoffs: the adaptive softmax does "
                   "not compute the other words' probabilities. Set model.label_smoothing to 0.",
                   [](O& o) { o.label_smoothing = 0.1; }},
                  {"model: z_loss = 0.001 is not allowed with adaptive_cutoffs", [](O& o) { o.z_loss = 0.001; }}});
}

TEST(ValidateModelOptionsTest, FixupsScalarsTakeThePlaceOfOthers) {
  ModelOptions good = kGood;
  good.decoder.fixup_scalars = good.encoder.combine_layers = true;
  ExpectMessages(good,
                 {{"model: fixup_scalars of the decoder is not allowed with ffn_inner_norm: both stand in front "
                   "of W_2",
                   [](O& o) { o.decoder.ffn_inner_norm = true; }},
                  {"model: fixup_scalars of the decoder is not allowed with learned_branch_gain: a branch has one "
                   "learned gain",
                   [](O& o) { o.decoder.learned_branch_gain = true; }},
                  {"model: fixup_scalars of the encoder is not allowed with combine_layers: both stand behind the "
                   "stack",
                   [](O& o) { o.encoder.fixup_scalars = true; }}});
}

TEST(ValidateModelOptionsTest, ASecondStreamStandsBesideNormsBehindSums) {
  ModelOptions good = kGood;
  good.decoder.second_stream_gain = 0.5;
  ExpectMessages(good, {{"model: second_stream_gain of the decoder is 0.5, but norm is not \"post\": without norms "
                         "between sublayers the two streams are one. Set second_stream_gain to 0, or norm to \"post\".",
                         [](O& o) { o.decoder.norm = NormPlacement::kPre; }},
                        {"combine_layers is set", [](O& o) { o.decoder.combine_layers = true; }},
                        {"second_stream_gain", [](O& o) { o.decoder.second_stream_gain = 1e-50; }}});  // 0 as a float
}

TEST(ValidateModelOptionsTest, AProfiledOmegaNeedsPostLn) {
  ModelOptions good = kGood;
  good.decoder.omega = Omega::kProfiled;
  ExpectMessages(good,
                 {{"", [](O&) {}}, {"model: omega of the decoder is \"profiled\", but norm is not \"post\"", [](O& o) {
                                      o.decoder.norm = NormPlacement::kPre;
                                    }}});
}

TEST(ValidateModelOptionsTest, NormsOfPreLnNeedPreLn) {
  ExpectMessages(kGood,
                 {{"model: norm_gain of the decoder is \"inverse_sqrt\", but norm is \"post\": the gain stands "
                   "behind a norm in front of each branch. Set norm to \"pre\", or norm_gain to \"flat\".",
                   [](O& o) { o.decoder.norm_gain = DepthInit::kInverseSqrt; }},
                  {"model: post_norm_share of the encoder is 0.25, but norm is not \"pre\": the layers above that "
                   "share are Pre-LN. Set post_norm_share to 0, or norm to \"pre\".",
                   [](O& o) { o.encoder.post_norm_share = 0.25; }}});
  ModelOptions good = kGood;
  good.encoder.norm = good.decoder.norm = NormPlacement::kPre;
  good.encoder.post_norm_share = 0.25;
  good.decoder.norm_gain = DepthInit::kInverseSqrt;
  ExpectMessages(good, {{"model: post_norm_share of the encoder is 0.25, but combine_layers is set: a combination has "
                         "norms of one placement. Set post_norm_share to 0, or combine_layers to false.",
                         [](O& o) { o.encoder.combine_layers = true; }}});
}

TEST(ValidateModelOptionsTest, AFirstNormMayLackWhereNothingElseStandsBeforeABranch) {
  ModelOptions good = kGood;
  good.encoder.norm = good.decoder.norm = NormPlacement::kPre;
  good.block.first_norm = false;
  ExpectMessages(good, {{"post_norm_share is not 0 in the decoder", [](O& o) { o.decoder.post_norm_share = 0.25; }},
                        {"norm_gain is \"from_top\"", [](O& o) { o.encoder.norm_gain = DepthInit::kFromTop; }},
                        {"its own gain, skip or sums", [](O& o) { o.decoder.learned_branch_gain = true; }},
                        {"residual_streams is not 1", [](O& o) { o.decoder.residual_streams = 4; }}});
}

TEST(ValidateModelOptionsTest, ABaseWidthIsForPreLn) {
  ModelOptions good = kGood;
  good.base_width = 64;
  good.encoder.norm = good.decoder.norm = NormPlacement::kPre;
  ExpectMessages(good, {{"not Pre-LN", [](O& o) { o.encoder.norm = NormPlacement::kPost; }},
                        {"are combined", [](O& o) { o.decoder.combine_layers = true; }},
                        {"with speech, for which no rules are known. Set model.base_width to 0.",
                         [](O& o) { o.source_vocabulary = 0, o.frame_width = 80; }},
                        {"or model.residual.method to \"completep\" or \"pre_ln\".",
                         [](O& o) { o.decoder.post_norm_share = 0.25; }},
                        {"with an adaptive softmax",
                         [](O& o) { o.label_smoothing = 0, o.adaptive_cutoffs = {.ids = {20}, .count = 1}; }},
                        {"learned positions, for which", [](O& o) { o.block.positions = Positions::kLearned; }},
                        {"initial_deviation, for which", [](O& o) { o.block.initial_deviation = 0.02; }},
                        {"or model.block.scale_embedding to true.", [](O& o) { o.block.scale_embedding = false; }},
                        {"", [](O& o) { o.block.scale_embedding = false, o.block.embedding_norm = true; }},
                        {"base_width = -1, allowed", [](O& o) { o.base_width = -1; }}});
}

TEST(ValidateModelOptionsTest, SeveralStreamsTakeThePlaceOfGainsAndSkips) {
  ModelOptions good = kGood;
  good.encoder = good.decoder = {.norm = NormPlacement::kPre, .residual_streams = 4};
  ExpectMessages(
      good, {{"residual_streams = 9, allowed: 1 to 8", [](O& o) { o.decoder.residual_streams = 9; }},
             {"residual_streams of the decoder is 4, but norm", [](O& o) { o.decoder.norm = NormPlacement::kPost; }},
             {"residual_gain is not 1", [](O& o) { o.decoder.residual_gain = 2; }},
             {"learned_branch_gain is set", [](O& o) { o.decoder.learned_branch_gain = true; }},
             {"combine_layers is set", [](O& o) { o.decoder.combine_layers = true; }},
             {"post_norm_share is not 0", [](O& o) { o.decoder.post_norm_share = 0.25; }},
             {"omega is not \"none\"", [](O& o) { o.decoder.omega = Omega::kProfiled; }},
             {"skip_gain is not 0", [](O& o) { o.decoder.skip_gain = 1; }},
             {"layer_gain is not 1", [](O& o) { o.decoder.layer_gain = 0.5; }},
             {"fixup_scalars is set", [](O& o) { o.decoder.fixup_scalars = true; }},
             {"residual_streams with residual_mixing permutations = 5, allowed: 1 to 4",
              [](O& o) { o.decoder.residual_streams = 5, o.decoder.residual_mixing = HyperMixing::kPermutations; }}});
}

TEST(ValidateModelOptionsTest, SumsOfBlocksTakeThePlaceOfTheStream) {
  ModelOptions good = kGood;
  good.encoder = good.decoder = {.norm = NormPlacement::kPre, .attention_residual_blocks = 16};
  ExpectMessages(good,
                 {{"model: the decoder has attention_residual_blocks, but norm is not \"pre\": sums of blocks take the "
                   "place of the "
                   "residual stream. Set attention_residual_blocks, _block_sublayers and _delta to 0, 0 and false, or "
                   "the other to "
                   "its value in \"attn_res\".",
                   [](O& o) { o.decoder.norm = NormPlacement::kPost; }},
                  {"residual_streams is not 1", [](O& o) { o.decoder.residual_streams = 2; }},
                  {"skip_gain is not 0", [](O& o) { o.encoder.skip_gain = 1; }},
                  {"has attention_residual_delta, but there are no blocks",
                   [](O& o) { o.decoder.attention_residual_blocks = 0, o.decoder.attention_residual_delta = true; }},
                  {"attention_residual_blocks = -1, allowed", [](O& o) { o.decoder.attention_residual_blocks = -1; }},
                  {"attention_residual_block_sublayers = 30001",
                   [](O& o) { o.decoder.attention_residual_block_sublayers = 30001; }},
                  {"base_width = 4 is not allowed with layers that are not Pre-LN", [](O& o) { o.base_width = 4; }}});
}

TEST(ValidateModelOptionsTest, SourceAndEncoderBelongTogether) {
  ModelOptions good = {.encoder_layers = 0, .target_vocabulary = 100};  // sharing has nothing to share with
  good.encoder.norm_gain = DepthInit::kInverseSqrt;                     // needs Pre-LN, where there is an encoder
  ExpectMessages(good, {{"hadal prepare --monolingual", [](O& o) { o.source_vocabulary = 100; }}});
  ExpectMessages(kGood, {{"the corpus is plain text", [](O& o) { o.source_vocabulary = 0; }}});
}

TEST(ValidateModelOptionsTest, AnEncoderAloneReadsPlainText) {
  ExpectMessages({.decoder_layers = 0, .target_vocabulary = 100},
                 {{"there is no layer. Set one of them to 1 or more.", [](O& o) { o.encoder_layers = 0; }},
                  {"prepare --monolingual --mask-token", [](O& o) { o.source_vocabulary = 100; }},
                  {"speech, which has no tokens to mask. Set model.decoder_layers to 1 or more.",
                   [](O& o) { o.frame_width = 80; }},
                  {"not allowed with adaptive_cutoffs", [](O& o) { o.adaptive_cutoffs = {.ids = {20}, .count = 1}; }},
                  {"base_width = 64 is not allowed with an encoder alone", [](O& o) { o.base_width = 64; }},
                  {"initial_deviation = -1, allowed", [](O& o) { o.block.initial_deviation = -1; }}});
}

TEST(ValidateModelOptionsTest, SpeechHasAnEncoderAndNoSourceVocabulary) {
  ExpectMessages({.target_vocabulary = 100, .frame_width = 80},
                 {{"encoder_layers = 0 is a language model", [](O& o) { o.encoder_layers = 0; }},
                  {"source_vocabulary = 100", [](O& o) { o.source_vocabulary = 100; }},
                  {"front_end_channels = 7 must be even", [](O& o) { o.front_end_channels = 7; }},
                  {"front_end_channels = 0, allowed", [](O& o) { o.front_end_channels = 0; }},
                  {"frame_width = 65537, allowed", [](O& o) { o.frame_width = 65537; }}});
}

TEST(ModelOptionsTest, DepthInWords) {
  EXPECT_EQ(DepthName({.encoder_layers = 3, .decoder_layers = 5}), "3L-5L");
  EXPECT_EQ(DepthName({.encoder_layers = 0, .decoder_layers = 5}), "5L decoder-only");
  EXPECT_EQ(DepthName({.encoder_layers = 3, .decoder_layers = 0}), "3L encoder-only");
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

struct Anything {
  template <typename T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};

// How many fields an aggregate has: as many as it can be initialised from.
template <typename Aggregate, typename... Fields>
constexpr size_t FieldsOf() {
  if constexpr (requires { Aggregate{Fields()..., Anything()}; }) {
    return FieldsOf<Aggregate, Fields..., Anything>();
  } else {
    return sizeof...(Fields);
  }
}

// Holds what a visitor is told against the options' own fields: as many, and each another one.
template <typename Options>
struct Seen {
  Options options;
  std::set<std::string> names;
  std::set<const void*> members;

  void Add(const char* name, const void* member) {
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_TRUE(members.insert(member).second) << name << " is the member of another name";
  }
};

TEST(ModelFields, AreAllOfTheirOptions) {
  const auto expect_all = []<typename Options>(Seen<Options> seen, const auto& for_each) {
    for_each([&](const char* name, auto member, const auto&...) { seen.Add(name, &(seen.options.*member)); });
    EXPECT_EQ(seen.names.size(), FieldsOf<Options>());
  };
  expect_all(Seen<StackMethod>(), [](const auto& visit) { ForEachStackField(visit); });
  expect_all(Seen<Block>(), [](const auto& visit) { ForEachBlockField(visit); });
  expect_all(Seen<ModelOptions>(), [](const auto& visit) { ForEachModelField(visit); });
}

}  // namespace
}  // namespace hadal

#include "layers/model_plan.h"

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "layers/adaptive_bands.h"
#include "layers/method_presets.h"
#include "tests/support/small_model.h"

namespace hadal {
namespace {

ModelOptions Options(int encoder, int decoder, int d_model, int d_ff, int vocabulary) {
  ModelOptions options{.encoder_layers = encoder,
                       .decoder_layers = decoder,
                       .d_model = d_model,
                       .d_ff = d_ff,
                       .source_vocabulary = vocabulary,
                       .target_vocabulary = vocabulary};
  ApplyResidualMethod(ResidualMethod::kDeepNorm, options);
  return options;
}

// The papers' models with XLM-R's vocabulary: DeepNet's 863M and 3.8B, and the wide 3.2B one.
TEST(ModelPlanTest, ParameterCountsAreExact) {
  constexpr int kVocabulary = 250002;
  EXPECT_EQ(ModelPlan::Make(Options(100, 100, 512, 2048, kVocabulary)).ParameterElements(), 863642624);
  EXPECT_EQ(ModelPlan::Make(Options(500, 500, 512, 2048, kVocabulary)).ParameterElements(), 3806209024);
  EXPECT_EQ(ModelPlan::Make(Options(100, 100, 1024, 4096, kVocabulary)).ParameterElements(), 3195291648);
  for (const auto& [layers, body] : {std::pair(6, 44138496), std::pair(18, 132415488), std::pair(50, 367820800)}) {
    EXPECT_EQ(ModelPlan::Make(Options(layers, layers, 512, 2048, 10)).ParameterElements(), body + 10 * 512);
  }
}

// What runs in bf16 have rounded: matrices, and the biases that cuBLASLt adds.
TEST(ModelPlanTest, ProductsReadMatricesAndSomeBiases) {
  for (const ResidualMethod method :
       {ResidualMethod::kDeepNorm, ResidualMethod::kNormFormer, ResidualMethod::kRFixup, ResidualMethod::kAdmin}) {
    ModelOptions options = Options(2, 2, 64, 128, 100);
    ApplyResidualMethod(method, options);
    options.encoder.linear_bias = options.decoder.linear_bias = true;  // R-Fixup's own have none
    const ModelPlan plan = ModelPlan::Make(options);
    for (int32_t p = 0; p < std::ssize(plan.parameters); ++p) {
      const ParameterRecord& record = plan.parameters[p];
      bool expected = record.columns > 1;
      if (record.role == ParameterRole::kQueryBias || record.role == ParameterRole::kKeyBias ||
          record.role == ParameterRole::kValueBias) {
        expected = true;
      }
      if (record.role == ParameterRole::kHiddenBias) expected = method != ResidualMethod::kRFixup;
      if (record.role == ParameterRole::kOutputBias) {
        expected = method == ResidualMethod::kNormFormer &&
                   plan.sublayers[record.sublayer].kind == SublayerKind::kSelfAttention;
      }
      EXPECT_EQ(plan.ReadByProductsAlone(p), expected) << plan.ParameterName(p);
      EXPECT_EQ(plan.read_storage(p), Storage::kFloat32);
    }
  }
}

TEST(ModelPlanTest, TheListIsInOrder) {
  const ModelPlan plan = ModelPlan::Make(Options(500, 500, 64, 256, 100));
  EXPECT_EQ(plan.sublayers.size(), 2503u);  // 2,500 residual sublayers, two embeddings and the head
  EXPECT_EQ(plan.sublayers[plan.source_embedding()].kind, SublayerKind::kSourceEmbedding);
  EXPECT_EQ(plan.sublayers[plan.target_embedding()].kind, SublayerKind::kTargetEmbedding);
  EXPECT_EQ(plan.sublayers[plan.output_head()].kind, SublayerKind::kOutputHead);
  EXPECT_EQ(plan.SublayerName(1), "encoder layer 0 self-attention");
  EXPECT_EQ(plan.SublayerName(plan.target_embedding() + 2), "decoder layer 0 cross-attention");
}

// A layer of self-attention and feed-forward is an encoder's: 3,152,384 parameters at width 512.
TEST(ModelPlanTest, WithoutAnEncoderThereIsNeitherSourceNorCrossAttention) {
  for (const EmbeddingSharing sharing : {EmbeddingSharing::kAll, EmbeddingSharing::kDecoder}) {
    ModelOptions options = Options(0, 12, 512, 2048, 10);
    options.sharing = sharing;
    const ModelPlan plan = ModelPlan::Make(options);
    EXPECT_EQ(plan.ParameterElements(), 12 * 3152384 + 10 * 512);
    EXPECT_EQ(plan.sublayers.size(), 2 * 12 + 2u);
    EXPECT_EQ(plan.source_embedding(), -1);
    EXPECT_EQ(plan.target_embedding(), 0);
    EXPECT_EQ(plan.sublayers[0].kind, SublayerKind::kTargetEmbedding);
    EXPECT_EQ(plan.SublayerName(1), "decoder layer 0 self-attention");
    EXPECT_EQ(plan.SublayerName(2), "decoder layer 0 feed-forward");
    EXPECT_EQ(plan.Uses(0), (std::vector<int32_t>{0, plan.output_head()}));
    EXPECT_EQ(plan.ParameterName(0), "decoder.embed_tokens.weight");
    for (size_t p = 0; p < plan.parameters.size(); ++p) {
      EXPECT_EQ(plan.ParameterName(static_cast<int32_t>(p)).find("encoder"), std::string::npos);
    }
  }
  ModelOptions untied = Options(0, 12, 512, 2048, 10);
  untied.sharing = EmbeddingSharing::kNone;
  const ModelPlan plan = ModelPlan::Make(untied);
  EXPECT_EQ(plan.ParameterElements(), 12 * 3152384 + 2 * 10 * 512);
  EXPECT_EQ(plan.ParameterName(plan.sublayers[plan.output_head()].table), "decoder.output_projection.weight");
}

// The head has a product, a norm and a bias beside the table.
TEST(ModelPlanTest, WithoutADecoderTheHeadIsOfTheEncoder) {
  ModelOptions options = Options(12, 0, 512, 2048, 10);
  options.source_vocabulary = 0;
  ASSERT_TRUE(ValidateModelOptions(options).ok());
  const ModelPlan plan = ModelPlan::Make(options);
  EXPECT_EQ(plan.ParameterElements(), 12 * 3152384 + 10 * 512 + 512 * 512 + 3 * 512 + 10);
  EXPECT_EQ(plan.sublayers.size(), 2 * 12 + 2u);
  EXPECT_EQ(plan.target_embedding(), -1);
  EXPECT_EQ(plan.encoder_end(), plan.output_head());
  EXPECT_TRUE(plan.begins_stack(1));
  EXPECT_FALSE(plan.begins_stack(0));
  EXPECT_TRUE(plan.ends_stack(plan.output_head()));
  EXPECT_EQ(plan.sublayers[plan.output_head()].stack, Stack::kEncoder);
  EXPECT_EQ(plan.Uses(0), (std::vector<int32_t>{0, plan.output_head()}));
  std::vector<std::string> head;
  for (int32_t p = plan.sublayers[plan.output_head()].first_parameter; p < std::ssize(plan.parameters); ++p) {
    head.push_back(plan.ParameterName(p));
  }
  EXPECT_EQ(head, (std::vector<std::string>{"encoder.lm_head.dense.weight", "encoder.lm_head.dense.bias",
                                            "encoder.lm_head.layer_norm.weight", "encoder.lm_head.layer_norm.bias",
                                            "encoder.lm_head.bias"}));
  options.sharing = EmbeddingSharing::kNone;
  const ModelPlan untied = ModelPlan::Make(options);
  EXPECT_EQ(untied.ParameterName(untied.sublayers[untied.output_head()].table), "encoder.lm_head.weight");
}

// BERT's: every matrix and table; DeepNorm's beta and GPT-2's factor multiply it.
TEST(ModelPlanTest, InitialDeviationTakesThePlaceOfXaviers) {
  ModelOptions options = Options(6, 0, 64, 128, 10);
  options.source_vocabulary = 0;
  options.block = {.positions = Positions::kLearned, .embedding_norm = true, .initial_deviation = 0.02};
  const auto deviation = [&](const std::string& name) {
    const ModelPlan plan = ModelPlan::Make(options);
    for (int32_t p = 0; p < std::ssize(plan.parameters); ++p) {
      if (plan.ParameterName(p) != name) continue;
      EXPECT_EQ(plan.parameters[p].init, InitKind::kNormal);
      return plan.parameters[p].init_scale;
    }
    return -1.0f;
  };
  const std::string layer = "encoder.layers.3.";
  for (const ResidualMethod method : {ResidualMethod::kPostLn, ResidualMethod::kDeepNorm}) {
    ApplyResidualMethod(method, options);
    const auto beta = static_cast<float>(method == ResidualMethod::kPostLn ? 1 : options.encoder.ffn_gain);
    for (const char* plain : {"encoder.embed_tokens.weight", "encoder.embed_positions.weight",
                              "encoder.lm_head.dense.weight", "encoder.layers.3.self_attn.q_proj.weight"}) {
      EXPECT_FLOAT_EQ(deviation(plain), 0.02f) << plain;
    }
    options.block.initial_depth_factor = true;
    EXPECT_FLOAT_EQ(deviation(layer + "self_attn.v_proj.weight"), 0.02f * beta);
    EXPECT_FLOAT_EQ(deviation(layer + "fc1.weight"), 0.02f * beta);
    EXPECT_FLOAT_EQ(deviation(layer + "self_attn.out_proj.weight"), 0.02f * beta / std::sqrt(12.0f));
    EXPECT_FLOAT_EQ(deviation(layer + "fc2.weight"), 0.02f * beta / std::sqrt(12.0f));
  }
  const Block block = options.block;
  options = Options(0, 6, 64, 128, 10);
  options.block = block;
  ApplyResidualMethod(ResidualMethod::kPreLn, options);
  EXPECT_FLOAT_EQ(deviation("decoder.layers.3.fc2.weight"), 0.02f / std::sqrt(12.0f));
}

// The second matrix of a gated feed-forward as the first, a gate of heads as the queries.
TEST(ModelPlanTest, GatesStartAsWhatTheyMultiply) {
  ModelOptions options = Options(2, 3, 16, 32, 100);
  const auto expect = [&](float of_gate) {
    const ModelPlan plan = ModelPlan::Make(options);
    const auto scale = [&](int32_t s, ParameterRole role) {
      return plan.parameters[plan.ParameterOf(s, role)].init_scale;
    };
    for (int32_t s = 0; s < std::ssize(plan.sublayers); ++s) {
      if (plan.sublayers[s].kind == SublayerKind::kFeedForward) {
        EXPECT_EQ(scale(s, ParameterRole::kLinearWeight), scale(s, ParameterRole::kHiddenWeight));
      }
      if (plan.sublayers[s].kind == SublayerKind::kSelfAttention) {
        EXPECT_EQ(scale(s, ParameterRole::kGateWeight), scale(s, ParameterRole::kQueryWeight));
        EXPECT_FLOAT_EQ(scale(s, ParameterRole::kGateWeight), of_gate);
        EXPECT_GE(plan.ParameterOf(s, ParameterRole::kGateBias), 0) << "one product has four biases";
      }
    }
  };
  options.block.gated = options.block.attention_gate = true;
  options.block.biases = Biases::kQkv;
  expect(0.25f);  // sqrt(2 / (16 + 16)): DeepNorm's beta is not for it
  ApplyResidualMethod(ResidualMethod::kPostLn, options);
  options.block.initial_deviation = 0.02;
  expect(0.02f);
}

// Of a 2L-3L model; each name once.
std::set<std::string> NamesOf(ResidualMethod method) {
  ModelOptions options = Options(2, 3, 8, 16, 100);
  options.heads = 4;
  ApplyResidualMethod(method, options);
  const ModelPlan plan = ModelPlan::Make(options);
  std::set<std::string> names;
  for (size_t p = 0; p < plan.parameters.size(); ++p) names.insert(plan.ParameterName(static_cast<int32_t>(p)));
  EXPECT_EQ(names.size(), plan.parameters.size());
  return names;
}

TEST(ModelPlanTest, NamesAreFairseqsAndUnique) {
  const std::set<std::string> names = NamesOf(ResidualMethod::kDeepNorm);
  for (const char* name :
       {"encoder.embed_tokens.weight", "encoder.layers.1.self_attn.q_proj.weight",
        "encoder.layers.0.self_attn.out_proj.bias", "encoder.layers.0.self_attn_layer_norm.weight",
        "encoder.layers.1.fc1.weight", "encoder.layers.1.fc2.bias", "encoder.layers.1.final_layer_norm.bias",
        "decoder.layers.0.encoder_attn.k_proj.bias", "decoder.layers.1.encoder_attn_layer_norm.weight"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
  EXPECT_EQ(names.count("decoder.output_projection.weight"), 0u);  // tied to the source embedding
}

// No source vocabulary: nothing is shared with the target's embedding but the output projection.
TEST(ModelPlanTest, SpeechHasConvolutionsInPlaceOfASourceEmbedding) {
  ModelOptions options = Options(1, 1, 32, 64, 50);
  options.source_vocabulary = 0, options.frame_width = 80, options.front_end_channels = 24;
  ASSERT_TRUE(ValidateModelOptions(options).ok());
  const ModelPlan plan = ModelPlan::Make(options);
  const auto expect = [&](int32_t p, const char* name, int64_t rows, int64_t columns, float bound) {
    EXPECT_EQ(plan.ParameterName(p), name);
    EXPECT_EQ(plan.parameters[p].rows, rows);
    EXPECT_EQ(plan.parameters[p].columns, columns);
    EXPECT_EQ(plan.parameters[p].init, InitKind::kUniform);
    EXPECT_FLOAT_EQ(plan.parameters[p].init_scale, bound);
    EXPECT_EQ(plan.Uses(p), std::vector<int32_t>{0});
    EXPECT_TRUE(plan.ReadByProductsAlone(p));
  };
  expect(0, "encoder.subsample.conv_layers.0.weight", 24, 5 * 80, 0.05f);
  expect(1, "encoder.subsample.conv_layers.0.bias", 24, 1, 0.05f);
  expect(2, "encoder.subsample.conv_layers.1.weight", 2 * 32, 5 * 12, 1 / std::sqrt(60.0f));
  expect(3, "encoder.subsample.conv_layers.1.bias", 2 * 32, 1, 1 / std::sqrt(60.0f));
  EXPECT_EQ(plan.SublayerName(0), "speech front end");
  const int32_t table = plan.sublayers[plan.target_embedding()].table;
  EXPECT_EQ(plan.ParameterName(table), "decoder.embed_tokens.weight");
  EXPECT_EQ(plan.Uses(table), (std::vector<int32_t>{plan.target_embedding(), plan.output_head()}));
}

// Parameters beyond those of `base`, elements of a 2L-3L model with d_model 8, d_ff 16, 4 heads.
int64_t ExtraElements(ResidualMethod method, ResidualMethod base) {
  ModelOptions options = Options(2, 3, 8, 16, 100);
  options.heads = 4;
  ApplyResidualMethod(base, options);
  const int64_t elements = ModelPlan::Make(options).ParameterElements();
  ApplyResidualMethod(method, options);
  return ModelPlan::Make(options).ParameterElements() - elements;
}

TEST(ModelPlanTest, MethodsAddTheirParameters) {
  EXPECT_EQ(NamesOf(ResidualMethod::kPreLn).count("encoder.layer_norm.weight"), 1u);
  EXPECT_EQ(NamesOf(ResidualMethod::kPreLn).count("decoder.layer_norm.bias"), 1u);
  EXPECT_EQ(NamesOf(ResidualMethod::kReZero).count("decoder.layers.2.resweight"), 1u);
  EXPECT_EQ(NamesOf(ResidualMethod::kReZero).count("encoder.layers.0.final_layer_norm.weight"), 0u);
  for (const char* name : {"encoder.layers.1.self_attn.inner_attn_ln.weight", "decoder.layers.2.ffn_layernorm.bias"}) {
    EXPECT_EQ(NamesOf(ResidualMethod::kSubLn).count(name), 1u) << name;
  }
  EXPECT_EQ(NamesOf(ResidualMethod::kSubLn).count("decoder.layers.0.encoder_attn.inner_attn_ln.weight"), 0u);
  for (const char* name : {"encoder.layers.0.self_attn.head_scale", "decoder.layers.1.attn_ln.bias",
                           "decoder.layers.2.ffn_layernorm.weight", "decoder.layer_norm.weight"}) {
    EXPECT_EQ(NamesOf(ResidualMethod::kNormFormer).count(name), 1u) << name;
  }
  for (const char* name : {"encoder.layers.1.self_attn_input_ln.weight", "decoder.layers.0.encoder_attn_input_ln.bias",
                           "decoder.layers.2.ffn_input_ln.weight"}) {
    EXPECT_EQ(NamesOf(ResidualMethod::kKeel).count(name), 1u) << name;
  }
  for (const char* name :
       {"encoder.layers.1.attn_ln.weight", "decoder.layers.0.encoder_attn_ln.bias", "decoder.layers.2.ffn_ln.weight"}) {
    EXPECT_EQ(NamesOf(ResidualMethod::kPeriLn).count(name), 1u) << name;
  }
  for (const char* name : {"decoder.layers.1.encoder_attn.streams.weight", "encoder.layers.0.ffn.streams.gates"}) {
    EXPECT_EQ(NamesOf(ResidualMethod::kMhc).count(name), 1u) << name;
  }
  for (const char* name : {"encoder.output_attn_res_norm.weight", "decoder.layers.1.encoder_attn_res_norm.weight"}) {
    EXPECT_EQ(NamesOf(ResidualMethod::kAttnRes).count(name), 1u) << name;
  }
  for (const char* name :
       {"encoder.layers.1.self_attn.omega", "decoder.layers.0.encoder_attn.omega", "decoder.layers.2.ffn.omega"}) {
    EXPECT_EQ(NamesOf(ResidualMethod::kAdmin).count(name), 1u) << name;
  }
  const std::set<std::string> fixup = NamesOf(ResidualMethod::kRFixup);
  for (const char* name : {"encoder.layers.1.self_attn.shift", "encoder.layers.0.self_attn.scale",
                           "decoder.layers.2.encoder_attn.shift", "decoder.layers.0.encoder_attn.scale",
                           "encoder.layers.0.ffn.shift1", "decoder.layers.1.ffn.shift2", "decoder.layers.2.ffn.shift3",
                           "encoder.layers.1.ffn.scale", "encoder.shift", "encoder.scale", "decoder.shift"}) {
    EXPECT_EQ(fixup.count(name), 1u) << name;
  }
  for (const char* name : {"decoder.scale", "encoder.layers.0.fc1.bias", "decoder.layers.0.encoder_attn.k_proj.bias"}) {
    EXPECT_EQ(fixup.count(name), 0u) << name;
  }
  const std::set<std::string> dlcl_pre = NamesOf(ResidualMethod::kDlclPre),
                              dlcl_post = NamesOf(ResidualMethod::kDlclPost);
  for (const char* name :
       {"encoder.dlcl.weight.0", "encoder.dlcl.weight.2", "decoder.dlcl.weight.3", "encoder.dlcl.layer_norms.1.weight",
        "encoder.dlcl.layer_norms.2.bias", "decoder.dlcl.layer_norms.3.weight"}) {
    EXPECT_EQ(dlcl_pre.count(name), 1u) << name;
    EXPECT_EQ(dlcl_post.count(name), 1u) << name;
  }
  for (const char* name : {"encoder.dlcl.weight.3", "encoder.dlcl.layer_norms.0.weight"}) {
    EXPECT_EQ(dlcl_pre.count(name) + dlcl_post.count(name), 0u) << name;
  }
  EXPECT_EQ(dlcl_pre.count("encoder.layer_norm.weight"), 1u);
  EXPECT_EQ(dlcl_post.count("encoder.layer_norm.weight"), 0u);
  // (n + 1)(n + 2)/2 weights and n norms a stack.
  constexpr int kCombinations = 3 * 4 / 2 + 4 * 5 / 2 + (2 + 3) * 2 * 8;
  EXPECT_EQ(ExtraElements(ResidualMethod::kDlclPre, ResidualMethod::kPreLn), kCombinations);
  EXPECT_EQ(ExtraElements(ResidualMethod::kDlclPost, ResidualMethod::kPostLn), kCombinations);
  constexpr int kNorms = 2 * 2 + 3 * 3;  // sublayers
  // Of the encoder's two and the decoder's three layers; biases of 4 + 2 and 8 + 2 products, of which one is d_ff wide.
  constexpr int kBiases = 2 * (5 * 8 + 16) + 3 * (9 * 8 + 16), kScalars = 2 * 6 + 3 * 8 + 3;
  EXPECT_EQ(ExtraElements(ResidualMethod::kRFixup, ResidualMethod::kTFixup), kScalars - kBiases);
  EXPECT_EQ(ExtraElements(ResidualMethod::kTFixup, ResidualMethod::kPostLn), -kNorms * 2 * 8);
  EXPECT_EQ(ExtraElements(ResidualMethod::kReZero, ResidualMethod::kTFixup), 5);
  EXPECT_EQ(ExtraElements(ResidualMethod::kAdminClosed, ResidualMethod::kPostLn), kNorms * 8);
  EXPECT_EQ(ExtraElements(ResidualMethod::kSubLn, ResidualMethod::kPreLn), 5 * (2 * 8 + 2 * 16));
  EXPECT_EQ(ExtraElements(ResidualMethod::kNormFormer, ResidualMethod::kPreLn), 5 * (2 * 8 + 2 * 16 + 4));
}

TEST(ModelPlanTest, ABlockAddsAndTakesParameters) {
  ModelOptions options = Options(1, 1, 16, 32, 100);
  options.block = {.norm_shift = false, .gated = true, .biases = Biases::kQkv, .positions = Positions::kLearned};
  options.block.kv_heads = 1, options.block.head_width = 5;
  const ModelPlan plan = ModelPlan::Make(options);
  std::set<std::string> names;
  std::map<std::string, std::pair<int64_t, int64_t>> shapes;
  for (int32_t p = 0; p < std::ssize(plan.parameters); ++p) {
    names.insert(plan.ParameterName(p));
    shapes[plan.ParameterName(p)] = {plan.parameters[p].rows, plan.parameters[p].columns};
  }
  using Shape = std::pair<int64_t, int64_t>;
  EXPECT_EQ(shapes["encoder.embed_positions.weight"], Shape(options.max_positions, 16));
  EXPECT_EQ(shapes["decoder.embed_positions.weight"], Shape(options.max_positions, 16));
  EXPECT_EQ(plan.parameters[plan.ParameterOf(0, ParameterRole::kPositionTable)].init_scale, 0.25f) << "1 / sqrt(16)";
  for (const std::string name : {"decoder.layers.0.self_attn.", "decoder.layers.0.encoder_attn."}) {
    EXPECT_EQ(shapes[name + "q_proj.weight"], Shape(options.heads * 5, 16));
    EXPECT_EQ(shapes[name + "k_proj.weight"], Shape(5, 16));
    EXPECT_EQ(shapes[name + "v_proj.bias"], Shape(5, 1));
    EXPECT_EQ(shapes[name + "out_proj.weight"], Shape(16, options.heads * 5));
  }
  for (const char* name : {"encoder.layers.0.fc3.weight", "decoder.layers.0.encoder_attn.v_proj.bias"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
  for (const char* name : {"encoder.layers.0.fc1.bias", "encoder.layers.0.fc3.bias", "encoder.layers.0.fc2.bias",
                           "decoder.layers.0.self_attn.out_proj.bias", "decoder.layers.0.final_layer_norm.bias"}) {
    EXPECT_EQ(names.count(name), 0u) << name;
  }
}

TEST(ModelPlanTest, HeadsAndEmbeddingsMayHaveNormsAndGates) {
  ModelOptions options = Options(1, 1, 16, 32, 100);
  options.block = {.query_key_norm = true, .attention_gate = true, .embedding_norm = true};
  const ModelPlan plan = ModelPlan::Make(options);
  std::set<std::string> names;
  for (int32_t p = 0; p < std::ssize(plan.parameters); ++p) names.insert(plan.ParameterName(p));
  EXPECT_EQ(names.size(), plan.parameters.size());
  for (const char* name : {"encoder.layers.0.self_attn.q_norm.weight", "decoder.layers.0.self_attn.k_norm.bias",
                           "encoder.layers.0.self_attn.k_norm.weight", "decoder.layers.0.self_attn.q_norm.bias",
                           "encoder.layers.0.self_attn.gate_proj.weight", "decoder.layers.0.self_attn.gate_proj.bias",
                           "encoder.layernorm_embedding.weight", "decoder.layernorm_embedding.bias"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
}

// Five tokens: those on both sides, or the token itself and those in front. Every second layer is global.
TEST(ModelPlanTest, AWindowIsOfSelfAttentionInLocalLayers) {
  ModelOptions options = Options(3, 3, 16, 32, 100);
  options.block.window = 5;
  options.block.global_every = 2;
  const ModelPlan plan = ModelPlan::Make(options);
  for (int32_t s = 0; s < std::ssize(plan.sublayers); ++s) {
    const SublayerRecord& record = plan.sublayers[s];
    const bool decoder = record.stack == Stack::kDecoder;
    const bool self_attention = record.kind == SublayerKind::kSelfAttention;
    const bool local = self_attention && record.layer == 1;
    EXPECT_EQ(plan.Reach(s), !local ? kWholeSentence : decoder ? 4 : 2) << plan.SublayerName(s);
    if (self_attention) {
      EXPECT_EQ(plan.KeysSeen(s, 100), local ? 5 : decoder ? 50 : 100) << plan.SublayerName(s);
    }
  }
}

TEST(ModelPlanTest, LayersThatShareAGainAreNotCutApart) {
  ModelOptions options = Options(2, 2, 8, 16, 100);
  const ModelPlan free = ModelPlan::Make(options);
  for (int32_t s = 0; s <= static_cast<int32_t>(free.sublayers.size()); ++s) EXPECT_EQ(free.NextCut(s), s);
  ApplyResidualMethod(ResidualMethod::kReZero, options);
  const ModelPlan plan = ModelPlan::Make(options);
  std::vector<int32_t> cuts;
  for (int32_t s = 0; s < static_cast<int32_t>(plan.sublayers.size()); ++s) {
    if (plan.NextCut(s) == s) cuts.push_back(s);
  }
  // Source embedding, two encoder layers, target embedding, two decoder layers, head.
  EXPECT_EQ(cuts, (std::vector<int32_t>{0, 1, 3, 5, 6, 9, 12}));
  EXPECT_EQ(plan.NextCut(7), 9);
  for (const int32_t s : {6, 7, 8}) EXPECT_EQ(plan.sublayers[s].learned_gain, plan.sublayers[6].learned_gain) << s;
  EXPECT_NE(plan.sublayers[6].learned_gain, plan.sublayers[9].learned_gain);
  EXPECT_EQ(plan.sublayers[12].learned_gain, -1);
}

// Row l belongs to the layer that reads it, the last one to the stack's last sublayer, and each starts as an average.
TEST(ModelPlanTest, ARowOfTheCombinationBelongsToItsReader) {
  ModelOptions options = Options(2, 3, 8, 16, 100);
  for (const ResidualMethod method : {ResidualMethod::kDlclPre, ResidualMethod::kDlclPost}) {
    ApplyResidualMethod(method, options);
    const ModelPlan plan = ModelPlan::Make(options);
    int rows = 0;
    for (const ParameterRecord& parameter : plan.parameters) {
      if (parameter.role != ParameterRole::kCombinationWeight) continue;
      ++rows;
      const SublayerRecord& owner = plan.sublayers[parameter.sublayer];
      const int64_t row = parameter.elements() - 1;
      EXPECT_EQ(owner.kind, row == owner.layer ? SublayerKind::kSelfAttention : SublayerKind::kFeedForward);
      if (row != owner.layer) {
        EXPECT_TRUE(plan.ends_stack(parameter.sublayer + 1));
      }
      EXPECT_EQ(parameter.init_scale, 1.0f / static_cast<float>(row + 1));
    }
    EXPECT_EQ(rows, 3 + 4);
    for (int32_t s = 0; s < static_cast<int32_t>(plan.sublayers.size()); ++s) {
      const bool inside = plan.sublayers[s].layer >= 0 && plan.sublayers[s].kind != SublayerKind::kSelfAttention;
      EXPECT_EQ(plan.NextCut(s) == s, !inside) << "layers are not cut apart";
    }
  }
}

TEST(ModelPlanTest, OnlyALayersLastSublayerTakesItsInput) {
  ModelOptions options = Options(2, 2, 8, 16, 100);
  ApplyResidualMethod(ResidualMethod::kB2tNoLn, options);
  const ModelPlan plan = ModelPlan::Make(options);
  for (const SublayerRecord& sublayer : plan.sublayers) {
    const bool last = sublayer.kind == SublayerKind::kFeedForward;
    EXPECT_EQ(sublayer.skip_gain, last ? static_cast<float>(options.encoder.skip_gain) : 0);
    EXPECT_EQ(sublayer.branch_gain, last ? static_cast<float>(options.encoder.layer_gain) : 1);
    EXPECT_EQ(sublayer.residual_gain, sublayer.branch_gain);
    const bool inside = last || sublayer.kind == SublayerKind::kCrossAttention;
    EXPECT_EQ(sublayer.cut_before, inside ? 0 : 1);
  }
}

TEST(ModelPlanTest, SharingDecidesWhoUsesATable) {
  ModelOptions options = Options(1, 1, 8, 16, 100);
  const ModelPlan all = ModelPlan::Make(options);
  EXPECT_EQ(all.Uses(0), (std::vector<int32_t>{all.source_embedding(), all.target_embedding(), all.output_head()}));
  options.sharing = EmbeddingSharing::kDecoder;
  const ModelPlan decoder = ModelPlan::Make(options);
  const int32_t table = decoder.sublayers[decoder.target_embedding()].table;
  EXPECT_EQ(decoder.ParameterName(table), "decoder.embed_tokens.weight");
  EXPECT_EQ(decoder.Uses(table), (std::vector<int32_t>{decoder.target_embedding(), decoder.output_head()}));
  options.sharing = EmbeddingSharing::kNone;
  const ModelPlan none = ModelPlan::Make(options);
  EXPECT_EQ(none.ParameterName(none.sublayers[none.output_head()].table), "decoder.output_projection.weight");
}

std::vector<std::string> NamesOf(const ModelPlan& plan, int32_t sublayer) {
  std::vector<std::string> names;
  const SublayerRecord& record = plan.sublayers[sublayer];
  for (int32_t p = 0; p < record.parameters; ++p) names.push_back(plan.ParameterName(record.first_parameter + p));
  return names;
}

// The numbers of fairseq's transformer_lm_wiki103: bands of widths 1024, 256 and 64.
TEST(ModelPlanTest, AdaptiveBandsAreNamedAsFairseqNamesThemAndSharedByUse) {
  ModelOptions options = Options(0, 1, 1024, 16, 267744);
  options.adaptive_cutoffs = {.ids = {20000, 60000}, .count = 2};
  const ModelPlan tied = ModelPlan::Make(options);
  EXPECT_EQ(NamesOf(tied, tied.target_embedding()),
            (std::vector<std::string>{
                "decoder.embed_tokens.embeddings.0.0.weight", "decoder.embed_tokens.embeddings.1.0.weight",
                "decoder.embed_tokens.embeddings.1.1.weight", "decoder.embed_tokens.embeddings.2.0.weight",
                "decoder.embed_tokens.embeddings.2.1.weight", "decoder.embed_tokens.embeddings.0.1.weight"}));
  EXPECT_EQ(NamesOf(tied, tied.output_head()),
            std::vector<std::string>{"decoder.adaptive_softmax.head.class_proj.weight"});
  const std::vector<int32_t> both = {tied.target_embedding(), tied.output_head()};
  for (int32_t p = 0; p < 5; ++p) EXPECT_EQ(tied.Uses(p), both) << p;
  EXPECT_EQ(tied.Uses(5), std::vector<int32_t>{tied.target_embedding()}) << "the softmax reads band 0 as it is";
  EXPECT_EQ(tied.parameters[3].rows, 207744);
  EXPECT_EQ(tied.parameters[3].columns, 64);
  EXPECT_EQ(tied.parameters[4].rows, 1024);
  for (const auto& [table, width] : {std::pair(0, 1024), {1, 256}, {3, 64}}) {
    EXPECT_FLOAT_EQ(tied.parameters[table].init_scale, 1 / std::sqrt(static_cast<float>(width))) << table;
  }
  options.sharing = EmbeddingSharing::kNone;
  const ModelPlan untied = ModelPlan::Make(options);
  EXPECT_EQ(NamesOf(untied, 0), std::vector<std::string>{"decoder.embed_tokens.weight"});
  EXPECT_EQ(
      NamesOf(untied, untied.output_head()),
      (std::vector<std::string>{"decoder.adaptive_softmax.head.weight", "decoder.adaptive_softmax.tail.0.2.weight",
                                "decoder.adaptive_softmax.tail.0.0.weight", "decoder.adaptive_softmax.tail.1.2.weight",
                                "decoder.adaptive_softmax.tail.1.0.weight"}));
  EXPECT_NE(untied.Hash(), tied.Hash());
}

// Bands of widths 16, 4 and 1, in which 1/2, 1/4 and 1/4 of the tokens are.
TEST(ModelPlanTest, AdaptiveBandsCostTheirShareOfTheTokens) {
  ModelOptions options = Options(0, 1, 16, 32, 10000);
  options.adaptive_cutoffs = {.ids = {100, 1000}, .count = 2};
  EXPECT_NEAR(HeadProducts(options), 16 * (100 + 2) + 0.25 * 4 * (16 + 900) + 0.25 * 1 * (16 + 9000), 1e-6);
  EXPECT_NEAR(InputProducts(options, /*tables=*/6), 16 * (0.5 * 16 + 0.25 * 4 + 0.25 * 1), 1e-6);
  EXPECT_EQ(InputProducts(options, /*tables=*/1), 0);
  options.adaptive_cutoffs.count = 0;
  EXPECT_EQ(HeadProducts(options), 16 * 10000);
}

TEST(ModelPlanTest, TravelsAsBytesAndRefusesDamage) {
  const ModelPlan plan = ModelPlan::Make(Options(3, 2, 16, 32, 100));
  std::string bytes = plan.Serialize();
  const absl::StatusOr<ModelPlan> copy = ModelPlan::Parse(bytes);
  EXPECT_EQ(copy->Hash(), plan.Hash());
  EXPECT_EQ(copy->parameters.size(), plan.parameters.size());
  bytes[bytes.size() / 2] ^= 1;
  EXPECT_FALSE(ModelPlan::Parse(bytes).ok());
  EXPECT_FALSE(ModelPlan::Parse(std::string_view(bytes).substr(0, 11)).ok());
}

// Checkpoints of every earlier version are read by it.
TEST(ModelPlanTest, TheHashIsThatOfSavedModels) {
  ModelOptions options = Options(0, 4, 16, 24, 200);
  options.heads = 4;
  EXPECT_EQ(ModelPlan::Make(options).Hash(), 15658631591003876138u);
  ApplyResidualMethod(ResidualMethod::kLnScaling, options);
  options.block = testing::kModernBlock;
  EXPECT_EQ(ModelPlan::Make(options).Hash(), 2464559198200705737u);
}

TEST(ModelPlanTest, HashTellsModelsApart) {
  const uint64_t base = ModelPlan::Make(Options(3, 2, 16, 32, 100)).Hash();
  EXPECT_NE(ModelPlan::Make(Options(3, 3, 16, 32, 100)).Hash(), base);
  EXPECT_NE(ModelPlan::Make(Options(3, 2, 16, 32, 101)).Hash(), base);
  ModelOptions heads = Options(3, 2, 16, 32, 100);
  heads.heads = 4;
  EXPECT_NE(ModelPlan::Make(heads).Hash(), base);
  std::set<uint64_t> hashes = {base};
  for (const Block& block : {Block{.norm = NormKind::kRms},
                             {.norm_epsilon = 1e-6},
                             {.norm_shift = false},
                             {.activation = Activation::kGelu},
                             {.gated = true},
                             {.biases = Biases::kNone},
                             {.positions = Positions::kRotary},
                             {.positions = Positions::kNone},
                             {.positions = Positions::kRotary, .rotary_theta = 1e6},
                             {.positions = Positions::kRotary, .rotary_share = 0.5},
                             {.kv_heads = 1},
                             {.head_width = 4},
                             {.scale_embedding = false},
                             {.query_key_norm = true},
                             {.attention_gate = true},
                             {.window = 5},
                             {.window = 4},
                             {.window = 4, .global_every = 2},
                             {.positions = Positions::kRotary, .window = 4, .rotary_local_theta = 300},
                             {.positions = Positions::kRotary, .rotary_scaling = 8},
                             {.positions = Positions::kRotary, .rotary_scaling = 8, .rotary_scaling_positions = 512}}) {
    ModelOptions other = Options(3, 2, 16, 32, 100);
    other.block = block;
    EXPECT_TRUE(hashes.insert(ModelPlan::Make(other).Hash()).second) << BlockText(block);
  }
}

TEST(BranchGainTest, GrowsLinearlyToOne) {
  SublayerRecord sublayer;
  EXPECT_EQ(BranchGain(sublayer, 1), 1.0f);
  sublayer.branch_growth = BranchGrowth::kLinear;
  sublayer.branch_growth_updates = 4000;
  EXPECT_FLOAT_EQ(BranchGain(sublayer, 1), 1.0f / 4000);
  EXPECT_FLOAT_EQ(BranchGain(sublayer, 3000), 0.75f);
  EXPECT_EQ(BranchGain(sublayer, 4000), 1.0f);
  EXPECT_EQ(BranchGain(sublayer, 90000), 1.0f);
  sublayer.branch_gain = 0.5f;
  EXPECT_FLOAT_EQ(BranchGain(sublayer, 3000), 0.375f);
  EXPECT_EQ(BranchGain(sublayer, 90000), 0.5f);
}

TEST(BranchGainTest, ThereIsOneWhereItIsNotOneForEver) {
  EXPECT_FALSE(HasBranchGain({}));
  EXPECT_TRUE(HasBranchGain({.branch_gain = 0.5f}));
  EXPECT_TRUE(HasBranchGain({.branch_growth = BranchGrowth::kLinear}));
}

TEST(BranchGainTest, ThePlanCarriesHowItGrows) {
  ModelOptions options = Options(2, 3, 8, 16, 100);
  options.branch_growth = BranchGrowth::kSigmoid;
  options.branch_growth_updates = 77;
  options.branch_growth_steepness = 3;
  for (const SublayerRecord& sublayer : ModelPlan::Make(options).sublayers) {
    EXPECT_EQ(sublayer.branch_growth, BranchGrowth::kSigmoid);
    EXPECT_EQ(sublayer.branch_growth_updates, 77);
    EXPECT_EQ(sublayer.branch_growth_steepness, 3);
  }
}

TEST(BranchGainTest, GrowsExponentiallyAndAsASigmoid) {
  SublayerRecord sublayer{.branch_growth = BranchGrowth::kExponential, .branch_growth_updates = 4000};
  sublayer.branch_growth_steepness = static_cast<float>(DefaultSteepness(BranchGrowth::kExponential));
  EXPECT_FLOAT_EQ(BranchGain(sublayer, 2000), static_cast<float>((std::exp(2.5) - 1) / (std::exp(5.0) - 1)));
  EXPECT_EQ(BranchGain(sublayer, 4000), 1.0f);
  EXPECT_EQ(BranchGain(sublayer, 1000000000), 1.0f);
  sublayer.branch_growth = BranchGrowth::kSigmoid;
  sublayer.branch_growth_steepness = static_cast<float>(DefaultSteepness(BranchGrowth::kSigmoid));
  EXPECT_NEAR(BranchGain(sublayer, 4000), 0.995, 1e-3);
  EXPECT_FLOAT_EQ(BranchGain(sublayer, 2000), static_cast<float>(2 / (1 + std::exp(-3.0)) - 1));
  EXPECT_EQ(BranchGain(sublayer, 1000000000), 1.0f);
}

}  // namespace
}  // namespace hadal

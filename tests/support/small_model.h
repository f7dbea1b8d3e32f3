// Makes the small models that tests compute with.
#pragma once

#include "layers/method_presets.h"

namespace hadal::testing {

// The defaults make a 5L-7L model.
struct SmallShape {
  int32_t encoder_layers = 5;  // 0: a language model
  int32_t decoder_layers = 7;  // 0: an encoder alone
  int32_t d_model = 16;
  int32_t d_ff = 0;  // 0: 2 · d_model
  int32_t heads = 4;
  int32_t vocabulary = 50;  // of each side
  int32_t max_positions = 64;
};

// The model has tied embeddings, every kind of dropout, and the method's constants for this depth; growing branch gains
// reach 1 after 10 updates, and CompleteP's rate was chosen for half the width.
ModelOptions SmallModel(ResidualMethod method, const SmallShape& shape = {});
// RMSNorm without shifts, a gated SiLU, no biases, rotary positions, two heads of keys; heads of another width than
// d_model / heads, normed and gated; windows of four tokens but in every third layer.
inline constexpr Block kModernBlock = {.norm = NormKind::kRms,
                                       .norm_epsilon = 1e-6,
                                       .norm_shift = false,
                                       .activation = Activation::kSilu,
                                       .gated = true,
                                       .biases = Biases::kNone,
                                       .positions = Positions::kRotary,
                                       .kv_heads = 2,
                                       .head_width = 6,
                                       .query_key_norm = true,
                                       .attention_gate = true,
                                       .window = 4,
                                       .global_every = 3,
                                       .rotary_local_theta = 100};
// BERT's: GELU, learned positions, a norm behind the embedding, normal initial weights.
inline constexpr Block kBertBlock = {.norm_epsilon = 1e-12,
                                     .activation = Activation::kGelu,
                                     .positions = Positions::kLearned,
                                     .scale_embedding = false,
                                     .embedding_norm = true,
                                     .initial_deviation = 0.02};
// `model` with an adaptive softmax of three bands that end at `first`, `second` and the vocabulary's end, without label
// smoothing, with dropout in the softmax.
ModelOptions WithAdaptiveSoftmax(ModelOptions model, EmbeddingSharing sharing, int32_t first, int32_t second);

}  // namespace hadal::testing

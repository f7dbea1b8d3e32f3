// The options of a model, as plain values. (Only tools/ includes the config's protobuf messages.)
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "kernels/activation.h"
#include "kernels/hyper_connection.h"

namespace hadal {

enum class NormPlacement : int32_t {
  kPost,  // x' = LN(r·x + b·F(x))
  kPre,   // x' = r·x + b·F(LN(x)), and one norm after each stack
  kNone,  // x' = r·x + b·F(x)
};

enum class EmbeddingSharing : int32_t {
  kNone,     // separate source, target and output matrices
  kDecoder,  // target embedding = output projection; with an adaptive softmax the target embedding is adaptive, too
  kAll,      // one matrix (or set of bands) for source, target and output; without a source embedding: kDecoder
};

enum class WeightDistribution : int32_t { kXavierUniform, kXavierNormal };

// The factor of every branch gain b at update t = 1, 2, …; T: branch_growth_updates, k: branch_growth_steepness.
enum class BranchGrowth : int32_t {
  kConstant,     // 1
  kLinear,       // min(1, t/T) (BranchNorm, arXiv 2305.02790 eq. 8)
  kExponential,  // min(1, (e^(k·t/T) - 1) / (e^k - 1)); ours: the paper's figure 7 names the growth without a formula
  kSigmoid,      // min(1, 2·sigmoid(k·t/T) - 1); ours, for the same reason
};

// How a factor depends on the layer l = 1 … n of a stack: the factor of the layer's initial weights (depth_init), or of
// the norm's output that a branch reads (norm_gain).
enum class DepthInit : int32_t {
  kFlat,         // 1
  kInverseSqrt,  // 1/sqrt(l): higher layers are smaller (DS-Init, Zhang, Titov and Sennrich 2019; LayerNorm Scaling)
  kFromTop,      // 1/(n - l + 1): lower layers are smaller (Post-LN-init, DeepNet section 3)
};
double DepthInitFactor(DepthInit init, int32_t layer, int32_t layers);  // layer = l − 1, layers = n

// The learned vector ω of r·ω ⊙ x, one per sublayer (Admin, Liu et al. 2020), and its initial value.
enum class Omega : int32_t {
  kNone,      // no such vector
  kConstant,  // StackMethod::initial_omega for all elements
  // from the variances that a forward pass measures in the earlier branches, before the first step (residual_profile.h)
  kProfiled,
};

// The residual connection and the initial weights of one stack. Set by a preset (method_presets.h); users may override
// each field.
struct StackMethod {
  NormPlacement norm = NormPlacement::kPost;
  // p: in a stack whose `norm` is kPre, the first ⌊p·n⌋ of the n layers are Post-LN (Mix-LN, arXiv 2412.13795).
  double post_norm_share = 0;
  double residual_gain = 1;  // r; DeepNorm's alpha
  // How k of F(k·LN(x)) depends on the layer; needs NormPlacement::kPre (LayerNorm Scaling, arXiv 2502.05795).
  DepthInit norm_gain = DepthInit::kFlat;
  Omega omega = Omega::kNone;
  double initial_omega = 1;
  double branch_gain = 1;  // b, before growth
  // Multiplies b by a learned scalar, one per layer, that starts at 0 (ReZero, Bachlechner et al. 2020).
  bool learned_branch_gain = false;

  // Adds the layer's input x_0 to the layer's last sum: s = c·(r·x + b·F(x)) + a·x_0 (B2T, arXiv 2206.00330).
  double skip_gain = 0;   // a; 0: no such skip
  double layer_gain = 1;  // c

  // s of a second stream d beside the residual stream x: d = s·x before the first sublayer, d' = d + s·b·F(x) after
  // each, and the stack ends with x + LN(d) (ResiDual, arXiv 2304.14802; second_stream.h). 0: one stream.
  double second_stream_gain = 0;

  // n residual streams X, which every sublayer reads and writes by learned maps of X:
  // X' = H_res·X + H_postᵀ·F(LN(H_pre·X)) (mHC, arXiv 2512.24880; hyper_segment.cc). 1: the plain residual.
  int32_t residual_streams = 1;
  HyperMixing residual_mixing = HyperMixing::kSinkhorn;  // how H_res is made (kernels/hyper_connection.h)

  // Layers, and the module after the stack, read a learned combination of the embedding and of the outputs of all
  // layers before them (DLCL, Wang et al. 2019; layer_combination.h).
  bool combine_layers = false;

  // Sublayers read a softmax over the embedding, the sums of blocks of sublayers before them and the open block's sum,
  // by learned queries (Attention Residuals, arXiv 2603.15031; block_reader.h). The value B is the number of blocks:
  // each has ⌈sublayers / B⌉ sublayers, the last one the rest (there may be fewer than B blocks). 0: no such reads.
  int32_t attention_residual_blocks = 0;
  // Sublayers per block. If not 0, attention_residual_blocks has no effect.
  int32_t attention_residual_block_sublayers = 0;
  // Sublayers read instead the residual stream plus that softmax over the finished blocks (Delta Attention Residuals,
  // arXiv 2605.18855).
  bool attention_residual_delta = false;
  bool reads_blocks() const { return attention_residual_blocks > 0 || attention_residual_block_sublayers > 0; }

  // Learned parts of branches beside their products; each starts as the identity (chunk_part.h).
  bool branch_input_norm = false;      // every branch: F(LN(x)), in addition to `norm` (Keel, arXiv 2601.19895)
  bool branch_output_norm = false;     // every branch: LN(F(x)) (Peri-LN, arXiv 2502.02732)
  bool attention_inner_norm = false;   // self-attention: LayerNorm before W_o (Sub-LN, arXiv 2210.06423)
  bool attention_output_norm = false;  // self-attention: LayerNorm after W_o (NormFormer, Shleifer et al. 2021)
  bool head_scale = false;             // self-attention: a scalar per head before W_o (NormFormer)
  bool ffn_inner_norm = false;         // feed-forward: LayerNorm before W_2 (Sub-LN, NormFormer)
  // Learned scalars of R-Fixup (Zhang, Dauphin and Ma 2019); shifts start at 0 and gains at 1. A shift before each
  // product except W_o, and before the ReLU; a gain on each branch; after a stack without norms a shift and, for the
  // encoder, a gain.
  bool fixup_scalars = false;
  bool linear_bias = true;  // whether products add a bias

  // Xavier gains. The base initialisation is fairseq's (q, k, v as one fused matrix: 1/sqrt(2) each).
  double query_key_gain = 0.70710678118654752;    // of self- and cross-attention
  double value_gain = 0.70710678118654752;        // W_v of self-attention; DeepNorm's beta
  double output_gain = 1;                         // W_o of self-attention; DeepNorm's beta
  double cross_value_gain = 0.70710678118654752;  // W_v of cross-attention; decoder only
  double cross_output_gain = 1;                   // W_o of cross-attention; decoder only
  double ffn_gain = 1;                            // W_1 and W_2; DeepNorm's beta
  double ffn_output_factor = 1;                   // a further factor of W_2 only
  DepthInit depth_init = DepthInit::kFlat;
  double embedding_gain = 1;   // multiplies the standard deviation 1/sqrt(d) of the stack's own embedding
  double projection_gain = 1;  // the same for an untied output projection; decoder only
  // Factor of Adam's epsilon for the weights of the stack's attention and feed-forward sublayers (CompleteP, arXiv
  // 2505.01618). Only training reads it.
  double adam_epsilon_factor = 1;

  // Whether a layer's sublayers must stay on one rank and in one segment, because they share a parameter or because a
  // cut between them would carry too many tensors.
  bool couples_layer() const { return learned_branch_gain || skip_gain != 0 || combine_layers; }
};

// Where the bands of an adaptive softmax end (adaptive_bands.h): ascending token ids. The last band ends with the
// vocabulary.
struct AdaptiveCutoffs {
  static constexpr int32_t kMost = 7;
  std::array<int32_t, kMost> ids = {};
  int32_t count = 0;  // 0: no adaptive softmax
  std::span<const int32_t> span() const { return std::span(ids).first(count); }
};

enum class NormKind : int32_t { kLayer, kRms };

// Which of the model's products add a bias (kQkv: only those of q, k and v). In a stack they do so only if its
// StackMethod::linear_bias is also true.
enum class Biases : int32_t { kAll, kNone, kQkv };

// How a model represents the order of tokens.
enum class Positions : int32_t {
  kSinusoidal,  // added to the embeddings, fixed (kernels/embedding.h)
  kLearned,     // added to the embeddings, a table of parameters
  kRotary,      // queries and keys of self-attention turn (kernels/rotary.h); cross-attention has no positions
  kNone,
};

// What a sublayer's branch and its norms consist of, independent of the residual connection (StackMethod). The default
// is the block of Vaswani et al. 2017.
struct Block {
  NormKind norm = NormKind::kLayer;  // every norm of the model
  double norm_epsilon = 1e-5;
  bool norm_shift = true;  // whether norms add a learned shift
  Activation activation = Activation::kRelu;
  bool gated = false;  // feed-forward: act(x·W_1ᵀ) ⊙ (x·W_3ᵀ) in place of act(x·W_1ᵀ) (SwiGLU, GeGLU)
  Biases biases = Biases::kAll;
  Positions positions = Positions::kSinusoidal;
  double rotary_theta = 10000;
  double rotary_share = 1;        // the share of a head's columns that turn
  int32_t kv_heads = 0;           // heads of keys and values, a divisor of `heads`; 0: `heads`
  int32_t head_width = 0;         // 0: d_model / heads
  bool scale_embedding = true;    // whether embeddings are multiplied by sqrt(d_model)
  bool query_key_norm = false;    // a norm over each head's queries and keys (kernels/head_norm.h), before they turn
  bool attention_gate = false;    // self-attention: the heads' output times σ(W_g·x), before W_o
  int32_t window = 0;             // tokens that self-attention of a local layer sees; 0: all layers are global
  int32_t global_every = 0;       // with a window: every n-th layer, from layer 0 on, is global; 0: none
  double rotary_local_theta = 0;  // theta of local layers; 0: rotary_theta
  double rotary_scaling = 1;      // RotaryScaling::factor (kernels/rotary.h) for rotary_theta; next: its positions
  int32_t rotary_scaling_positions = 8192;
  bool first_norm = true;       // with norms in front of branches: whether the first sublayer has one, too
  bool embedding_norm = false;  // whether a norm follows embeddings and positions, in front of their dropout
  // Standard deviation of the normal distribution of all initial matrices and tables; a method's gains multiply it
  // (method_presets.md). 0: Xavier initialisation.
  double initial_deviation = 0;
  // Whether initial_deviation is divided by sqrt(sublayers of the stack) for every branch's last product (GPT-2).
  bool initial_depth_factor = false;

  bool operator==(const Block&) const = default;
};

struct ModelOptions {
  int32_t encoder_layers = 6;  // 0: a language model
  int32_t decoder_layers = 6;  // 0: an encoder alone
  int32_t d_model = 512;
  int32_t d_ff = 2048;
  int32_t heads = 8;
  int32_t source_vocabulary = 0;  // rows of the source embedding, with special tokens; 0: no source embedding
  int32_t target_vocabulary = 0;
  // Equal to the corpus's TextForm (runtime/data/packed_batch.h), of the target vocabulary: the decoder's first input,
  // the token that ends a text, and whether ids 0 to 3 are hadal's special tokens.
  int32_t start_token = 2;
  int32_t end_token = 2;
  bool reserved_ids = true;
  int32_t mask_token = -1;       // decoding never outputs it; −1: none
  bool document_mask = false;    // TextForm::document_mask of its training corpus
  int32_t max_positions = 1024;  // longest sentence, including </s>
  EmbeddingSharing sharing = EmbeddingSharing::kAll;

  double dropout = 0.1;           // on sublayer outputs and the embedding sum
  double attention_dropout = 0;   // on attention probabilities
  double activation_dropout = 0;  // on the feed-forward hidden layer
  double label_smoothing = 0.1;
  double z_loss = 0;  // factor of the squared logarithm of the softmax's sum in the training loss

  Block block;
  StackMethod encoder;  // ignored without an encoder
  StackMethod decoder;  // ignored without a decoder
  WeightDistribution distribution = WeightDistribution::kXavierUniform;
  BranchGrowth branch_growth = BranchGrowth::kConstant;
  double branch_growth_updates = 4000;  // T
  double branch_growth_steepness = 0;   // k of the exponential and the sigmoid

  AdaptiveCutoffs adaptive_cutoffs;
  int32_t adaptive_factor = 4;  // width of a band / width of the next band
  double adaptive_dropout = 0;  // on the input of the adaptive softmax and inside its bands

  // The width for which the learning rate was chosen: at another d_model, initial weights and Adam's settings follow
  // muP (method_presets.md). 0: d_model.
  int32_t base_width = 0;

  int32_t frame_width = 0;            // speech: features per frame of a source; 0: text, or no source
  int32_t front_end_channels = 1024;  // speech: C of the first convolution (speech_front_end.h)

  // Without an encoder the model is a language model: no source, and no cross-attention in the decoder layers. Without
  // a decoder it predicts masked tokens (output_head.h): its source is plain text, of the target's vocabulary.
  bool has_encoder() const { return encoder_layers > 0; }
  bool has_decoder() const { return decoder_layers > 0; }
  bool translates() const { return has_encoder() && has_decoder(); }
  // Whether the feed-forward's first product also adds the bias and applies ReLU and dropout; else its output is
  // kept for the backward, and kernels/activation.h follows.
  bool fuses_activation() const { return block.activation == Activation::kRelu && !block.gated; }
  // Products of d_model × d_ff in a feed-forward sublayer.
  int32_t feed_forward_products() const { return block.gated ? 3 : 2; }
  bool adds_positions() const {
    return block.positions == Positions::kSinusoidal || block.positions == Positions::kLearned;
  }
  int32_t kv_heads() const { return block.kv_heads > 0 ? block.kv_heads : heads; }
  int32_t head_width() const { return block.head_width > 0 ? block.head_width : d_model / heads; }
  // query_width: columns of a token's queries, and of all heads' output. key_width: columns of its keys; of its values.
  int32_t query_width() const { return heads * head_width(); }
  int32_t key_width() const { return kv_heads() * head_width(); }
  // Factor of the embeddings.
  float embedding_factor() const;
  // Columns of a head that turn.
  int32_t rotary_width() const;
  double width_multiplier() const { return base_width > 0 ? static_cast<double>(d_model) / base_width : 1; }
  bool adaptive() const { return adaptive_cutoffs.count > 0; }
  // If true, the encoder reads frames, and there is neither a source vocabulary nor a source embedding.
  bool reads_speech() const { return frame_width > 0; }
  // Whether the source and the target use one embedding.
  bool shares_source() const { return translates() && !reads_speech() && sharing == EmbeddingSharing::kAll; }
  int32_t encoder_sublayers() const { return 2 * encoder_layers; }
  int32_t decoder_sublayers() const { return (has_encoder() ? 3 : 2) * decoder_layers; }
};

// Returns a block for messages: "RMSNorm 1e-06 without shifts, gated silu, no biases".
std::string BlockText(const Block& block);
// Returns the depth for messages: "6L-6L", "6L decoder-only" or "6L encoder-only".
std::string DepthName(const ModelOptions& options);

// Returns the default k of a growth: 5 (exponential), 6 (sigmoid: 0.995 at t = T), 0 if k is not used.
double DefaultSteepness(BranchGrowth growth);

// Errors: InvalidArgument, with the field, its value and the allowed range.
absl::Status ValidateModelOptions(const ModelOptions& options);

}  // namespace hadal

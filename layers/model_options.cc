#include "layers/model_options.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "layers/model_fields.h"
#include "runtime/data/packed_batch.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return InvalidArgumentError("model: ", parts...);
}

absl::Status InRange(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Invalid(field, " = ", value, ", allowed: ", low, " to ", high);
}

// What neither several residual streams nor sums of blocks, which replace the residual stream, have; null: nothing.
const char* GainOfOneStream(const StackMethod& stack) {
  return stack.norm != NormPlacement::kPre ? "norm is not \"pre\""
         : stack.post_norm_share > 0       ? "post_norm_share is not 0"
         : stack.residual_gain != 1        ? "residual_gain is not 1"
         : stack.omega != Omega::kNone     ? "omega is not \"none\""
         : stack.skip_gain != 0            ? "skip_gain is not 0"
         : stack.layer_gain != 1           ? "layer_gain is not 1"
         : stack.learned_branch_gain       ? "learned_branch_gain is set"
         : stack.combine_layers            ? "combine_layers is set"
         : stack.fixup_scalars             ? "fixup_scalars is set"
                                           : nullptr;
}

absl::Status ValidateResiduals(const char* name, const StackMethod& stack) {
  const char* const other = GainOfOneStream(stack);
  if (other == nullptr) return absl::OkStatus();
  return Invalid("residual_streams of the ", name, " is ", stack.residual_streams, ", but ", other,
                 ": learned maps take the place of gains and skips. Set residual_streams to 1, or the other to its "
                 "value in \"mhc\".");
}

absl::Status ValidateBlockReaders(const char* name, const StackMethod& stack) {
  HADAL_RETURN_IF_ERROR(InRange("attention_residual_blocks", stack.attention_residual_blocks, 0, 30000));
  HADAL_RETURN_IF_ERROR(
      InRange("attention_residual_block_sublayers", stack.attention_residual_block_sublayers, 0, 30000));
  const bool reads = stack.reads_blocks();
  const char* const other = !reads && stack.attention_residual_delta ? "there are no blocks (attention_residual_blocks)"
                            : !reads                                 ? nullptr
                            : stack.residual_streams > 1             ? "residual_streams is not 1"
                                                                     : GainOfOneStream(stack);
  if (other == nullptr) return absl::OkStatus();
  return Invalid("the ", name, " has attention_residual_", reads ? "blocks" : "delta", ", but ", other,
                 ": sums of blocks take the place of the residual stream. Set attention_residual_blocks, "
                 "_block_sublayers and _delta to 0, 0 and false, or the other to its value in \"attn_res\".");
}

absl::Status CheckHeads(const ModelOptions& options) {
  HADAL_RETURN_IF_ERROR(InRange("heads", options.heads, 1, 65536));
  HADAL_RETURN_IF_ERROR(InRange("block.head_width", options.block.head_width, 0, 65536));
  HADAL_RETURN_IF_ERROR(InRange("block.kv_heads", options.block.kv_heads, 0, options.heads));
  if (options.block.head_width == 0 && options.d_model % options.heads != 0) {
    return Invalid("heads = ", options.heads, " must divide d_model = ", options.d_model,
                   ", or block.head_width must be set");
  }
  if (options.heads % options.kv_heads() == 0) return absl::OkStatus();
  return Invalid("block.kv_heads = ", options.kv_heads(), " must divide heads = ", options.heads);
}

absl::Status CheckPositions(const ModelOptions& options) {
  const Block& block = options.block;
  if (block.positions == Positions::kLearned && options.reads_speech()) {
    return Invalid(
        "block.positions \"learned\" is not allowed with speech, whose front end adds fixed positions. Set "
        "block.positions to \"sinusoidal\", \"rotary\" or \"none\".");
  }
  if (block.positions != Positions::kRotary) return absl::OkStatus();
  HADAL_RETURN_IF_ERROR(InRange("block.rotary_theta", block.rotary_theta, 1, 1e12));
  HADAL_RETURN_IF_ERROR(InRange("block.rotary_share", block.rotary_share, 0, 1));
  if (options.rotary_width() >= 2 && options.rotary_width() % 2 == 0) return absl::OkStatus();
  return Invalid(
      "block.rotary_share = ", block.rotary_share, " of heads of ", options.head_width(), " columns turns ",
      options.rotary_width(),
      " columns, but columns turn in pairs. Set it so that their number is even, or block.positions to \"none\".");
}

absl::Status CheckWindows(const ModelOptions& options) {
  const Block& block = options.block;
  HADAL_RETURN_IF_ERROR(InRange("block.window", block.window, 0, 65536));
  HADAL_RETURN_IF_ERROR(InRange("block.global_every", block.global_every, 0, 10000));
  if (block.rotary_local_theta != 0) {
    HADAL_RETURN_IF_ERROR(InRange("block.rotary_local_theta", block.rotary_local_theta, 1, 1e12));
  }
  HADAL_RETURN_IF_ERROR(InRange("block.rotary_scaling", block.rotary_scaling, 1, 1e6));
  return InRange("block.rotary_scaling_positions", block.rotary_scaling_positions, 1, 1 << 24);
}

absl::Status CheckFirstNorm(const char* name, const StackMethod& stack) {
  const char* const other = stack.norm != NormPlacement::kPre        ? "norm is not \"pre\""
                            : stack.post_norm_share > 0              ? "post_norm_share is not 0"
                            : stack.norm_gain == DepthInit::kFromTop ? "norm_gain is \"from_top\""
                            : stack.couples_layer()                  ? "a layer has its own gain, skip or sums"
                            : stack.residual_streams > 1             ? "residual_streams is not 1"
                                                                     : nullptr;
  if (other == nullptr) return absl::OkStatus();
  return Invalid("block.first_norm is false, but ", other, " in the ", name,
                 ". Set block.first_norm to true, or choose a method like \"pre_ln\".");
}

absl::Status ValidateBlock(const ModelOptions& options) {
  HADAL_RETURN_IF_ERROR(CheckWindows(options));
  if (!options.block.first_norm) {
    if (options.has_encoder()) HADAL_RETURN_IF_ERROR(CheckFirstNorm("encoder", options.encoder));
    if (options.has_decoder()) HADAL_RETURN_IF_ERROR(CheckFirstNorm("decoder", options.decoder));
  }
  HADAL_RETURN_IF_ERROR(InRange("block.norm_epsilon", options.block.norm_epsilon, 1e-12, 0.1));
  HADAL_RETURN_IF_ERROR(InRange("block.initial_deviation", options.block.initial_deviation, 0, 100));
  HADAL_RETURN_IF_ERROR(CheckPositions(options));
  if (options.block.embedding_norm && options.reads_speech()) {
    return Invalid("block.embedding_norm is not allowed with speech, which has no embeddings. Set it to false.");
  }
  const bool fixup = (options.has_decoder() && options.decoder.fixup_scalars) ||
                     (options.has_encoder() && options.encoder.fixup_scalars);
  if (!fixup || options.fuses_activation()) return absl::OkStatus();
  return Invalid("fixup_scalars is not allowed with block.activation \"",
                 ToWord(kActivationWords, options.block.activation), options.block.gated ? "\" and block.gated" : "\"",
                 ": R-Fixup's scalars are defined around a ReLU. Set block.activation to \"relu\" and block.gated to "
                 "false, or choose another method.");
}

absl::Status ValidateStack(const char* name, const StackMethod& stack) {
  if (stack.norm_gain != DepthInit::kFlat && stack.norm != NormPlacement::kPre) {
    return Invalid(
        "norm_gain of the ", name, " is \"", ToWord(kDepthInitWords, stack.norm_gain), "\", but norm is \"",
        ToWord(kNormWords, stack.norm),
        "\": the gain stands behind a norm in front of each branch. Set norm to \"pre\", or norm_gain to \"flat\".");
  }
  if (stack.post_norm_share > 0 && (stack.norm != NormPlacement::kPre || stack.combine_layers)) {
    return Invalid("post_norm_share of the ", name, " is ", stack.post_norm_share, ", but ",
                   stack.combine_layers ? "combine_layers is set: a combination has norms of one placement"
                                        : "norm is not \"pre\": the layers above that share are Pre-LN",
                   ". Set post_norm_share to 0, or ",
                   stack.combine_layers ? "combine_layers to false." : "norm to \"pre\".");
  }
  if (stack.second_stream_gain != 0) {
    HADAL_RETURN_IF_ERROR(InRange("second_stream_gain", stack.second_stream_gain, 1e-6, 1000));
  }
  if (stack.second_stream_gain > 0 && (stack.norm != NormPlacement::kPost || stack.combine_layers)) {
    return Invalid(
        "second_stream_gain of the ", name, " is ", stack.second_stream_gain, ", but ",
        stack.combine_layers ? "combine_layers is set: a combination, too, stands behind the stack"
                             : "norm is not \"post\": without norms between sublayers the two streams are one",
        ". Set second_stream_gain to 0, or ", stack.combine_layers ? "combine_layers to false." : "norm to \"post\".");
  }
  HADAL_RETURN_IF_ERROR(InRange(stack.residual_mixing == HyperMixing::kSinkhorn
                                    ? "residual_streams"
                                    : "residual_streams with residual_mixing permutations",
                                stack.residual_streams, 1, MostResiduals(stack.residual_mixing)));
  if (stack.residual_streams > 1) HADAL_RETURN_IF_ERROR(ValidateResiduals(name, stack));
  HADAL_RETURN_IF_ERROR(ValidateBlockReaders(name, stack));
  if (stack.omega == Omega::kProfiled && (stack.norm != NormPlacement::kPost || stack.post_norm_share > 0)) {
    return Invalid("omega of the ", name,
                   " is \"profiled\", but norm is not \"post\" in all layers: without a norm "
                   "behind the sum omega grows with every sublayer. Set omega to \"constant\", or norm to \"post\".");
  }
  if (!stack.fixup_scalars) return absl::OkStatus();
  const char* const other = stack.learned_branch_gain ? "learned_branch_gain: a branch has one learned gain"
                            : stack.ffn_inner_norm    ? "ffn_inner_norm: both stand in front of W_2"
                            : stack.combine_layers    ? "combine_layers: both stand behind the stack"
                                                      : nullptr;
  if (other == nullptr) return absl::OkStatus();
  return Invalid("fixup_scalars of the ", name, " is not allowed with ", other);
}

// muP's rules are known for Pre-LN between plain tables alone; the decoder's last norm scales the logits.
absl::Status CheckBaseWidth(const ModelOptions& options) {
  if (options.base_width == 0) return absl::OkStatus();
  HADAL_RETURN_IF_ERROR(InRange("base_width", options.base_width, 1, 65536));
  const auto is_pre_ln = [](const StackMethod& stack) {
    return stack.norm == NormPlacement::kPre && stack.post_norm_share == 0 && !stack.combine_layers &&
           !stack.reads_blocks();
  };
  const bool pre_ln = is_pre_ln(options.decoder) && (!options.has_encoder() || is_pre_ln(options.encoder));
  constexpr char kNotPreLn[] = "layers that are not Pre-LN, or are combined";
  constexpr char kUnscaled[] = "block.scale_embedding = false";
  const char* const other = options.adaptive()       ? "an adaptive softmax"
                            : options.reads_speech() ? "speech"
                            : !options.has_decoder() ? "an encoder alone, whose head has a product and a norm"
                            : options.block.initial_deviation > 0            ? "block.initial_deviation"
                            : options.block.positions == Positions::kLearned ? "learned positions"
                            : !options.block.scale_embedding && !options.block.embedding_norm ? kUnscaled
                            : !pre_ln                                                         ? kNotPreLn
                                                                                              : nullptr;
  if (other == nullptr) return absl::OkStatus();
  return Invalid("base_width = ", options.base_width, " is not allowed with ", other,
                 ", for which no rules are known. Set model.base_width to 0",
                 other == kNotPreLn   ? ", or model.residual.method to \"completep\" or \"pre_ln\"."
                 : other == kUnscaled ? ", or model.block.scale_embedding to true."
                                      : ".");
}

// An encoder alone reads plain text.
absl::Status CheckEncoderAlone(const ModelOptions& options) {
  const char* const other =
      !options.has_encoder()           ? "model.encoder_layers = 0: there is no layer. Set one of them to 1 or more."
      : options.reads_speech()         ? "speech, which has no tokens to mask. Set model.decoder_layers to 1 or more."
      : options.source_vocabulary != 0 ? "sentence pairs. Prepare plain text with `hadal prepare --monolingual "
                                         "--mask-token`, or set model.decoder_layers to 1 or more."
      : options.adaptive() ? "adaptive_cutoffs: its softmax has a bias and one table. Set model.adaptive_cutoffs to []."
                           : nullptr;
  if (other == nullptr) return absl::OkStatus();
  return Invalid("decoder_layers = 0, an encoder alone that predicts masked tokens, is not allowed with ", other);
}

// Checks that there is an encoder exactly if there are source sentences.
absl::Status CheckSource(const ModelOptions& options) {
  if (!options.has_decoder()) return CheckEncoderAlone(options);
  if (options.reads_speech()) {
    if (!options.has_encoder()) {
      return Invalid(
          "encoder_layers = 0 is a language model, but the corpus is speech. Set model.encoder_layers to 1 or more.");
    }
    HADAL_RETURN_IF_ERROR(InRange("source_vocabulary", options.source_vocabulary, 0, 0));
    HADAL_RETURN_IF_ERROR(InRange("frame_width", options.frame_width, 1, 65536));
    HADAL_RETURN_IF_ERROR(InRange("front_end_channels", options.front_end_channels, 2, 65536));
    if (options.front_end_channels % 2 == 0) return absl::OkStatus();
    return Invalid("front_end_channels = ", options.front_end_channels, " must be even, for the GLU");
  }
  if (options.has_encoder() && options.source_vocabulary == 0) {
    return Invalid("encoder_layers = ", options.encoder_layers,
                   " reads source sentences, but the corpus is plain text. Set model.encoder_layers to 0 for a "
                   "language model, model.decoder_layers to 0 for an encoder alone, or prepare sentence pairs.");
  }
  if (!options.has_encoder() && options.source_vocabulary != 0) {
    return Invalid(
        "encoder_layers = 0 is a language model, but the corpus has source sentences. Prepare plain text with `hadal "
        "prepare --monolingual`, or set model.encoder_layers to 1 or more.");
  }
  if (!options.has_encoder()) return absl::OkStatus();
  return InRange("source_vocabulary", options.source_vocabulary, kSpecialTokens + 1, 1 << 28);
}

absl::Status CheckAdaptive(const ModelOptions& options) {
  const AdaptiveCutoffs& cutoffs = options.adaptive_cutoffs;
  if (!options.adaptive()) return absl::OkStatus();
  int32_t before = kSpecialTokens;
  for (int32_t i = 0; i < cutoffs.count; ++i) {
    HADAL_RETURN_IF_ERROR(
        InRange("adaptive_cutoffs", cutoffs.ids[i], int64_t{before} + 1, int64_t{options.target_vocabulary} - 1));
    before = cutoffs.ids[i];
  }
  HADAL_RETURN_IF_ERROR(InRange("adaptive_factor", options.adaptive_factor, 1, 1024));
  double width = options.d_model;
  for (int32_t i = 0; i < cutoffs.count; ++i) width /= options.adaptive_factor;
  if (width < 1) {
    return Invalid("d_model = ", options.d_model, " leaves no column for band ", cutoffs.count,
                   " of adaptive_cutoffs with adaptive_factor = ", options.adaptive_factor,
                   "; use fewer cutoffs or a smaller factor");
  }
  if (options.label_smoothing > 0) {
    return Invalid("label_smoothing = ", options.label_smoothing,
                   " is not allowed with adaptive_cutoffs: the adaptive softmax does not compute the other words' "
                   "probabilities. Set model.label_smoothing to 0.");
  }
  if (options.z_loss > 0) {
    return Invalid("z_loss = ", options.z_loss,
                   " is not allowed with adaptive_cutoffs, which has several softmaxes. Set model.z_loss to 0.");
  }
  return InRange("adaptive_dropout", options.adaptive_dropout, 0, 0.99);
}

}  // namespace

float ModelOptions::embedding_factor() const {
  return block.scale_embedding ? std::sqrt(static_cast<float>(d_model)) : 1.0f;
}

int32_t ModelOptions::rotary_width() const {
  // 0.29 of 100 columns are 29, although the product of the doubles is below that.
  return static_cast<int32_t>(std::floor(block.rotary_share * head_width() + 1e-9));
}

double DepthInitFactor(DepthInit init, int32_t layer, int32_t layers) {
  switch (init) {
    case DepthInit::kFlat:
      return 1;
    case DepthInit::kInverseSqrt:
      return 1 / std::sqrt(layer + 1.0);
    case DepthInit::kFromTop:
      return 1.0 / (layers - layer);
  }
  return 1;
}

double DefaultSteepness(BranchGrowth growth) {
  switch (growth) {
    case BranchGrowth::kExponential:
      return 5;
    case BranchGrowth::kSigmoid:
      return 6;
    default:
      return 0;
  }
}

namespace {

std::string AttentionText(const Block& block) {
  return absl::StrCat(
      block.query_key_norm ? ", normed queries and keys" : "", block.attention_gate ? ", gated attention" : "",
      block.window > 0 ? absl::StrCat(", windows of ", block.window, " tokens") : "",
      block.global_every > 0 ? absl::StrCat(" but in every ", block.global_every, ". layer") : "",
      block.rotary_local_theta > 0 ? absl::StrCat(" of theta ", block.rotary_local_theta) : "",
      block.rotary_scaling != 1
          ? absl::StrCat(", positions scaled by ", block.rotary_scaling, " from ", block.rotary_scaling_positions)
          : "",
      block.first_norm ? "" : ", no first norm");
}

}  // namespace

std::string BlockText(const Block& block) {
  return absl::StrCat(block.norm == NormKind::kRms ? "RMSNorm " : "LayerNorm ", block.norm_epsilon,
                      block.norm_shift ? "" : " without shifts", block.gated ? ", gated " : ", ",
                      ToWord(kActivationWords, block.activation),
                      block.biases == Biases::kAll    ? ", biases"
                      : block.biases == Biases::kNone ? ", no biases"
                                                      : ", biases of q, k, v",
                      block.positions == Positions::kSinusoidal
                          ? ""
                          : absl::StrCat(", positions ", ToWord(kPositionsWords, block.positions)),
                      block.positions == Positions::kRotary && block.rotary_theta != 10000
                          ? absl::StrCat(" of theta ", block.rotary_theta)
                          : "",
                      block.positions == Positions::kRotary && block.rotary_share != 1
                          ? absl::StrCat(" over ", block.rotary_share, " of a head")
                          : "",
                      block.kv_heads > 0 ? absl::StrCat(", ", block.kv_heads, " key heads") : "",
                      block.head_width > 0 ? absl::StrCat(", heads of ", block.head_width, " columns") : "",
                      block.scale_embedding ? "" : ", embeddings unscaled", AttentionText(block),
                      block.embedding_norm ? ", embeddings normed" : "",
                      block.initial_deviation > 0
                          ? absl::StrCat(", initial deviation ", block.initial_deviation,
                                         block.initial_depth_factor ? " with the depth factor" : "")
                          : "");
}

std::string DepthName(const ModelOptions& options) {
  if (!options.has_decoder()) return absl::StrCat(options.encoder_layers, "L encoder-only");
  return options.has_encoder() ? absl::StrCat(options.encoder_layers, "L-", options.decoder_layers, "L")
                               : absl::StrCat(options.decoder_layers, "L decoder-only");
}

absl::Status ValidateModelOptions(const ModelOptions& options) {
  constexpr double kMaxLayers = 10000;  // 2N + 3M + 3 sublayers must stay below 65,536, the limit of random.h's counter
  HADAL_RETURN_IF_ERROR(InRange("encoder_layers", options.encoder_layers, 0, kMaxLayers));
  HADAL_RETURN_IF_ERROR(InRange("decoder_layers", options.decoder_layers, 0, kMaxLayers));
  HADAL_RETURN_IF_ERROR(InRange("d_model", options.d_model, 1, 65536));
  HADAL_RETURN_IF_ERROR(InRange("d_ff", options.d_ff, 1, 262144));
  HADAL_RETURN_IF_ERROR(CheckHeads(options));
  HADAL_RETURN_IF_ERROR(CheckSource(options));
  HADAL_RETURN_IF_ERROR(InRange("target_vocabulary", options.target_vocabulary, kSpecialTokens + 1, 1 << 28));
  if (options.shares_source() && options.source_vocabulary != options.target_vocabulary) {
    return Invalid(
        "one embedding for all needs one vocabulary, but the corpus has ", options.source_vocabulary, " source and ",
        options.target_vocabulary,
        " target pieces. Prepare it with a shared vocabulary, or set model.sharing to \"decoder\" or \"none\".");
  }
  HADAL_RETURN_IF_ERROR(InRange("max_positions", options.max_positions, 2, 65536));
  constexpr double kMaxDropout = 0.99;
  HADAL_RETURN_IF_ERROR(InRange("dropout", options.dropout, 0, kMaxDropout));
  HADAL_RETURN_IF_ERROR(InRange("attention_dropout", options.attention_dropout, 0, kMaxDropout));
  HADAL_RETURN_IF_ERROR(InRange("activation_dropout", options.activation_dropout, 0, kMaxDropout));
  HADAL_RETURN_IF_ERROR(InRange("label_smoothing", options.label_smoothing, 0, kMaxDropout));
  HADAL_RETURN_IF_ERROR(InRange("z_loss", options.z_loss, 0, 1));
  if (options.branch_growth != BranchGrowth::kConstant) {
    HADAL_RETURN_IF_ERROR(InRange("branch_growth_updates", options.branch_growth_updates, 1, 1e12));
  }
  if (DefaultSteepness(options.branch_growth) > 0) {
    HADAL_RETURN_IF_ERROR(InRange("branch_growth_steepness", options.branch_growth_steepness, 0.01, 50));
  }
  HADAL_RETURN_IF_ERROR(CheckAdaptive(options));
  HADAL_RETURN_IF_ERROR(CheckBaseWidth(options));
  HADAL_RETURN_IF_ERROR(ValidateBlock(options));
  if (options.has_encoder()) HADAL_RETURN_IF_ERROR(ValidateStack("encoder", options.encoder));
  return options.has_decoder() ? ValidateStack("decoder", options.decoder) : absl::OkStatus();
}

}  // namespace hadal

// The list of all fields of a model's options, with their names in checkpoints' settings
// (pipeline/checkpoint/model_settings.h). A stack's field has the same name in configs (StackResidual of
// configs/run.proto). All code that reads or writes the fields uses this list; tests/layers/model_fields_test.cc checks
// that no field is missing.
#pragma once

#include "layers/model_options.h"
#include "runtime/choice_words.h"

namespace hadal {

// The names of ModelOptions' enumeration values, used by configs (tools/config/model_config.h) and by the settings in
// checkpoints (pipeline/checkpoint/model_settings.h). Old checkpoints must stay readable: names may be added but never
// changed.
inline constexpr Word<NormPlacement> kNormWords[] = {
    {"post", NormPlacement::kPost}, {"pre", NormPlacement::kPre}, {"none", NormPlacement::kNone}};
inline constexpr Word<Omega> kOmegaWords[] = {
    {"none", Omega::kNone}, {"constant", Omega::kConstant}, {"profiled", Omega::kProfiled}};
inline constexpr Word<DepthInit> kDepthInitWords[] = {
    {"flat", DepthInit::kFlat}, {"inverse_sqrt", DepthInit::kInverseSqrt}, {"from_top", DepthInit::kFromTop}};
inline constexpr Word<HyperMixing> kHyperMixingWords[] = {{"sinkhorn", HyperMixing::kSinkhorn},
                                                          {"permutations", HyperMixing::kPermutations}};
inline constexpr Word<EmbeddingSharing> kSharingWords[] = {
    {"none", EmbeddingSharing::kNone}, {"decoder", EmbeddingSharing::kDecoder}, {"all", EmbeddingSharing::kAll}};
inline constexpr Word<WeightDistribution> kDistributionWords[] = {
    {"xavier_uniform", WeightDistribution::kXavierUniform}, {"xavier_normal", WeightDistribution::kXavierNormal}};
inline constexpr Word<BranchGrowth> kBranchGrowthWords[] = {{"constant", BranchGrowth::kConstant},
                                                            {"linear", BranchGrowth::kLinear},
                                                            {"exponential", BranchGrowth::kExponential},
                                                            {"sigmoid", BranchGrowth::kSigmoid}};

inline constexpr Word<NormKind> kNormKindWords[] = {{"layer", NormKind::kLayer}, {"rms", NormKind::kRms}};
inline constexpr Word<Activation> kActivationWords[] = {{"relu", Activation::kRelu},
                                                        {"gelu", Activation::kGelu},
                                                        {"gelu_tanh", Activation::kGeluTanh},
                                                        {"silu", Activation::kSilu}};
inline constexpr Word<Positions> kPositionsWords[] = {{"sinusoidal", Positions::kSinusoidal},
                                                      {"learned", Positions::kLearned},
                                                      {"rotary", Positions::kRotary},
                                                      {"none", Positions::kNone}};
inline constexpr Word<Biases> kBiasesWords[] = {{"all", Biases::kAll}, {"none", Biases::kNone}, {"qkv", Biases::kQkv}};

enum class FieldAge {
  kFirst,  // in the settings of every checkpoint
  kLater,  // may be missing in older checkpoints' settings; it then has its default
};

// Calls visit(name, member, age) for a number or a flag, and visit(name, member, age, words) for a choice, in the
// order of checkpoints' settings. `member`: a pointer to member of StackMethod. Add a new field at the end, with
// kLater.
template <typename Visit>
void ForEachStackField(Visit visit) {
  constexpr FieldAge kFirst = FieldAge::kFirst, kLater = FieldAge::kLater;
  visit("norm", &StackMethod::norm, kFirst, kNormWords);
  visit("residual_gain", &StackMethod::residual_gain, kFirst);
  visit("omega", &StackMethod::omega, kLater, kOmegaWords);
  visit("initial_omega", &StackMethod::initial_omega, kLater);
  visit("branch_gain", &StackMethod::branch_gain, kFirst);
  visit("skip_gain", &StackMethod::skip_gain, kFirst);
  visit("layer_gain", &StackMethod::layer_gain, kFirst);
  visit("combine_layers", &StackMethod::combine_layers, kLater);
  visit("learned_branch_gain", &StackMethod::learned_branch_gain, kFirst);
  visit("attention_inner_norm", &StackMethod::attention_inner_norm, kFirst);
  visit("attention_output_norm", &StackMethod::attention_output_norm, kFirst);
  visit("head_scale", &StackMethod::head_scale, kFirst);
  visit("ffn_inner_norm", &StackMethod::ffn_inner_norm, kFirst);
  visit("fixup_scalars", &StackMethod::fixup_scalars, kLater);
  visit("linear_bias", &StackMethod::linear_bias, kLater);
  visit("query_key_gain", &StackMethod::query_key_gain, kFirst);
  visit("value_gain", &StackMethod::value_gain, kFirst);
  visit("output_gain", &StackMethod::output_gain, kFirst);
  visit("cross_value_gain", &StackMethod::cross_value_gain, kFirst);
  visit("cross_output_gain", &StackMethod::cross_output_gain, kFirst);
  visit("ffn_gain", &StackMethod::ffn_gain, kFirst);
  visit("ffn_output_factor", &StackMethod::ffn_output_factor, kLater);
  visit("depth_init", &StackMethod::depth_init, kFirst, kDepthInitWords);
  visit("embedding_gain", &StackMethod::embedding_gain, kFirst);
  visit("projection_gain", &StackMethod::projection_gain, kLater);
  visit("branch_input_norm", &StackMethod::branch_input_norm, kLater);
  visit("branch_output_norm", &StackMethod::branch_output_norm, kLater);
  visit("norm_gain", &StackMethod::norm_gain, kLater, kDepthInitWords);
  visit("post_norm_share", &StackMethod::post_norm_share, kLater);
  visit("adam_epsilon_factor", &StackMethod::adam_epsilon_factor, kLater);
  visit("second_stream_gain", &StackMethod::second_stream_gain, kLater);
  visit("residual_streams", &StackMethod::residual_streams, kLater);
  visit("attention_residual_blocks", &StackMethod::attention_residual_blocks, kLater);
  visit("attention_residual_block_sublayers", &StackMethod::attention_residual_block_sublayers, kLater);
  visit("attention_residual_delta", &StackMethod::attention_residual_delta, kLater);
  visit("residual_mixing", &StackMethod::residual_mixing, kLater, kHyperMixingWords);
}

// Calls visit(name, member), or visit(name, member, words) for a choice, for each field of Block. There is no age:
// every field may be missing in settings.
template <typename Visit>
void ForEachBlockField(Visit visit) {
  visit("norm", &Block::norm, kNormKindWords);
  visit("norm_epsilon", &Block::norm_epsilon);
  visit("norm_shift", &Block::norm_shift);
  visit("activation", &Block::activation, kActivationWords);
  visit("gated", &Block::gated);
  visit("biases", &Block::biases, kBiasesWords);
  visit("positions", &Block::positions, kPositionsWords);
  visit("rotary_theta", &Block::rotary_theta);
  visit("rotary_share", &Block::rotary_share);
  visit("kv_heads", &Block::kv_heads);
  visit("head_width", &Block::head_width);
  visit("scale_embedding", &Block::scale_embedding);
  visit("query_key_norm", &Block::query_key_norm);
  visit("attention_gate", &Block::attention_gate);
  visit("window", &Block::window);
  visit("global_every", &Block::global_every);
  visit("rotary_local_theta", &Block::rotary_local_theta);
  visit("rotary_scaling", &Block::rotary_scaling);
  visit("rotary_scaling_positions", &Block::rotary_scaling_positions);
  visit("first_norm", &Block::first_norm);
  visit("embedding_norm", &Block::embedding_norm);
  visit("initial_deviation", &Block::initial_deviation);
  visit("initial_depth_factor", &Block::initial_depth_factor);
}

// As ForEachStackField, for the fields of ModelOptions. A stack, the block and the cutoffs are visited like a number.
template <typename Visit>
void ForEachModelField(Visit visit) {
  constexpr FieldAge kFirst = FieldAge::kFirst, kLater = FieldAge::kLater;
  visit("encoder_layers", &ModelOptions::encoder_layers, kFirst);
  visit("decoder_layers", &ModelOptions::decoder_layers, kFirst);
  visit("d_model", &ModelOptions::d_model, kFirst);
  visit("d_ff", &ModelOptions::d_ff, kFirst);
  visit("heads", &ModelOptions::heads, kFirst);
  visit("source_vocabulary", &ModelOptions::source_vocabulary, kFirst);
  visit("target_vocabulary", &ModelOptions::target_vocabulary, kFirst);
  visit("max_positions", &ModelOptions::max_positions, kFirst);
  visit("sharing", &ModelOptions::sharing, kFirst, kSharingWords);
  visit("dropout", &ModelOptions::dropout, kFirst);
  visit("attention_dropout", &ModelOptions::attention_dropout, kFirst);
  visit("activation_dropout", &ModelOptions::activation_dropout, kFirst);
  visit("label_smoothing", &ModelOptions::label_smoothing, kFirst);
  visit("encoder", &ModelOptions::encoder, kFirst);
  visit("decoder", &ModelOptions::decoder, kFirst);
  visit("distribution", &ModelOptions::distribution, kFirst, kDistributionWords);
  visit("branch_growth", &ModelOptions::branch_growth, kFirst, kBranchGrowthWords);
  visit("branch_growth_updates", &ModelOptions::branch_growth_updates, kFirst);
  visit("branch_growth_steepness", &ModelOptions::branch_growth_steepness, kFirst);
  visit("adaptive_cutoffs", &ModelOptions::adaptive_cutoffs, kLater);
  visit("adaptive_factor", &ModelOptions::adaptive_factor, kLater);
  visit("adaptive_dropout", &ModelOptions::adaptive_dropout, kLater);
  visit("frame_width", &ModelOptions::frame_width, kLater);
  visit("front_end_channels", &ModelOptions::front_end_channels, kLater);
  visit("base_width", &ModelOptions::base_width, kLater);
  visit("block", &ModelOptions::block, kLater);
  visit("z_loss", &ModelOptions::z_loss, kLater);
  visit("start_token", &ModelOptions::start_token, kLater);
  visit("end_token", &ModelOptions::end_token, kLater);
  visit("reserved_ids", &ModelOptions::reserved_ids, kLater);
  visit("mask_token", &ModelOptions::mask_token, kLater);
  visit("document_mask", &ModelOptions::document_mask, kLater);
}

}  // namespace hadal

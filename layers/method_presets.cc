#include "layers/method_presets.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/choice_words.h"
#include "runtime/math.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr Word<ResidualMethod> kMethodWords[] = {
    {"post_ln", ResidualMethod::kPostLn},
    {"pre_ln", ResidualMethod::kPreLn},
    {"deepnorm", ResidualMethod::kDeepNorm},
    {"branchnorm", ResidualMethod::kBranchNorm},
    {"post_ln_init", ResidualMethod::kPostLnInit},
    {"ds_init", ResidualMethod::kDsInit},
    {"admin", ResidualMethod::kAdmin},
    {"admin_closed", ResidualMethod::kAdminClosed},
    {"rezero", ResidualMethod::kReZero},
    {"r_fixup", ResidualMethod::kRFixup},
    {"t_fixup", ResidualMethod::kTFixup},
    {"dlcl_pre", ResidualMethod::kDlclPre},
    {"dlcl_post", ResidualMethod::kDlclPost},
    {"normformer", ResidualMethod::kNormFormer},
    {"sub_ln", ResidualMethod::kSubLn},
    {"b2t", ResidualMethod::kB2t},
    {"b2t_rescaled", ResidualMethod::kB2tRescaled},
    {"b2t_no_ln", ResidualMethod::kB2tNoLn},
    {"keel", ResidualMethod::kKeel},
    {"peri_ln", ResidualMethod::kPeriLn},
    {"ln_scaling", ResidualMethod::kLnScaling},
    {"mix_ln", ResidualMethod::kMixLn},
    {"completep", ResidualMethod::kCompleteP},
    {"residual_dual", ResidualMethod::kResidualDual},
    {"mhc", ResidualMethod::kMhc},
    {"mhc_lite", ResidualMethod::kMhcLite},
    {"attn_res", ResidualMethod::kAttnRes},
    {"attn_res_delta", ResidualMethod::kAttnResDelta},
};

// `beta` for every matrix that DeepNorm scales: all but query and key.
StackMethod WithBeta(double residual_gain, double beta) {
  return {.norm = NormPlacement::kPost,
          .residual_gain = residual_gain,
          .query_key_gain = 1,
          .value_gain = beta,
          .output_gain = beta,
          .cross_value_gain = beta,
          .cross_output_gain = beta,
          .ffn_gain = beta};
}

constexpr double kPaperBeta = 0.87;
constexpr double kTorchscaleBeta = 1.15;  // in its code the encoder's factor is 1.15 / (N⁴M)^1/16; 0.87 = 1 / 1.15

// Residual gain 0.81·(N⁴M)^1/16, init gain `beta`·(N⁴M)^-1/16.
StackMethod DeepNormEncoder(double n, double m, double beta) {
  const double root = Pow(Pow(n, 4) * m, 1.0 / 16);
  return WithBeta(0.81 * root, beta / root);
}

// A decoder's: residual gain (3M)^1/4 and init gain (12M)^-1/4 with an encoder, (2M)^1/4 and (8M)^-1/4 without; an
// encoder's alone (2N)^1/4 and (8N)^-1/4. `sublayers`: 3M, 2M or 2N.
StackMethod DeepNormAlone(double sublayers) { return WithBeta(Pow(sublayers, 0.25), Pow(4 * sublayers, -0.25)); }

StackMethod AdminClosedStack(double sublayers) {
  return {.omega = Omega::kConstant, .initial_omega = std::sqrt((sublayers + 1) / Log(sublayers + 1) - 1)};
}

// `branches`: L, counted over both stacks.
StackMethod RFixupStack(double branches) {
  StackMethod stack{.norm = NormPlacement::kNone, .fixup_scalars = true, .linear_bias = false};
  const double attention = Pow(branches, -1.0 / 6);
  stack.query_key_gain *= attention;
  stack.value_gain *= attention;
  stack.cross_value_gain *= attention;
  stack.output_gain = stack.cross_output_gain = 0;
  stack.ffn_gain = Pow(branches, -0.5);
  stack.ffn_output_factor = 0;
  stack.projection_gain = 0;
  return stack;
}

// `factor` for v, o and FFN; query and key as in the base initialisation.
StackMethod TFixupStack(double factor, double embedding_gain) {
  StackMethod stack = WithBeta(1, factor);
  stack.norm = NormPlacement::kNone;
  stack.query_key_gain = StackMethod().query_key_gain;
  stack.embedding_gain = embedding_gain;
  return stack;
}

// Of a stack of 2 layers it is Pre-LN.
StackMethod CompletePStack(int32_t layers) {
  const double factor = 2.0 / std::max(layers, 1);
  return {.norm = NormPlacement::kPre, .branch_gain = factor, .adam_epsilon_factor = factor};
}

StackMethod SubLnStack(double gamma) {
  StackMethod stack = WithBeta(1, gamma);
  stack.norm = NormPlacement::kPre;
  stack.attention_inner_norm = stack.ffn_inner_norm = true;
  stack.cross_value_gain = stack.cross_output_gain = 1;
  return stack;
}

StackMethod B2tRescaledStack(double layers) {
  StackMethod stack{.skip_gain = 1};
  for (double StackMethod::*gain :
       {&StackMethod::query_key_gain, &StackMethod::value_gain, &StackMethod::output_gain,
        &StackMethod::cross_value_gain, &StackMethod::cross_output_gain, &StackMethod::ffn_gain}) {
    stack.*gain /= std::sqrt(layers);
  }
  return stack;
}

// B2T's equations 6 to 8.
StackMethod B2tNoLnStack(double layers, double d_model) {
  return {.norm = NormPlacement::kNone,
          .skip_gain = std::min(layers / 12, Pow(layers, -0.15)),
          .layer_gain = Pow(d_model, -0.2)};
}

void SetBoth(const StackMethod& method, ModelOptions& options) { options.encoder = options.decoder = method; }

void ApplyDeepNorm(ModelOptions& options) {
  options.encoder = options.has_decoder() ? DeepNormEncoder(options.encoder_layers, options.decoder_layers, kPaperBeta)
                                          : DeepNormAlone(options.encoder_sublayers());
  options.decoder = DeepNormAlone(options.decoder_sublayers());
  options.distribution = WeightDistribution::kXavierNormal;
}

void ApplyTFixup(ModelOptions& options) {
  const double n = options.encoder_layers;
  const double decoder = Pow(3 * options.decoder_sublayers(), -0.25);
  options.encoder = TFixupStack(0.67 * Pow(n, -0.25), Pow(9 * n, -0.25));
  options.decoder = TFixupStack(decoder, decoder);
}

void ApplySubLn(ModelOptions& options) {
  const double encoder = Log(options.encoder_sublayers()), decoder = Log(options.decoder_sublayers());
  options.encoder = SubLnStack(std::sqrt(options.has_decoder() ? decoder * encoder / 3 : encoder));
  options.decoder = SubLnStack(std::sqrt(decoder));
  options.distribution = WeightDistribution::kXavierNormal;
}

}  // namespace

const std::vector<ResidualMethod>& AllResidualMethods() {
  static const auto& all = *[] {
    auto* methods = new std::vector<ResidualMethod>;
    for (const Word<ResidualMethod>& entry : kMethodWords) methods->push_back(entry.value);
    return methods;
  }();
  return all;
}

absl::StatusOr<ResidualMethod> ParseResidualMethod(const std::string& name) {
  if (const ResidualMethod* method = FindWord(kMethodWords, name)) return *method;
  return InvalidArgumentError("unknown residual method \"", name, "\", allowed: ",
                              absl::StrJoin(AllResidualMethods(), ", ", [](std::string* out, ResidualMethod method) {
                                absl::StrAppend(out, ResidualMethodName(method));
                              }));
}

std::string ResidualMethodName(ResidualMethod method) { return ToWord(kMethodWords, method); }

namespace {

void SetMethod(ResidualMethod method, ModelOptions& options) {
  options.branch_growth = BranchGrowth::kConstant;
  options.distribution = WeightDistribution::kXavierUniform;
  switch (method) {
    case ResidualMethod::kPostLn:
      return SetBoth({}, options);
    case ResidualMethod::kPreLn:
      return SetBoth({.norm = NormPlacement::kPre}, options);
    case ResidualMethod::kPostLnInit:
      options.distribution = WeightDistribution::kXavierNormal;
      return SetBoth({.depth_init = DepthInit::kFromTop}, options);
    case ResidualMethod::kDsInit: {
      StackMethod stack = WithBeta(1, 1);
      stack.depth_init = DepthInit::kInverseSqrt;
      return SetBoth(stack, options);
    }
    case ResidualMethod::kAdmin:
      return SetBoth({.omega = Omega::kProfiled}, options);
    case ResidualMethod::kAdminClosed:
      options.encoder = AdminClosedStack(2.0 * options.encoder_layers);
      options.decoder = AdminClosedStack(options.decoder_sublayers());
      return;
    case ResidualMethod::kReZero:
      return SetBoth({.norm = NormPlacement::kNone, .learned_branch_gain = true}, options);
    case ResidualMethod::kRFixup:
      return SetBoth(RFixupStack(2.0 * options.encoder_layers + options.decoder_sublayers()), options);
    case ResidualMethod::kDlclPre:
      return SetBoth({.norm = NormPlacement::kPre, .combine_layers = true}, options);
    case ResidualMethod::kDlclPost:
      return SetBoth({.combine_layers = true}, options);
    case ResidualMethod::kNormFormer:
      return SetBoth(
          {.norm = NormPlacement::kPre, .attention_output_norm = true, .head_scale = true, .ffn_inner_norm = true},
          options);
    case ResidualMethod::kB2t:
      return SetBoth({.skip_gain = 1}, options);
    case ResidualMethod::kB2tRescaled:
      options.encoder = B2tRescaledStack(options.encoder_layers);
      options.decoder = B2tRescaledStack(options.decoder_layers);
      return;
    case ResidualMethod::kB2tNoLn:
      options.encoder = B2tNoLnStack(options.encoder_layers, options.d_model);
      options.decoder = B2tNoLnStack(options.decoder_layers, options.d_model);
      return;
    case ResidualMethod::kKeel:
      options.encoder = {.residual_gain = 2.0 * options.encoder_layers, .branch_input_norm = true};
      options.decoder = {.residual_gain = 1.0 * options.decoder_sublayers(), .branch_input_norm = true};
      return;
    case ResidualMethod::kPeriLn:
      return SetBoth({.norm = NormPlacement::kPre, .branch_output_norm = true}, options);
    case ResidualMethod::kLnScaling:
      return SetBoth({.norm = NormPlacement::kPre, .norm_gain = DepthInit::kInverseSqrt}, options);
    case ResidualMethod::kMixLn:
      return SetBoth({.norm = NormPlacement::kPre, .post_norm_share = 0.25}, options);
    case ResidualMethod::kCompleteP:
      options.encoder = CompletePStack(options.encoder_layers);
      options.decoder = CompletePStack(options.decoder_layers);
      return;
    case ResidualMethod::kResidualDual:
      return SetBoth({.second_stream_gain = 0.05}, options);
    case ResidualMethod::kMhc:
      return SetBoth({.norm = NormPlacement::kPre, .residual_streams = 4}, options);
    case ResidualMethod::kMhcLite:
      return SetBoth(
          {.norm = NormPlacement::kPre, .residual_streams = 4, .residual_mixing = HyperMixing::kPermutations}, options);
    case ResidualMethod::kAttnRes:
    case ResidualMethod::kAttnResDelta:
      return SetBoth({.norm = NormPlacement::kPre,
                      .attention_residual_blocks = 16,
                      .attention_residual_delta = method == ResidualMethod::kAttnResDelta},
                     options);
    case ResidualMethod::kTFixup:
      return ApplyTFixup(options);
    case ResidualMethod::kSubLn:
      return ApplySubLn(options);
    case ResidualMethod::kDeepNorm:
      return ApplyDeepNorm(options);
    case ResidualMethod::kBranchNorm:
      ApplyDeepNorm(options);
      options.encoder.residual_gain = options.decoder.residual_gain = 1;
      options.branch_growth = BranchGrowth::kLinear;
      return;
  }
}

}  // namespace

void ApplyResidualMethod(ResidualMethod method, ModelOptions& options) {
  SetMethod(method, options);
  // With 0 layers the formulas give no finite numbers.
  if (!options.has_encoder()) options.encoder = {};
  if (!options.has_decoder()) options.decoder = {};
}

void ApplyTorchscaleBeta(ModelOptions& options) {
  if (!options.has_encoder() || !options.has_decoder()) return;
  options.encoder = DeepNormEncoder(options.encoder_layers, options.decoder_layers, kTorchscaleBeta);
}

}  // namespace hadal

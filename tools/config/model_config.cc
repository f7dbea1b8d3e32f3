#include "tools/config/model_config.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "layers/method_presets.h"
#include "layers/model_words.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

void OverrideStack(const config::StackResidual& from, StackMethod& to) {
  if (from.has_norm()) to.norm = FromWord(kNormWords, from.norm());
  if (from.has_residual_gain()) to.residual_gain = from.residual_gain();
  if (from.has_omega()) to.omega = FromWord(kOmegaWords, from.omega());
  if (from.has_initial_omega()) to.initial_omega = from.initial_omega();
  if (from.has_branch_gain()) to.branch_gain = from.branch_gain();
  if (from.has_skip_gain()) to.skip_gain = from.skip_gain();
  if (from.has_layer_gain()) to.layer_gain = from.layer_gain();
  if (from.has_combine_layers()) to.combine_layers = from.combine_layers();
  if (from.has_learned_branch_gain()) to.learned_branch_gain = from.learned_branch_gain();
  if (from.has_attention_inner_norm()) to.attention_inner_norm = from.attention_inner_norm();
  if (from.has_attention_output_norm()) to.attention_output_norm = from.attention_output_norm();
  if (from.has_head_scale()) to.head_scale = from.head_scale();
  if (from.has_ffn_inner_norm()) to.ffn_inner_norm = from.ffn_inner_norm();
  if (from.has_query_key_gain()) to.query_key_gain = from.query_key_gain();
  if (from.has_value_gain()) to.value_gain = from.value_gain();
  if (from.has_output_gain()) to.output_gain = from.output_gain();
  if (from.has_cross_value_gain()) to.cross_value_gain = from.cross_value_gain();
  if (from.has_cross_output_gain()) to.cross_output_gain = from.cross_output_gain();
  if (from.has_ffn_gain()) to.ffn_gain = from.ffn_gain();
  if (from.has_depth_init()) to.depth_init = FromWord(kDepthInitWords, from.depth_init());
  if (from.has_embedding_gain()) to.embedding_gain = from.embedding_gain();
  if (from.has_fixup_scalars()) to.fixup_scalars = from.fixup_scalars();
  if (from.has_linear_bias()) to.linear_bias = from.linear_bias();
  if (from.has_ffn_output_factor()) to.ffn_output_factor = from.ffn_output_factor();
  if (from.has_projection_gain()) to.projection_gain = from.projection_gain();
}

}  // namespace

absl::Status ReadModel(const config::Model& from, ModelOptions& to) {
  to.encoder_layers = from.encoder_layers();
  to.decoder_layers = from.decoder_layers();
  to.d_model = from.d_model();
  to.d_ff = from.d_ff();
  to.heads = from.heads();
  to.max_positions = from.max_positions();
  to.sharing = FromWord(kSharingWords, from.sharing());
  to.dropout = from.dropout();
  to.attention_dropout = from.attention_dropout();
  to.activation_dropout = from.activation_dropout();
  to.label_smoothing = from.label_smoothing();
  if (to.d_model % to.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.heads = ", to.heads, " is not allowed; it must divide model.d_model = ", to.d_model));
  }
  const config::Residual& residual = from.residual();
  HADAL_ASSIGN_OR_RETURN(const ResidualMethod method, ParseResidualMethod(residual.method()));
  ApplyResidualMethod(method, to);
  if (residual.torchscale_compat()) {
    if (method != ResidualMethod::kDeepNorm) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.residual.torchscale_compat = true is not allowed with model.residual.method = \"",
                       residual.method(), "\"; it is about \"deepnorm\""));
    }
    ApplyTorchscaleBeta(to);
  }
  OverrideStack(residual.encoder(), to.encoder);
  OverrideStack(residual.decoder(), to.decoder);
  if (residual.has_distribution()) to.distribution = FromWord(kDistributionWords, residual.distribution());
  if (residual.has_branch_growth()) to.branch_growth = FromWord(kBranchGrowthWords, residual.branch_growth());
  to.branch_growth_steepness =
      residual.has_growth_steepness() ? residual.growth_steepness() : DefaultSteepness(to.branch_growth);
  return absl::OkStatus();
}

config::StackResidual ToStackResidual(const StackMethod& method) {
  config::StackResidual residual;
  residual.set_norm(ToWord(kNormWords, method.norm));
  residual.set_residual_gain(method.residual_gain);
  residual.set_omega(ToWord(kOmegaWords, method.omega));
  residual.set_initial_omega(method.initial_omega);
  residual.set_branch_gain(method.branch_gain);
  residual.set_skip_gain(method.skip_gain);
  residual.set_layer_gain(method.layer_gain);
  residual.set_combine_layers(method.combine_layers);
  residual.set_learned_branch_gain(method.learned_branch_gain);
  residual.set_attention_inner_norm(method.attention_inner_norm);
  residual.set_attention_output_norm(method.attention_output_norm);
  residual.set_head_scale(method.head_scale);
  residual.set_ffn_inner_norm(method.ffn_inner_norm);
  residual.set_query_key_gain(method.query_key_gain);
  residual.set_value_gain(method.value_gain);
  residual.set_output_gain(method.output_gain);
  residual.set_cross_value_gain(method.cross_value_gain);
  residual.set_cross_output_gain(method.cross_output_gain);
  residual.set_ffn_gain(method.ffn_gain);
  residual.set_depth_init(ToWord(kDepthInitWords, method.depth_init));
  residual.set_embedding_gain(method.embedding_gain);
  residual.set_fixup_scalars(method.fixup_scalars);
  residual.set_linear_bias(method.linear_bias);
  residual.set_ffn_output_factor(method.ffn_output_factor);
  residual.set_projection_gain(method.projection_gain);
  return residual;
}

std::string DistributionName(WeightDistribution distribution) { return ToWord(kDistributionWords, distribution); }
std::string BranchGrowthName(BranchGrowth growth) { return ToWord(kBranchGrowthWords, growth); }

}  // namespace hadal

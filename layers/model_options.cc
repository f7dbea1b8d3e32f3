#include "layers/model_options.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/data/packed_batch.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

absl::Status InRange(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("model: ", field, " = ", value, ", allowed: ", low, " to ", high));
}

// DeepNet figure 2, encoder-decoder: (0.81·(N⁴M)^1/16, 0.87·(N⁴M)^-1/16).
StackMethod DeepNormEncoder(double n, double m) {
  const double root = std::pow(std::pow(n, 4) * m, 1.0 / 16);
  const double beta = 0.87 / root;
  return {.norm = NormPlacement::kPost,
          .residual_gain = 0.81 * root,
          .query_key_gain = 1,
          .value_gain = beta,
          .output_gain = beta,
          .ffn_gain = beta};
}

// ((3M)^1/4, (12M)^-1/4).
StackMethod DeepNormDecoder(double m) {
  const double beta = std::pow(12 * m, -0.25);
  return {.norm = NormPlacement::kPost,
          .residual_gain = std::pow(3 * m, 0.25),
          .query_key_gain = 1,
          .value_gain = beta,
          .output_gain = beta,
          .ffn_gain = beta};
}

}  // namespace

absl::Status ValidateModelOptions(const ModelOptions& options) {
  constexpr double kMaxLayers = 10000;  // 2N + 3M + 3 sublayers must stay below the 65,536 of random.h's counter
  HADAL_RETURN_IF_ERROR(InRange("encoder_layers", options.encoder_layers, 1, kMaxLayers));
  HADAL_RETURN_IF_ERROR(InRange("decoder_layers", options.decoder_layers, 1, kMaxLayers));
  HADAL_RETURN_IF_ERROR(InRange("d_model", options.d_model, 1, 65536));
  HADAL_RETURN_IF_ERROR(InRange("d_ff", options.d_ff, 1, 262144));
  HADAL_RETURN_IF_ERROR(InRange("heads", options.heads, 1, options.d_model));
  if (options.d_model % options.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: heads = ", options.heads, " must divide d_model = ", options.d_model));
  }
  HADAL_RETURN_IF_ERROR(InRange("source_vocabulary", options.source_vocabulary, kSpecialTokens + 1, 1 << 28));
  HADAL_RETURN_IF_ERROR(InRange("target_vocabulary", options.target_vocabulary, kSpecialTokens + 1, 1 << 28));
  if (options.sharing == EmbeddingSharing::kAll && options.source_vocabulary != options.target_vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model: one embedding for all needs one vocabulary, but the corpus has ", options.source_vocabulary,
        " source and ", options.target_vocabulary,
        " target pieces. Prepare it with a shared vocabulary, or set model.sharing to \"decoder\" or \"none\"."));
  }
  HADAL_RETURN_IF_ERROR(InRange("max_positions", options.max_positions, 2, 65536));
  constexpr double kMaxDropout = 0.99;
  HADAL_RETURN_IF_ERROR(InRange("dropout", options.dropout, 0, kMaxDropout));
  HADAL_RETURN_IF_ERROR(InRange("attention_dropout", options.attention_dropout, 0, kMaxDropout));
  HADAL_RETURN_IF_ERROR(InRange("activation_dropout", options.activation_dropout, 0, kMaxDropout));
  HADAL_RETURN_IF_ERROR(InRange("label_smoothing", options.label_smoothing, 0, kMaxDropout));
  if (options.branch_growth == BranchGrowth::kLinear) {
    HADAL_RETURN_IF_ERROR(InRange("branch_growth_updates", options.branch_growth_updates, 1, 1e12));
  }
  return absl::OkStatus();
}

absl::StatusOr<ResidualMethod> ParseResidualMethod(const std::string& name) {
  for (ResidualMethod method :
       {ResidualMethod::kPostLn, ResidualMethod::kPreLn, ResidualMethod::kDeepNorm, ResidualMethod::kBranchNorm}) {
    if (name == ResidualMethodName(method)) return method;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown residual method \"", name, "\", allowed: post_ln, pre_ln, deepnorm, branchnorm"));
}

std::string ResidualMethodName(ResidualMethod method) {
  switch (method) {
    case ResidualMethod::kPostLn:
      return "post_ln";
    case ResidualMethod::kPreLn:
      return "pre_ln";
    case ResidualMethod::kDeepNorm:
      return "deepnorm";
    case ResidualMethod::kBranchNorm:
      return "branchnorm";
  }
  return "";
}

void ApplyResidualMethod(ResidualMethod method, ModelOptions& options) {
  options.branch_growth = BranchGrowth::kConstant;
  switch (method) {
    case ResidualMethod::kPostLn:
    case ResidualMethod::kPreLn: {
      StackMethod base;
      base.norm = method == ResidualMethod::kPreLn ? NormPlacement::kPre : NormPlacement::kPost;
      options.encoder = options.decoder = base;
      options.distribution = WeightDistribution::kXavierUniform;
      return;
    }
    case ResidualMethod::kDeepNorm:
    case ResidualMethod::kBranchNorm:
      options.encoder = DeepNormEncoder(options.encoder_layers, options.decoder_layers);
      options.decoder = DeepNormDecoder(options.decoder_layers);
      options.distribution = WeightDistribution::kXavierNormal;
      if (method == ResidualMethod::kBranchNorm) {
        options.encoder.residual_gain = options.decoder.residual_gain = 1;
        options.branch_growth = BranchGrowth::kLinear;
      }
      return;
  }
}

}  // namespace hadal

#include "layers/method_presets.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hadal {
namespace {

// Gains of every matrix that DeepNorm scales: all but query and key.
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

// (0.81·(N⁴M)^1/16, 0.87·(N⁴M)^-1/16).
StackMethod DeepNormEncoder(double n, double m) {
  const double root = std::pow(std::pow(n, 4) * m, 1.0 / 16);
  return WithBeta(0.81 * root, 0.87 / root);
}

// ((3M)^1/4, (12M)^-1/4).
StackMethod DeepNormDecoder(double m) { return WithBeta(std::pow(3 * m, 0.25), std::pow(12 * m, -0.25)); }

void SetBoth(const StackMethod& method, WeightDistribution distribution, ModelOptions& options) {
  options.encoder = options.decoder = method;
  options.distribution = distribution;
}

void ApplyDeepNorm(ModelOptions& options) {
  options.encoder = DeepNormEncoder(options.encoder_layers, options.decoder_layers);
  options.decoder = DeepNormDecoder(options.decoder_layers);
  options.distribution = WeightDistribution::kXavierNormal;
}

}  // namespace

const std::vector<ResidualMethod>& AllResidualMethods() {
  static const auto& all = *new std::vector<ResidualMethod>{ResidualMethod::kPostLn,     ResidualMethod::kPreLn,
                                                            ResidualMethod::kDeepNorm,   ResidualMethod::kBranchNorm,
                                                            ResidualMethod::kPostLnInit, ResidualMethod::kDsInit};
  return all;
}

absl::StatusOr<ResidualMethod> ParseResidualMethod(const std::string& name) {
  for (const ResidualMethod method : AllResidualMethods()) {
    if (name == ResidualMethodName(method)) return method;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown residual method \"", name,
      "\", allowed: ", absl::StrJoin(AllResidualMethods(), ", ", [](std::string* out, ResidualMethod method) {
        absl::StrAppend(out, ResidualMethodName(method));
      })));
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
    case ResidualMethod::kPostLnInit:
      return "post_ln_init";
    case ResidualMethod::kDsInit:
      return "ds_init";
  }
  return "";
}

void ApplyResidualMethod(ResidualMethod method, ModelOptions& options) {
  options.branch_growth = BranchGrowth::kConstant;
  switch (method) {
    case ResidualMethod::kPostLn:
      return SetBoth({}, WeightDistribution::kXavierUniform, options);
    case ResidualMethod::kPreLn:
      return SetBoth({.norm = NormPlacement::kPre}, WeightDistribution::kXavierUniform, options);
    case ResidualMethod::kPostLnInit:
      return SetBoth({.depth_init = DepthInit::kFromTop}, WeightDistribution::kXavierNormal, options);
    case ResidualMethod::kDsInit: {
      StackMethod stack = WithBeta(1, 1);
      stack.depth_init = DepthInit::kInverseSqrt;
      return SetBoth(stack, WeightDistribution::kXavierUniform, options);
    }
    case ResidualMethod::kDeepNorm:
      return ApplyDeepNorm(options);
    case ResidualMethod::kBranchNorm:
      ApplyDeepNorm(options);
      options.encoder.residual_gain = options.decoder.residual_gain = 1;
      options.branch_growth = BranchGrowth::kLinear;
      return;
  }
}

}  // namespace hadal

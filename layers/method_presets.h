// The residual methods by name: each a preset that expands to the fields of ModelOptions for the model's depth.
//
// N encoder layers, M decoder layers; gains are Xavier gains of the initial weights.
//
//   name           norm  r (encoder / decoder)            initial weights
//   post_ln        post  1                                uniform; q, k, v 1/sqrt(2), the rest 1 (Vaswani et al. 2017)
//   pre_ln         pre   1                                as post_ln
//   deepnorm       post  0.81 (N^4 M)^1/16 / (3M)^1/4     normal; v, o, FFN 0.87 (N^4 M)^-1/16 / (12M)^-1/4; q, k 1
//   branchnorm     post  1, b = min(1, t/T)               as deepnorm
//   post_ln_init   post  1                                post_ln's as normal, layer l of n divided by n - l + 1
//   ds_init        post  1                                uniform, 1 everywhere, layer l divided by sqrt(l)
//
// Sources: DeepNet (arXiv 2203.00555) figure 2 and section 3; BranchNorm (arXiv 2305.02790) section 4.1: DeepNorm's
// initial weights, no alpha; Depth-Scaled Initialization (Zhang, Titov and Sennrich 2019).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/model_options.h"

namespace hadal {

enum class ResidualMethod : int32_t { kPostLn, kPreLn, kDeepNorm, kBranchNorm, kPostLnInit, kDsInit };

const std::vector<ResidualMethod>& AllResidualMethods();
absl::StatusOr<ResidualMethod> ParseResidualMethod(const std::string& name);
std::string ResidualMethodName(ResidualMethod method);

// Fills encoder, decoder, distribution and branch growth (not T) from the method, the two depths and the width.
void ApplyResidualMethod(ResidualMethod method, ModelOptions& options);

}  // namespace hadal

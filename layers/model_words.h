// The names of ModelOptions' enumeration values, used by configs (tools/config/model_config.h) and by the settings in
// checkpoints (pipeline/checkpoint/model_settings.h). Old checkpoints must stay readable: names may be added but never
// changed.
#pragma once

#include "layers/model_options.h"
#include "runtime/choice_words.h"

namespace hadal {

inline constexpr Word<NormPlacement> kNormWords[] = {
    {"post", NormPlacement::kPost}, {"pre", NormPlacement::kPre}, {"none", NormPlacement::kNone}};
inline constexpr Word<Omega> kOmegaWords[] = {
    {"none", Omega::kNone}, {"constant", Omega::kConstant}, {"profiled", Omega::kProfiled}};
inline constexpr Word<DepthInit> kDepthInitWords[] = {
    {"flat", DepthInit::kFlat}, {"inverse_sqrt", DepthInit::kInverseSqrt}, {"from_top", DepthInit::kFromTop}};
inline constexpr Word<EmbeddingSharing> kSharingWords[] = {
    {"none", EmbeddingSharing::kNone}, {"decoder", EmbeddingSharing::kDecoder}, {"all", EmbeddingSharing::kAll}};
inline constexpr Word<WeightDistribution> kDistributionWords[] = {
    {"xavier_uniform", WeightDistribution::kXavierUniform}, {"xavier_normal", WeightDistribution::kXavierNormal}};
inline constexpr Word<BranchGrowth> kBranchGrowthWords[] = {{"constant", BranchGrowth::kConstant},
                                                            {"linear", BranchGrowth::kLinear},
                                                            {"exponential", BranchGrowth::kExponential},
                                                            {"sigmoid", BranchGrowth::kSigmoid}};

}  // namespace hadal

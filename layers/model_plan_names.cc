// The names of parameters and sublayers.
#include <iterator>

#include "absl/strings/str_cat.h"
#include "layers/model_plan.h"

namespace hadal {
namespace {

const char* RoleSuffix(ParameterRole role) {
  using enum ParameterRole;
  struct RoleName {
    ParameterRole role;
    const char* suffix;
  };
  static constexpr RoleName kNames[] = {{kEmbedding, "weight"},
                                        {kQueryWeight, "q_proj.weight"},
                                        {kKeyWeight, "k_proj.weight"},
                                        {kValueWeight, "v_proj.weight"},
                                        {kQueryBias, "q_proj.bias"},
                                        {kKeyBias, "k_proj.bias"},
                                        {kValueBias, "v_proj.bias"},
                                        {kOutputWeight, "out_proj.weight"},
                                        {kOutputBias, "out_proj.bias"},
                                        {kHiddenWeight, "fc1.weight"},
                                        {kHiddenBias, "fc1.bias"},
                                        {kContractionWeight, "fc2.weight"},
                                        {kContractionBias, "fc2.bias"},
                                        {kNormScale, "weight"},
                                        {kNormShift, "bias"},
                                        {kClosingNormScale, "weight"},
                                        {kClosingNormShift, "bias"},
                                        {kLearnedGain, "resweight"},
                                        {kHeadScale, "head_scale"},
                                        {kInnerNormScale, "inner_attn_ln.weight"},
                                        {kInnerNormShift, "inner_attn_ln.bias"},
                                        {kOutputNormScale, "weight"},
                                        {kOutputNormShift, "bias"},
                                        {kHiddenNormScale, "ffn_layernorm.weight"},
                                        {kHiddenNormShift, "ffn_layernorm.bias"},
                                        {kQueryShift, "shift"},
                                        {kInputShift, "shift1"},
                                        {kHiddenShift, "shift2"},
                                        {kContractionShift, "shift3"},
                                        {kBranchScale, "scale"},
                                        {kClosingShift, "shift"},
                                        {kClosingScale, "scale"},
                                        {kOmega, "omega"},
                                        {kCombinationWeight, "dlcl.weight"},
                                        {kCombinationNormScale, "weight"},
                                        {kCombinationNormShift, "bias"},
                                        {kInputNormScale, "weight"},
                                        {kInputNormShift, "bias"},
                                        {kTailTable, "weight"},
                                        {kTailProjection, "weight"},
                                        {kInputProjection, "weight"},
                                        {kClusterWeight, "weight"},
                                        {kConvolutionWeight, "weight"},
                                        {kConvolutionBias, "bias"},
                                        {kHyperMapWeight, "streams.weight"},
                                        {kHyperMapGates, "streams.gates"},
                                        {kHyperMapBias, "streams.bias"},
                                        {kLinearWeight, "fc3.weight"},
                                        {kLinearBias, "fc3.bias"},
                                        {kPositionTable, "embed_positions.weight"},
                                        {kQueryNormScale, "q_norm.weight"},
                                        {kQueryNormShift, "q_norm.bias"},
                                        {kKeyNormScale, "k_norm.weight"},
                                        {kKeyNormShift, "k_norm.bias"},
                                        {kGateWeight, "gate_proj.weight"},
                                        {kGateBias, "gate_proj.bias"},
                                        {kEmbeddingNormScale, "layernorm_embedding.weight"},
                                        {kEmbeddingNormShift, "layernorm_embedding.bias"},
                                        {kHeadWeight, "lm_head.dense.weight"},
                                        {kHeadBias, "lm_head.dense.bias"},
                                        {kHeadNormScale, "lm_head.layer_norm.weight"},
                                        {kHeadNormShift, "lm_head.layer_norm.bias"},
                                        {kLogitBias, "lm_head.bias"},
                                        {kReaderQuery, "_res_proj.weight"},
                                        {kReaderScale, "_res_norm.weight"},
                                        {kClosingReaderQuery, "output_attn_res_proj.weight"},
                                        {kClosingReaderScale, "output_attn_res_norm.weight"}};
  constexpr auto every_role_in_order = [] {
    for (size_t i = 0; i < std::size(kNames); ++i) {
      if (kNames[i].role != static_cast<ParameterRole>(i)) return false;
    }
    return kNames[std::size(kNames) - 1].role == kClosingReaderScale;
  };
  static_assert(every_role_in_order());
  return kNames[static_cast<size_t>(role)].suffix;
}

const char* StackName(Stack stack) { return stack == Stack::kEncoder ? "encoder" : "decoder"; }

// Whether it is the scale or the shift, whose role follows, of a norm.
bool IsOf(ParameterRole scale, ParameterRole role) {
  return role == scale || static_cast<int32_t>(role) == static_cast<int32_t>(scale) + 1;
}

// Parameters of the whole stack.
bool IsOfStack(ParameterRole role) {
  return role == ParameterRole::kClosingShift || role == ParameterRole::kClosingScale ||
         role == ParameterRole::kPositionTable ||
         (role >= ParameterRole::kEmbeddingNormScale && role != ParameterRole::kReaderQuery &&
          role != ParameterRole::kReaderScale);
}

// Parameters that fairseq has no name for; the feed-forward has them under "ffn.".
bool IsOfBranch(ParameterRole role) {
  return role == ParameterRole::kOmega ||
         (role >= ParameterRole::kHyperMapWeight && role <= ParameterRole::kHyperMapBias) ||
         (role >= ParameterRole::kQueryShift && role <= ParameterRole::kBranchScale);
}

// Module names within a layer: fairseq's; the norms in front of a branch and behind it have none there, except
// self-attention's "attn_ln".
const char* ModulePrefix(SublayerKind kind, ParameterRole role) {
  const bool norm = IsOf(ParameterRole::kNormScale, role);
  if (role == ParameterRole::kReaderQuery || role == ParameterRole::kReaderScale) {
    return kind == SublayerKind::kSelfAttention    ? "self_attn"
           : kind == SublayerKind::kCrossAttention ? "encoder_attn"
                                                   : "ffn";
  }
  if (role == ParameterRole::kLearnedGain) return "";
  const bool input = IsOf(ParameterRole::kInputNormScale, role);
  if (input || IsOf(ParameterRole::kOutputNormScale, role)) {
    switch (kind) {
      case SublayerKind::kSelfAttention:
        return input ? "self_attn_input_ln." : "attn_ln.";
      case SublayerKind::kCrossAttention:
        return input ? "encoder_attn_input_ln." : "encoder_attn_ln.";
      default:
        return input ? "ffn_input_ln." : "ffn_ln.";
    }
  }
  switch (kind) {
    case SublayerKind::kSelfAttention:
      return norm ? "self_attn_layer_norm." : "self_attn.";
    case SublayerKind::kCrossAttention:
      return norm ? "encoder_attn_layer_norm." : "encoder_attn.";
    case SublayerKind::kFeedForward:
      return norm ? "final_layer_norm." : IsOfBranch(role) ? "ffn." : "";
    default:
      return "";
  }
}

// fairseq's names of AdaptiveInput's and AdaptiveSoftmax's weights. `place`: of the parameter among its owner's.
std::string AdaptiveName(const SublayerRecord& owner, ParameterRole role, int32_t place) {
  const bool is_projection = role == ParameterRole::kTailProjection || role == ParameterRole::kInputProjection;
  const int32_t band = role == ParameterRole::kInputProjection ? 0 : (place + 1) / 2;
  if (owner.kind != SublayerKind::kOutputHead) {
    return absl::StrCat(StackName(owner.stack), ".embed_tokens.embeddings.", band, is_projection ? ".1" : ".0",
                        ".weight");
  }
  if (role == ParameterRole::kClusterWeight) return "decoder.adaptive_softmax.head.class_proj.weight";
  if (role == ParameterRole::kEmbedding) return "decoder.adaptive_softmax.head.weight";
  return absl::StrCat("decoder.adaptive_softmax.tail.", band - 1, is_projection ? ".0" : ".2", ".weight");
}

}  // namespace

std::string ModelPlan::ParameterName(int32_t parameter) const {
  const ParameterRecord& record = parameters[parameter];
  const SublayerRecord& owner = sublayers[record.sublayer];
  const bool in_bands =
      record.role == ParameterRole::kClusterWeight || (record.is_table() && Tables(record.sublayer) > 1);
  if (in_bands) return AdaptiveName(owner, record.role, parameter - owner.first_parameter);
  if (record.role == ParameterRole::kEmbedding) {
    if (owner.kind == SublayerKind::kOutputHead) {
      return owner.stack == Stack::kEncoder ? "encoder.lm_head.weight" : "decoder.output_projection.weight";
    }
    return absl::StrCat(StackName(owner.stack), ".embed_tokens.weight");
  }
  if (record.role == ParameterRole::kConvolutionWeight || record.role == ParameterRole::kConvolutionBias) {
    return absl::StrCat(StackName(owner.stack), ".subsample.conv_layers.", (parameter - owner.first_parameter) / 2, ".",
                        RoleSuffix(record.role));
  }
  if (IsOf(ParameterRole::kClosingNormScale, record.role))
    return absl::StrCat(StackName(owner.stack), ".layer_norm.", RoleSuffix(record.role));
  if (record.role == ParameterRole::kCombinationWeight) {  // the row's number
    return absl::StrCat(StackName(owner.stack), ".", RoleSuffix(record.role), ".", record.elements() - 1);
  }
  if (IsOf(ParameterRole::kCombinationNormScale, record.role)) {
    const int32_t row = owner.kind == SublayerKind::kSelfAttention ? owner.layer : owner.layer + 1;
    return absl::StrCat(StackName(owner.stack), ".dlcl.layer_norms.", row, ".", RoleSuffix(record.role));
  }
  if (IsOfStack(record.role)) return absl::StrCat(StackName(owner.stack), ".", RoleSuffix(record.role));
  return absl::StrCat(StackName(owner.stack), ".layers.", owner.layer, ".", ModulePrefix(owner.kind, record.role),
                      RoleSuffix(record.role));
}

std::string ModelPlan::SublayerName(int32_t sublayer) const {
  const SublayerRecord& record = sublayers[sublayer];
  switch (record.kind) {
    case SublayerKind::kSourceEmbedding:
      return record.table < 0 ? "speech front end" : "source embedding";
    case SublayerKind::kTargetEmbedding:
      return "target embedding";
    case SublayerKind::kOutputHead:
      return "output head";
    case SublayerKind::kSelfAttention:
      return absl::StrCat(StackName(record.stack), " layer ", record.layer, " self-attention");
    case SublayerKind::kCrossAttention:
      return absl::StrCat("decoder layer ", record.layer, " cross-attention");
    case SublayerKind::kFeedForward:
      return absl::StrCat(StackName(record.stack), " layer ", record.layer, " feed-forward");
  }
  return "";
}

}  // namespace hadal

// The names of parameters and sublayers.
#include "absl/strings/str_cat.h"
#include "layers/model_plan.h"

namespace hadal {
namespace {

const char* RoleSuffix(ParameterRole role) {
  switch (role) {
    case ParameterRole::kQueryWeight:
      return "q_proj.weight";
    case ParameterRole::kKeyWeight:
      return "k_proj.weight";
    case ParameterRole::kValueWeight:
      return "v_proj.weight";
    case ParameterRole::kQueryBias:
      return "q_proj.bias";
    case ParameterRole::kKeyBias:
      return "k_proj.bias";
    case ParameterRole::kValueBias:
      return "v_proj.bias";
    case ParameterRole::kOutputWeight:
      return "out_proj.weight";
    case ParameterRole::kOutputBias:
      return "out_proj.bias";
    case ParameterRole::kHiddenWeight:
      return "fc1.weight";
    case ParameterRole::kHiddenBias:
      return "fc1.bias";
    case ParameterRole::kContractionWeight:
      return "fc2.weight";
    case ParameterRole::kContractionBias:
      return "fc2.bias";
    case ParameterRole::kNormScale:
    case ParameterRole::kClosingNormScale:
    case ParameterRole::kCombinationNormScale:
    case ParameterRole::kInputNormScale:
    case ParameterRole::kOutputNormScale:
      return "weight";
    case ParameterRole::kNormShift:
    case ParameterRole::kClosingNormShift:
    case ParameterRole::kCombinationNormShift:
    case ParameterRole::kInputNormShift:
    case ParameterRole::kOutputNormShift:
      return "bias";
    case ParameterRole::kCombinationWeight:
      return "dlcl.weight";
    case ParameterRole::kEmbedding:
    case ParameterRole::kTailTable:
    case ParameterRole::kTailProjection:
    case ParameterRole::kInputProjection:
    case ParameterRole::kClusterWeight:
      return "weight";
    case ParameterRole::kLearnedGain:
      return "resweight";
    case ParameterRole::kHeadScale:
      return "head_scale";
    case ParameterRole::kInnerNormScale:
      return "inner_attn_ln.weight";
    case ParameterRole::kInnerNormShift:
      return "inner_attn_ln.bias";
    case ParameterRole::kHiddenNormScale:
      return "ffn_layernorm.weight";
    case ParameterRole::kHiddenNormShift:
      return "ffn_layernorm.bias";
    case ParameterRole::kQueryShift:
    case ParameterRole::kClosingShift:
      return "shift";
    case ParameterRole::kInputShift:
      return "shift1";
    case ParameterRole::kHiddenShift:
      return "shift2";
    case ParameterRole::kContractionShift:
      return "shift3";
    case ParameterRole::kBranchScale:
    case ParameterRole::kClosingScale:
      return "scale";
    case ParameterRole::kOmega:
      return "omega";
    case ParameterRole::kConvolutionWeight:
      return "weight";
    case ParameterRole::kConvolutionBias:
      return "bias";
    case ParameterRole::kHyperMapWeight:
      return "streams.weight";
    case ParameterRole::kHyperMapGates:
      return "streams.gates";
    case ParameterRole::kHyperMapBias:
      return "streams.bias";
    case ParameterRole::kLinearWeight:
      return "fc3.weight";
    case ParameterRole::kLinearBias:
      return "fc3.bias";
    case ParameterRole::kPositionTable:
      return "embed_positions.weight";
    case ParameterRole::kQueryNormScale:
      return "q_norm.weight";
    case ParameterRole::kQueryNormShift:
      return "q_norm.bias";
    case ParameterRole::kKeyNormScale:
      return "k_norm.weight";
    case ParameterRole::kKeyNormShift:
      return "k_norm.bias";
    case ParameterRole::kGateWeight:
      return "gate_proj.weight";
    case ParameterRole::kGateBias:
      return "gate_proj.bias";
    case ParameterRole::kEmbeddingNormScale:
      return "layernorm_embedding.weight";
    case ParameterRole::kEmbeddingNormShift:
      return "layernorm_embedding.bias";
    case ParameterRole::kHeadWeight:
      return "lm_head.dense.weight";
    case ParameterRole::kHeadBias:
      return "lm_head.dense.bias";
    case ParameterRole::kHeadNormScale:
      return "lm_head.layer_norm.weight";
    case ParameterRole::kHeadNormShift:
      return "lm_head.layer_norm.bias";
    case ParameterRole::kLogitBias:
      return "lm_head.bias";
    case ParameterRole::kReaderQuery:
      return "_res_proj.weight";
    case ParameterRole::kReaderScale:
      return "_res_norm.weight";
    case ParameterRole::kClosingReaderQuery:
      return "output_attn_res_proj.weight";
    case ParameterRole::kClosingReaderScale:
      return "output_attn_res_norm.weight";
  }
  return "";
}

const char* StackName(Stack stack) { return stack == Stack::kEncoder ? "encoder" : "decoder"; }

bool IsNorm(ParameterRole role) { return role == ParameterRole::kNormScale || role == ParameterRole::kNormShift; }

bool IsClosingNorm(ParameterRole role) {
  return role == ParameterRole::kClosingNormScale || role == ParameterRole::kClosingNormShift;
}

bool IsCombinationNorm(ParameterRole role) {
  return role == ParameterRole::kCombinationNormScale || role == ParameterRole::kCombinationNormShift;
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

bool IsInputNorm(ParameterRole role) {
  return role == ParameterRole::kInputNormScale || role == ParameterRole::kInputNormShift;
}

bool IsOutputNorm(ParameterRole role) {
  return role == ParameterRole::kOutputNormScale || role == ParameterRole::kOutputNormShift;
}

// Module names within a layer: fairseq's; the norms in front of a branch and behind it have none there, except
// self-attention's "attn_ln".
const char* ModulePrefix(SublayerKind kind, ParameterRole role) {
  const bool norm = IsNorm(role);
  if (role == ParameterRole::kReaderQuery || role == ParameterRole::kReaderScale) {
    return kind == SublayerKind::kSelfAttention    ? "self_attn"
           : kind == SublayerKind::kCrossAttention ? "encoder_attn"
                                                   : "ffn";
  }
  if (role == ParameterRole::kLearnedGain) return "";
  if (IsInputNorm(role) || IsOutputNorm(role)) {
    const bool input = IsInputNorm(role);
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
  if (IsClosingNorm(record.role)) return absl::StrCat(StackName(owner.stack), ".layer_norm.", RoleSuffix(record.role));
  if (record.role == ParameterRole::kCombinationWeight) {  // the row's number
    return absl::StrCat(StackName(owner.stack), ".", RoleSuffix(record.role), ".", record.elements() - 1);
  }
  if (IsCombinationNorm(record.role)) {
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

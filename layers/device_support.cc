#include "layers/device_support.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

absl::Status Missing(const std::string& what) {
  return UnimplementedError("this model needs ", what, ", which has no GPU version yet; train it with --device cpu");
}

bool HasRole(const ModelPlan& plan, std::initializer_list<ParameterRole> roles) {
  return std::any_of(plan.parameters.begin(), plan.parameters.end(), [&](const ParameterRecord& parameter) {
    return std::find(roles.begin(), roles.end(), parameter.role) != roles.end();
  });
}

bool HasShifts(const ModelPlan& plan) {
  return HasRole(plan, {ParameterRole::kQueryShift, ParameterRole::kInputShift, ParameterRole::kContractionShift,
                        ParameterRole::kHiddenShift, ParameterRole::kClosingShift});
}

// Post-norm residual streams are stored as products read them. In bf16, with 8 bits, a branch that weighs less than
// 1/64 of the stream (Keel at 32 layers) is mostly lost.
absl::Status CheckResidualGain(const ModelPlan& plan, Stack stack, const StackMethod& method) {
  constexpr double kMost = 64;
  if (plan.residual_storage(stack) != Storage::kBFloat16 || method.residual_gain <= kMost) return absl::OkStatus();
  return UnimplementedError("this model's residual_gain is ", method.residual_gain,
                            ", and a residual stream in bf16 can keep branches of 1/", kMost,
                            " of it at the least; train it with --set device.precision=fp32");
}

// In bf16 a Post-LN layer's stream is stored in bf16, a Pre-LN layer's in fp32; a stack has one type.
absl::Status CheckOnePlacement(const ModelPlan& plan, const char* name, const StackMethod& method) {
  if (plan.compute_storage != Storage::kBFloat16 || method.post_norm_share == 0) return absl::OkStatus();
  return UnimplementedError("this model's ", name,
                            " has Post-LN layers below Pre-LN layers (post_norm_share), which have no common type of "
                            "residual stream in bf16; train it with --set device.precision=fp32");
}

}  // namespace

absl::Status CheckDeviceStorage(const ModelPlan& plan) {
  const ModelOptions& model = plan.options;
  if (model.has_decoder()) HADAL_RETURN_IF_ERROR(CheckResidualGain(plan, Stack::kDecoder, model.decoder));
  if (model.has_encoder()) HADAL_RETURN_IF_ERROR(CheckResidualGain(plan, Stack::kEncoder, model.encoder));
  HADAL_RETURN_IF_ERROR(CheckOnePlacement(plan, "decoder", model.decoder));
  return model.has_encoder() ? CheckOnePlacement(plan, "encoder", model.encoder) : absl::OkStatus();
}

absl::Status CheckDeviceSupport(const ModelPlan& plan, const DeviceKernels& kernels) {
  const ModelOptions& model = plan.options;
  const bool learned_gain = std::any_of(plan.sublayers.begin(), plan.sublayers.end(),
                                        [](const SublayerRecord& sublayer) { return sublayer.learned_gain >= 0; });
  if (!kernels.learned_gains && (learned_gain || HasRole(plan, {ParameterRole::kOmega}))) {
    return Missing("residual_norm with learned gains (ReZero, R-Fixup, Admin)");
  }
  if (kernels.head_scale_forward == nullptr && HasRole(plan, {ParameterRole::kHeadScale})) {
    return Missing("head_scale (NormFormer)");
  }
  if (kernels.shift_scale_forward == nullptr && HasShifts(plan)) return Missing("shift_scale (R-Fixup)");
  if (kernels.weighted_sum_forward == nullptr && (plan.Combines(Stack::kEncoder) || plan.Combines(Stack::kDecoder))) {
    return Missing("weighted_sum (DLCL)");
  }
  if (kernels.read_sources_forward == nullptr &&
      (plan.ReadsBlocks(Stack::kEncoder) || plan.ReadsBlocks(Stack::kDecoder))) {
    return Missing("attention_residual (Attention Residuals)");
  }
  if (kernels.unfold == nullptr && model.reads_speech()) return Missing("unfold (speech)");
  if (kernels.hyper_read_forward == nullptr && HasRole(plan, {ParameterRole::kHyperMapWeight})) {
    return Missing("hyper_connection (mHC)");
  }
  HADAL_RETURN_IF_ERROR(CheckDeviceStorage(plan));
  if (model.adaptive()) return Missing("an adaptive softmax (model.adaptive_cutoffs)");
  const bool hidden_norm = model.encoder.ffn_inner_norm || model.decoder.ffn_inner_norm;
  const int64_t row = hidden_norm ? std::max(model.d_model, model.d_ff) : model.d_model;
  if (row > kernels.widest_row) {
    return Missing(absl::StrCat("LayerNorm over ", row, " columns (the widest has ", kernels.widest_row, ")"));
  }
  if (const int64_t head = model.head_width(); head > kernels.widest_head) {
    return Missing(
        absl::StrCat("attention with heads of ", head, " columns (the widest have ", kernels.widest_head, ")"));
  }
  return absl::OkStatus();
}

}  // namespace hadal

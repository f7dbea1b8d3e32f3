#include "layers/device_support.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/device_kernels.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

absl::Status Missing(const std::string& what) {
  return UnimplementedError("this model needs ", what, ", which has no GPU version yet; train it with --device cpu");
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

// Some methods do not allow streams in bf16.
absl::Status CheckDeviceStorage(const ModelPlan& plan) {
  const ModelOptions& model = plan.options;
  if (model.has_decoder()) HADAL_RETURN_IF_ERROR(CheckResidualGain(plan, Stack::kDecoder, model.decoder));
  if (model.has_encoder()) HADAL_RETURN_IF_ERROR(CheckResidualGain(plan, Stack::kEncoder, model.encoder));
  HADAL_RETURN_IF_ERROR(CheckOnePlacement(plan, "decoder", model.decoder));
  return model.has_encoder() ? CheckOnePlacement(plan, "encoder", model.encoder) : absl::OkStatus();
}

}  // namespace

absl::Status CheckDeviceSupport(const ModelPlan& plan) {
  const ModelOptions& model = plan.options;
  HADAL_RETURN_IF_ERROR(CheckDeviceStorage(plan));
  if (model.adaptive()) return Missing("an adaptive softmax (model.adaptive_cutoffs)");
  const bool hidden_norm = model.encoder.ffn_inner_norm || model.decoder.ffn_inner_norm;
  const bool query_norm = model.encoder.attention_inner_norm || model.decoder.attention_inner_norm;
  const int64_t row =
      std::max<int64_t>({model.d_model, hidden_norm ? model.d_ff : 0, query_norm ? model.query_width() : 0});
  if (row > kWidestDeviceRow) {
    return Missing(absl::StrCat("LayerNorm over ", row, " columns (the widest has ", kWidestDeviceRow, ")"));
  }
  if (const int64_t head = model.head_width(); head > kWidestDeviceHead) {
    return Missing(
        absl::StrCat("attention with heads of ", head, " columns (the widest have ", kWidestDeviceHead, ")"));
  }
  return absl::OkStatus();
}

}  // namespace hadal

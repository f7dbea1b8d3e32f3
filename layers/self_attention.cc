#include "layers/self_attention.h"

#include "kernels/attention.h"
#include "kernels/linear.h"

namespace hadal {

SelfAttention::SelfAttention(const ModelPlan& plan, int32_t sublayer)
    : sublayer_(sublayer),
      stack_(plan.sublayers[sublayer].stack),
      qkv_weight_(plan.sublayers[sublayer].first_parameter),
      qkv_bias_(plan.ParameterOf(sublayer, ParameterRole::kQueryBias)),
      shift_(plan, sublayer, ParameterRole::kQueryShift),
      output_(plan, sublayer),
      storage_(plan.compute_storage),
      d_model_(plan.options.d_model),
      heads_(plan.options.heads),
      dropout_(plan.options.attention_dropout) {}

template <typename Byte>
SelfAttention::Saved<Byte> SelfAttention::Views(Byte* saved, int64_t rows) const {
  SavedTensors tensors(saved);
  Saved<Byte> s;
  s.qkv = tensors.Take(storage_, rows, 3 * d_model_);
  s.attended = tensors.Take(storage_, rows, d_model_);
  s.log_sum_exp = tensors.TakeFloats(rows, heads_);
  if (shift_.present()) s.shifted = tensors.Take(storage_, rows, d_model_);
  s.output = tensors.TakeBytes(output_.SavedBytes(rows));
  s.bytes = tensors.bytes();
  return s;
}

int64_t SelfAttention::SavedBytes(const ActivationCapacity& capacity) const {
  return Views<std::byte>(nullptr, capacity.rows(stack_)).bytes;
}

void SelfAttention::Forward(const SublayerContext& context, ConstAnyMatrix x, std::byte* saved, AnyMatrix y) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<std::byte> s = Views(saved, x.rows);
  LinearForward(context.stream, {.x = shift_.Forward(context, x, s.shifted),
                                 .weight = parameters.ProductWeight(qkv_weight_, 3),
                                 .bias = parameters.ProductBias(qkv_bias_, 3),
                                 .y = s.qkv});
  AttentionForward(context.stream, {.shape = {.query_offsets = context.offsets(stack_),
                                              .key_offsets = context.offsets(stack_),
                                              .heads = heads_,
                                              .causal = stack_ == Stack::kDecoder,
                                              .tile_places = context.self_tiles(stack_)},
                                    .q = s.qkv.Columns(0, d_model_),
                                    .k = s.qkv.Columns(d_model_, d_model_),
                                    .v = s.qkv.Columns(2 * d_model_, d_model_),
                                    .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kAttention),
                                    .output = s.attended,
                                    .log_sum_exp = s.log_sum_exp,
                                    .scratch = context.workspace.attention_scratch()});
  output_.Forward(context, s.attended, s.output, y);
}

void SelfAttention::BackwardInput(const SublayerContext& context, ConstAnyMatrix d_y, const std::byte* saved,
                                  bool accumulate, AnyMatrix d_x) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<const std::byte> s = Views(saved, d_y.rows);
  const AnyMatrix d_attended = context.workspace.context_gradient(d_y.rows);
  const AnyMatrix d_qkv = context.workspace.inner_gradient(d_y.rows, 3 * d_model_);
  output_.BackwardInput(context, d_y, s.attended, s.output, d_attended);
  AttentionBackward(context.stream, {.shape = {.query_offsets = context.offsets(stack_),
                                               .key_offsets = context.offsets(stack_),
                                               .heads = heads_,
                                               .causal = stack_ == Stack::kDecoder,
                                               .tile_places = context.self_tiles(stack_)},
                                     .q = s.qkv.Columns(0, d_model_),
                                     .k = s.qkv.Columns(d_model_, d_model_),
                                     .v = s.qkv.Columns(2 * d_model_, d_model_),
                                     .log_sum_exp = s.log_sum_exp,
                                     .d_output = d_attended,
                                     .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kAttention),
                                     .d_q = d_qkv.Columns(0, d_model_),
                                     .d_k = d_qkv.Columns(d_model_, d_model_),
                                     .d_v = d_qkv.Columns(2 * d_model_, d_model_),
                                     .scratch = context.workspace.attention_scratch()});
  shift_.BackwardInput(
      context, {.dy = d_qkv, .weight = parameters.ProductWeight(qkv_weight_, 3), .accumulate = accumulate, .dx = d_x});
}

void SelfAttention::BackwardWeight(const SublayerContext& context, ConstAnyMatrix x, ConstAnyMatrix d_y,
                                   const std::byte* saved) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<const std::byte> s = Views(saved, d_y.rows);
  output_.BackwardWeight(context, d_y, s.attended, s.output);
  LinearBackwardWeight(context.stream, {.dy = context.workspace.inner_gradient(d_y.rows, 3 * d_model_),
                                        .x = shift_.Read(x, s.shifted),
                                        .d_weight = parameters.FusedGradient(qkv_weight_, 3),
                                        .d_bias = parameters.FusedGradientVector(qkv_bias_, 3)});
}

}  // namespace hadal

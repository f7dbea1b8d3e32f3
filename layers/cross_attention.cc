#include "layers/cross_attention.h"

#include "kernels/attention.h"
#include "kernels/linear.h"

namespace hadal {
namespace {

AttentionShape ShapeOf(const SublayerContext& context, int32_t heads) {
  return {.query_offsets = context.offsets(Stack::kDecoder),
          .key_offsets = context.offsets(Stack::kEncoder),
          .heads = heads,
          .causal = false,
          .tile_places = context.cross_tiles()};
}

}  // namespace

CrossAttention::CrossAttention(const ModelPlan& plan, int32_t sublayer)
    : sublayer_(sublayer),
      query_weight_(plan.ParameterOf(sublayer, ParameterRole::kQueryWeight)),
      query_bias_(plan.ParameterOf(sublayer, ParameterRole::kQueryBias)),
      key_value_weight_(plan.ParameterOf(sublayer, ParameterRole::kKeyWeight)),
      key_value_bias_(plan.ParameterOf(sublayer, ParameterRole::kKeyBias)),
      output_weight_(plan.ParameterOf(sublayer, ParameterRole::kOutputWeight)),
      output_bias_(plan.ParameterOf(sublayer, ParameterRole::kOutputBias)),
      shift_(plan, sublayer, ParameterRole::kQueryShift),
      storage_(plan.compute_storage),
      d_model_(plan.options.d_model),
      heads_(plan.options.heads),
      dropout_(plan.options.attention_dropout) {}

template <typename Byte>
CrossAttention::Saved<Byte> CrossAttention::Views(Byte* saved, int64_t target_rows, int64_t source_rows) const {
  SavedTensors tensors(saved);
  Saved<Byte> s;
  s.query = tensors.Take(storage_, target_rows, d_model_);
  s.key_value = tensors.Take(storage_, source_rows, 2 * d_model_);
  s.attended = tensors.Take(storage_, target_rows, d_model_);
  s.log_sum_exp = tensors.TakeFloats(target_rows, heads_);
  if (shift_.present()) s.shifted = tensors.Take(storage_, target_rows, d_model_);
  s.bytes = tensors.bytes();
  return s;
}

int64_t CrossAttention::SavedBytes(const ActivationCapacity& capacity) const {
  return Views<std::byte>(nullptr, capacity.target_rows, capacity.source_rows).bytes;
}

void CrossAttention::Forward(const SublayerContext& context, ConstAnyMatrix x, std::byte* saved, AnyMatrix y) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<std::byte> s = Views(saved, x.rows, context.encoder_output.rows);
  LinearForward(context.stream, {.x = shift_.Forward(context, x, s.shifted),
                                 .weight = parameters.ProductWeight(query_weight_),
                                 .bias = parameters.ProductBias(query_bias_),
                                 .y = s.query});
  LinearForward(context.stream, {.x = context.encoder_output,
                                 .weight = parameters.ProductWeight(key_value_weight_, 2),
                                 .bias = parameters.ProductBias(key_value_bias_, 2),
                                 .y = s.key_value});
  AttentionForward(context.stream, {.shape = ShapeOf(context, heads_),
                                    .q = s.query,
                                    .k = s.key_value.Columns(0, d_model_),
                                    .v = s.key_value.Columns(d_model_, d_model_),
                                    .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kAttention),
                                    .output = s.attended,
                                    .log_sum_exp = s.log_sum_exp,
                                    .scratch = context.workspace.attention_scratch()});
  LinearForward(context.stream, {.x = s.attended, .weight = parameters.ProductWeight(output_weight_), .y = y});
}

void CrossAttention::BackwardInput(const SublayerContext& context, ConstAnyMatrix d_y, const std::byte* saved,
                                   bool accumulate, AnyMatrix d_x) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<const std::byte> s = Views(saved, d_y.rows, context.encoder_output.rows);
  const AnyMatrix d_attended = context.workspace.context_gradient(d_y.rows);
  const AnyMatrix d_query = context.workspace.query_gradient(d_y.rows);
  const AnyMatrix d_key_value = context.workspace.inner_gradient(context.encoder_output.rows, 2 * d_model_);
  LinearBackwardInput(context.stream,
                      {.dy = d_y, .weight = parameters.ProductWeight(output_weight_), .dx = d_attended});
  AttentionBackward(context.stream, {.shape = ShapeOf(context, heads_),
                                     .q = s.query,
                                     .k = s.key_value.Columns(0, d_model_),
                                     .v = s.key_value.Columns(d_model_, d_model_),
                                     .log_sum_exp = s.log_sum_exp,
                                     .d_output = d_attended,
                                     .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kAttention),
                                     .d_q = d_query,
                                     .d_k = d_key_value.Columns(0, d_model_),
                                     .d_v = d_key_value.Columns(d_model_, d_model_),
                                     .scratch = context.workspace.attention_scratch()});
  shift_.BackwardInput(
      context, {.dy = d_query, .weight = parameters.ProductWeight(query_weight_), .accumulate = accumulate, .dx = d_x});
  LinearBackwardInput(context.stream, {.dy = d_key_value,
                                       .weight = parameters.ProductWeight(key_value_weight_, 2),
                                       .accumulate = true,
                                       .dx = context.d_encoder_output});
}

void CrossAttention::BackwardWeight(const SublayerContext& context, ConstAnyMatrix x, ConstAnyMatrix d_y,
                                    const std::byte* saved) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<const std::byte> s = Views(saved, d_y.rows, context.encoder_output.rows);
  LinearBackwardWeight(context.stream, {.dy = d_y, .x = s.attended, .d_weight = parameters.Gradient(output_weight_)});
  LinearBackwardWeight(context.stream, {.dy = context.workspace.query_gradient(d_y.rows),
                                        .x = shift_.Read(x, s.shifted),
                                        .d_weight = parameters.Gradient(query_weight_),
                                        .d_bias = parameters.GradientVector(query_bias_)});
  LinearBackwardWeight(context.stream,
                       {.dy = context.workspace.inner_gradient(context.encoder_output.rows, 2 * d_model_),
                        .x = context.encoder_output,
                        .d_weight = parameters.FusedGradient(key_value_weight_, 2),
                        .d_bias = parameters.FusedGradientVector(key_value_bias_, 2)});
}

}  // namespace hadal

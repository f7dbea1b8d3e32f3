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
      d_model_(plan.options.d_model),
      heads_(plan.options.heads),
      dropout_(plan.options.attention_dropout) {}

int64_t SelfAttention::SavedFloats(const ModelPlan& plan, const ActivationCapacity& capacity) const {
  const int64_t rows = capacity.rows(stack_);
  return rows * (4 * d_model_ + heads_) + shift_.SavedFloats(rows, d_model_) + output_.SavedFloats(rows);
}

template <typename T>
SelfAttention::Saved<T> SelfAttention::Views(T* saved, int64_t rows) const {
  T* attended = saved + rows * 3 * d_model_;
  T* log_sum_exp = attended + rows * d_model_;
  T* shifted = log_sum_exp + rows * heads_;
  return {{saved, rows, 3 * d_model_},
          {attended, rows, d_model_},
          {log_sum_exp, rows, heads_},
          shifted,
          shifted + shift_.SavedFloats(rows, d_model_)};
}

void SelfAttention::Forward(const SublayerContext& context, ConstMatrix x, float* saved, Matrix y) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<float> s = Views(saved, x.rows);
  LinearForward(context.stream, {.x = shift_.Forward(context, x, s.shifted),
                                 .weight = parameters.FusedWeight(qkv_weight_, 3),
                                 .bias = parameters.FusedWeightVector(qkv_bias_, 3),
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
                                    .context = s.attended,
                                    .log_sum_exp = s.log_sum_exp,
                                    .scratch = context.workspace.attention_scratch()});
  output_.Forward(context, s.attended, s.output, y);
}

void SelfAttention::BackwardInput(const SublayerContext& context, ConstMatrix d_y, const float* saved, bool accumulate,
                                  Matrix d_x) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<const float> s = Views(saved, d_y.rows);
  const Matrix d_attended = context.workspace.context_gradient(d_y.rows);
  const Matrix d_qkv = context.workspace.inner_gradient(d_y.rows, 3 * d_model_);
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
                                     .d_context = d_attended,
                                     .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kAttention),
                                     .d_q = d_qkv.Columns(0, d_model_),
                                     .d_k = d_qkv.Columns(d_model_, d_model_),
                                     .d_v = d_qkv.Columns(2 * d_model_, d_model_),
                                     .scratch = context.workspace.attention_scratch()});
  shift_.BackwardInput(
      context, {.dy = d_qkv, .weight = parameters.FusedWeight(qkv_weight_, 3), .accumulate = accumulate, .dx = d_x});
}

void SelfAttention::BackwardWeight(const SublayerContext& context, ConstMatrix x, ConstMatrix d_y,
                                   const float* saved) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<const float> s = Views(saved, d_y.rows);
  output_.BackwardWeight(context, d_y, s.attended, s.output);
  LinearBackwardWeight(context.stream, {.dy = context.workspace.inner_gradient(d_y.rows, 3 * d_model_),
                                        .x = shift_.Read(x, s.shifted),
                                        .d_weight = parameters.FusedGradient(qkv_weight_, 3),
                                        .d_bias = parameters.FusedGradientVector(qkv_bias_, 3)});
}

}  // namespace hadal

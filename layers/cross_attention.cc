// Cross-attention: queries from the residual stream, keys and values from the encoder's output m (not normalised
// again).
//   y = Concat_h(softmax(q_h·k_gᵀ/sqrt(D))·v_g)·W_oᵀ,  q = x·W_qᵀ + b_q,  k|v = m·W_kvᵀ + b_kv (one product)
// g is the head of keys of head h. Some blocks norm q and k (HeadNorms, branch_parts.h). Rotary positions, windows and
// gates are self-attention's alone.
// Shapes: x, y [Rt, d], m [Rs, d], Rt target and Rs source rows; H heads of D columns, Q = H·D; K heads of keys.
// Source: Vaswani et al. 2017 section 3.2.
// R-Fixup subtracts a scalar from the queries' input (chunk_part.h).
// Saved: attended [Rt, Q] (the heads' outputs), the shifted input [Rt, d]; only for the input half: q [Rt, Q], k|v
// [Rs, 2·K·D], log-sum-exp [Rt, H]. Pending: the gradients of q [Rt, Q] and k|v [Rs, 2·K·D].
// The encoder output's gradient is added up in fp32, by the cross-attentions in descending sublayer order. Everything
// else: chunk_part.h, kernels/attention.h.
#include "kernels/attention.h"
#include "kernels/linear.h"
#include "layers/branch_parts.h"
#include "layers/chunk_part.h"

namespace hadal {
namespace {

class CrossAttention final : public Branch {
 public:
  CrossAttention(const ModelPlan& plan, int32_t sublayer);

  SavedBytes BytesToSave(const ActivationCapacity& capacity) const override {
    return Views<std::byte>(nullptr, nullptr, capacity.target_rows, capacity.source_rows).bytes;
  }
  int64_t PendingBytes(const ActivationCapacity& capacity) const override {
    return PendingViews(nullptr, capacity.target_rows, capacity.source_rows).bytes;
  }
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, bool accumulate) const override;
  void BackwardWeight(const SublayerContext& context, const PartTensors& tensors) const override;
  int32_t output_bias() const override { return adds_output_bias_ ? -1 : output_bias_; }

 private:
  template <typename Byte>
  struct Saved {
    SavedMatrix<Byte> query, key_value, attended;
    MatrixOf<SavedFloat<Byte>> log_sum_exp;
    SavedMatrix<Byte> shifted;
    SavedBytes bytes;
  };
  struct Pending {
    AnyMatrix d_query, d_key_value;
    int64_t bytes = 0;
  };
  template <typename Byte>
  Saved<Byte> Views(Byte* saved, Byte* saved_input, int64_t target_rows, int64_t source_rows) const;
  Pending PendingViews(std::byte* pending, int64_t target_rows, int64_t source_rows) const;
  AttentionShape ShapeOf(const SublayerContext& context) const;

  int32_t sublayer_;
  int32_t query_weight_, query_bias_, key_value_weight_, key_value_bias_, output_weight_, output_bias_;  // parameters
  bool adds_output_bias_;  // a norm follows (branch_parts.cc)
  InputShift shift_;
  HeadNorms head_norms_;
  Storage storage_;
  int64_t d_model_, query_width_, key_width_;
  int32_t heads_, group_;
  double dropout_;
};

CrossAttention::CrossAttention(const ModelPlan& plan, int32_t sublayer)
    : sublayer_(sublayer),
      query_weight_(plan.ParameterOf(sublayer, ParameterRole::kQueryWeight)),
      query_bias_(plan.ParameterOf(sublayer, ParameterRole::kQueryBias)),
      key_value_weight_(plan.ParameterOf(sublayer, ParameterRole::kKeyWeight)),
      key_value_bias_(plan.ParameterOf(sublayer, ParameterRole::kKeyBias)),
      output_weight_(plan.ParameterOf(sublayer, ParameterRole::kOutputWeight)),
      output_bias_(plan.ParameterOf(sublayer, ParameterRole::kOutputBias)),
      adds_output_bias_(plan.ParameterOf(sublayer, ParameterRole::kOutputNormScale) >= 0),
      shift_(plan, sublayer, ParameterRole::kQueryShift),
      head_norms_(plan, sublayer),
      storage_(plan.compute_storage),
      d_model_(plan.options.d_model),
      query_width_(plan.options.query_width()),
      key_width_(plan.options.key_width()),
      heads_(plan.options.heads),
      group_(plan.options.heads / plan.options.kv_heads()),
      dropout_(plan.options.attention_dropout) {}

template <typename Byte>
CrossAttention::Saved<Byte> CrossAttention::Views(Byte* saved, Byte* saved_input, int64_t target_rows,
                                                  int64_t source_rows) const {
  SavedTensors kept(saved);
  Saved<Byte> s;
  s.attended = kept.Take(storage_, target_rows, query_width_);
  if (shift_.present()) s.shifted = kept.Take(storage_, target_rows, d_model_);
  SavedTensors input = kept.Behind(saved_input);
  s.query = input.Take(storage_, target_rows, query_width_);
  s.key_value = input.Take(storage_, source_rows, 2 * key_width_);
  s.log_sum_exp = input.TakeFloats(target_rows, heads_);
  s.bytes = {.kept = kept.bytes(), .input = input.bytes()};
  return s;
}

CrossAttention::Pending CrossAttention::PendingViews(std::byte* pending, int64_t target_rows,
                                                     int64_t source_rows) const {
  SavedTensors tensors(pending);
  Pending p;
  p.d_query = tensors.Take(storage_, target_rows, query_width_);
  p.d_key_value = tensors.Take(storage_, source_rows, 2 * key_width_);
  p.bytes = tensors.bytes();
  return p;
}

AttentionShape CrossAttention::ShapeOf(const SublayerContext& context) const {
  return {.query_offsets = context.offsets(Stack::kDecoder),
          .key_offsets = context.offsets(Stack::kEncoder),
          .heads = heads_,
          .group = group_,
          .causal = false,
          .device_tiles = context.device_batch == nullptr ? DeviceTiles() : context.device_batch->cross};
}

void CrossAttention::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<std::byte> s = Views(tensors.saved, tensors.saved_input, tensors.x.rows, tensors.encoder_output.rows);
  LinearForward(context.stream, {.x = shift_.Forward(context, tensors.x, s.shifted),
                                 .weight = parameters.ProductWeight(query_weight_),
                                 .bias = parameters.ProductBias(query_bias_),
                                 .y = s.query});
  LinearForward(context.stream, {.x = tensors.encoder_output,
                                 .weight = parameters.ProductWeight(key_value_weight_, 2),
                                 .bias = parameters.ProductBias(key_value_bias_, 2),
                                 .y = s.key_value});
  const auto [q, k] = head_norms_.Forward(context, {s.query, s.key_value.Columns(0, key_width_)});
  AttentionForward(context.stream, {.shape = ShapeOf(context),
                                    .q = q,
                                    .k = k,
                                    .v = s.key_value.Columns(key_width_, key_width_),
                                    .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kAttention),
                                    .output = s.attended,
                                    .log_sum_exp = s.log_sum_exp,
                                    .scratch = context.workspace.attention_scratch()});
  LinearForwardArgs output{.x = s.attended, .weight = parameters.ProductWeight(output_weight_), .y = tensors.y};
  if (adds_output_bias_) output.bias = parameters.ProductBias(output_bias_);
  LinearForward(context.stream, output);
}

void CrossAttention::BackwardInput(const SublayerContext& context, const PartTensors& tensors, bool accumulate) const {
  const ParameterStore& parameters = context.parameters;
  const int64_t target_rows = tensors.d_y.rows, source_rows = tensors.encoder_output.rows;
  const Saved<const std::byte> s = Views<const std::byte>(tensors.saved, tensors.saved_input, target_rows, source_rows);
  const Pending p = PendingViews(tensors.pending, target_rows, source_rows);
  const AnyMatrix d_attended = context.workspace.attended_gradient(target_rows);
  LinearBackwardInput(context.stream,
                      {.dy = tensors.d_y, .weight = parameters.ProductWeight(output_weight_), .dx = d_attended});
  const HeadNorms::Pair raw = {s.query, s.key_value.Columns(0, key_width_)};
  const auto [q, k] = head_norms_.Forward(context, raw);
  AttentionBackward(context.stream, {.shape = ShapeOf(context),
                                     .q = q,
                                     .k = k,
                                     .v = s.key_value.Columns(key_width_, key_width_),
                                     .log_sum_exp = s.log_sum_exp,
                                     .d_output = d_attended,
                                     .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kAttention),
                                     .d_q = p.d_query,
                                     .d_k = p.d_key_value.Columns(0, key_width_),
                                     .d_v = p.d_key_value.Columns(key_width_, key_width_),
                                     .scratch = context.workspace.attention_scratch()});
  head_norms_.Backward(context, raw, p.d_query, p.d_key_value.Columns(0, key_width_));
  shift_.BackwardInput(context, {.dy = p.d_query,
                                 .weight = parameters.ProductWeight(query_weight_),
                                 .accumulate = accumulate,
                                 .dx = tensors.d_x});
  LinearBackwardInput(context.stream, {.dy = p.d_key_value,
                                       .weight = parameters.ProductWeight(key_value_weight_, 2),
                                       .accumulate = true,
                                       .dx = tensors.d_encoder_output});
}

void CrossAttention::BackwardWeight(const SublayerContext& context, const PartTensors& tensors) const {
  const ParameterStore& parameters = context.parameters;
  const int64_t target_rows = tensors.d_y.rows, source_rows = tensors.encoder_output.rows;
  const Saved<const std::byte> s = Views<const std::byte>(tensors.saved, tensors.saved_input, target_rows, source_rows);
  const Pending p = PendingViews(tensors.pending, target_rows, source_rows);
  LinearBackwardWeightArgs output{
      .dy = tensors.d_y, .x = s.attended, .d_weight = parameters.Gradient(output_weight_), .batch = context.gradients};
  if (adds_output_bias_) output.d_bias = parameters.GradientVector(output_bias_);
  LinearBackwardWeight(context.stream, output);
  LinearBackwardWeight(context.stream, {.dy = p.d_query,
                                        .x = shift_.Read(tensors.x, s.shifted),
                                        .d_weight = parameters.Gradient(query_weight_),
                                        .d_bias = parameters.GradientVector(query_bias_),
                                        .batch = context.gradients});
  LinearBackwardWeight(context.stream, {.dy = p.d_key_value,
                                        .x = tensors.encoder_output,
                                        .d_weight = parameters.FusedGradient(key_value_weight_, 2),
                                        .d_bias = parameters.FusedGradientVector(key_value_bias_, 2),
                                        .batch = context.gradients});
}

}  // namespace

std::unique_ptr<Branch> MakeCrossAttention(const ModelPlan& plan, int32_t sublayer) {
  return std::make_unique<CrossAttention>(plan, sublayer);
}

}  // namespace hadal

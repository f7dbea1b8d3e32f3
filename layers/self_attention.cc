// Self-attention: y = Concat_h(softmax(q_h·k_gᵀ/sqrt(D))·v_g)·W_oᵀ with q|k|v = x·W_qkvᵀ + b (one product), g the
// head of keys of head h. Some blocks norm q and k first (HeadNorms, branch_parts.h). Rotary positions turn q and k
// inside attention's kernels. Causal in the decoder. R-Fixup subtracts a scalar before W_qkv (chunk_part.h). What some
// methods put around W_o:
//
//   y = inner( g ⊙ σ(u) ⊙ c )·W_oᵀ              c [R, Q], the heads side by side
//     u      x·W_gᵀ + b_g [R, Q], of the same product    gated attention (arXiv 2505.06708; Megatron)
//     g      one learned scalar a head          NormFormer (Shleifer et al. 2021; before W_o, as in the paper)
//     inner  LayerNorm over Q                   Sub-LN (Magneto, arXiv 2210.06423 section 2)
// The residual connection's kernel adds b_o; where a norm follows (branch_parts.cc), the product does.
// Source: Vaswani et al. 2017 section 3.2.
// Shapes: x, y [R, d]; H heads of D columns, Q = H·D; K heads of keys, q|k|v|u [R, Q + 2·K·D + Q]. Numerics, order of
// accumulation, threads: chunk_part.h, kernels/attention.h. Saved: σ(u) ⊙ c [R, Q]. Then, each only where it exists:
// the shifted input [R, d]; g ⊙ σ(u) ⊙ c [R, Q]; output [R, Q] of `inner`. Only for the input half: q|k|v|u,
// log-sum-exp [R, H]; c, if there is a gate; statistics [2R] of `inner`.
// Pending: the gradients of q|k|v|u.
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/head_norm.h"
#include "kernels/linear.h"
#include "layers/branch_parts.h"
#include "layers/chunk_part.h"

namespace hadal {
namespace {

class SelfAttention final : public Branch {
 public:
  SelfAttention(const ModelPlan& plan, int32_t sublayer);

  SavedBytes BytesToSave(const ActivationCapacity& capacity) const override {
    return Views<std::byte>(nullptr, nullptr, capacity.rows(stack_)).bytes;
  }
  int64_t PendingBytes(const ActivationCapacity& capacity) const override {
    return PendingGradient(nullptr, capacity.rows(stack_)).bytes();
  }
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, bool accumulate) const override;
  void BackwardWeight(const SublayerContext& context, const PartTensors& tensors) const override;
  int32_t output_bias() const override { return adds_output_bias_ ? -1 : output_bias_; }

 private:
  template <typename Byte>
  struct Saved {
    SavedMatrix<Byte> qkv, attended, gated;  // gated: `attended` without a gate
    MatrixOf<SavedFloat<Byte>> log_sum_exp;
    SavedMatrix<Byte> shifted, scaled, normed;  // empty where they do not exist
    SavedFloat<Byte>* normed_statistics = nullptr;
    SavedBytes bytes;

    // What the inner norm reads, and what W_o reads.
    ConstAnyMatrix Scaled() const { return scaled.empty() ? gated : scaled; }
    ConstAnyMatrix Normed() const { return normed.empty() ? Scaled() : ConstAnyMatrix(normed); }
  };
  template <typename Byte>
  Saved<Byte> Views(Byte* saved, Byte* saved_input, int64_t rows) const;
  // The gradients of q|k|v|u.
  AnyMatrix PendingGradient(std::byte* pending, int64_t rows) const { return {pending, rows, QkvWidth(), storage_}; }
  int64_t QkvWidth() const { return GatePlace() + (products_ == 4 ? query_width_ : 0); }
  int64_t GatePlace() const { return query_width_ + 2 * key_width_; }
  AttentionShape ShapeOf(const SublayerContext& context) const;
  HeadNorms::Pair QueriesAndKeys(const ConstAnyMatrix& qkv) const {
    return {qkv.Columns(0, query_width_), qkv.Columns(query_width_, key_width_)};
  }
  // y from the heads' outputs, and the heads' gradient and the gate's from d_y.
  void ForwardOutput(const SublayerContext& context, const Saved<std::byte>& s, AnyMatrix y) const;
  void BackwardOutput(const SublayerContext& context, const Saved<const std::byte>& s, ConstAnyMatrix d_y,
                      AnyMatrix d_attended, AnyMatrix d_qkv) const;

  int32_t sublayer_;
  Stack stack_;
  int32_t products_;                                  // 3: q, k, v; 4: and u
  int32_t qkv_weight_, qkv_bias_;                     // parameters; q, k, v, u follow each other
  int32_t output_weight_, output_bias_, head_scale_;  // W_o, b_o, g
  bool adds_output_bias_;
  InputShift shift_;
  HeadNorms head_norms_;
  PlainNorm inner_;
  Storage storage_;
  int64_t d_model_, query_width_, key_width_;
  int32_t heads_, group_, reach_;
  double dropout_;
};

SelfAttention::SelfAttention(const ModelPlan& plan, int32_t sublayer)
    : sublayer_(sublayer),
      stack_(plan.sublayers[sublayer].stack),
      products_(plan.ParameterOf(sublayer, ParameterRole::kGateWeight) < 0 ? 3 : 4),
      qkv_weight_(plan.ParameterOf(sublayer, ParameterRole::kQueryWeight)),
      qkv_bias_(plan.ParameterOf(sublayer, ParameterRole::kQueryBias)),
      output_weight_(plan.ParameterOf(sublayer, ParameterRole::kOutputWeight)),
      output_bias_(plan.ParameterOf(sublayer, ParameterRole::kOutputBias)),
      head_scale_(plan.ParameterOf(sublayer, ParameterRole::kHeadScale)),
      adds_output_bias_(plan.ParameterOf(sublayer, ParameterRole::kOutputNormScale) >= 0),
      shift_(plan, sublayer, ParameterRole::kQueryShift),
      head_norms_(plan, sublayer),
      inner_(plan, sublayer, ParameterRole::kInnerNormScale),
      storage_(plan.compute_storage),
      d_model_(plan.options.d_model),
      query_width_(plan.options.query_width()),
      key_width_(plan.options.key_width()),
      heads_(plan.options.heads),
      group_(plan.options.heads / plan.options.kv_heads()),
      reach_(plan.Reach(sublayer)),
      dropout_(plan.options.attention_dropout) {}

template <typename Byte>
SelfAttention::Saved<Byte> SelfAttention::Views(Byte* saved, Byte* saved_input, int64_t rows) const {
  SavedTensors kept(saved);
  Saved<Byte> s;
  s.gated = kept.Take(storage_, rows, query_width_);
  if (shift_.present()) s.shifted = kept.Take(storage_, rows, d_model_);
  if (head_scale_ >= 0) s.scaled = kept.Take(storage_, rows, query_width_);
  if (inner_.present()) s.normed = kept.Take(storage_, rows, query_width_);
  SavedTensors input = kept.Behind(saved_input);
  s.qkv = input.Take(storage_, rows, QkvWidth());
  s.attended = products_ == 4 ? input.Take(storage_, rows, query_width_) : s.gated;
  s.log_sum_exp = input.TakeFloats(rows, heads_);
  if (inner_.present()) s.normed_statistics = input.TakeFloats(rows, 2).data;
  s.bytes = {.kept = kept.bytes(), .input = input.bytes()};
  return s;
}

AttentionShape SelfAttention::ShapeOf(const SublayerContext& context) const {
  AttentionShape shape{.query_offsets = context.offsets(stack_),
                       .key_offsets = context.offsets(stack_),
                       .heads = heads_,
                       .group = group_,
                       .causal = stack_ == Stack::kDecoder,
                       .reach = reach_,
                       .rotary = context.workspace.rotary().Of(reach_)};
  if (context.device_batch != nullptr) {
    shape.device_tiles =
        stack_ == Stack::kEncoder ? context.device_batch->source_self : context.device_batch->target_self;
  }
  return shape;
}

void SelfAttention::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  const ParameterStore& parameters = context.parameters;
  const Saved<std::byte> s = Views(tensors.saved, tensors.saved_input, tensors.x.rows);
  LinearForward(context.stream, {.x = shift_.Forward(context, tensors.x, s.shifted),
                                 .weight = parameters.ProductWeight(qkv_weight_, products_),
                                 .bias = parameters.ProductBias(qkv_bias_, products_),
                                 .y = s.qkv});
  const auto [q, k] = head_norms_.Forward(context, QueriesAndKeys(s.qkv));
  AttentionForward(context.stream, {.shape = ShapeOf(context),
                                    .q = q,
                                    .k = k,
                                    .v = s.qkv.Columns(query_width_ + key_width_, key_width_),
                                    .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kAttention),
                                    .output = s.attended,
                                    .log_sum_exp = s.log_sum_exp,
                                    .scratch = context.workspace.attention_scratch()});
  ForwardOutput(context, s, tensors.y);
}

void SelfAttention::ForwardOutput(const SublayerContext& context, const Saved<std::byte>& s, AnyMatrix y) const {
  const ParameterStore& parameters = context.parameters;
  if (products_ == 4) {
    GluForward(context.stream, {.value = s.attended, .gate = s.qkv.Columns(GatePlace(), query_width_), .y = s.gated});
  }
  if (head_scale_ >= 0) {
    HeadScaleForward(context.stream, {.x = s.gated, .gain = parameters.WeightVector(head_scale_), .y = s.scaled});
  }
  if (inner_.present()) inner_.Forward(context, s.Scaled(), s.normed, s.normed_statistics);
  LinearForwardArgs product{.x = s.Normed(), .weight = parameters.ProductWeight(output_weight_), .y = y};
  if (adds_output_bias_) product.bias = parameters.ProductBias(output_bias_);
  LinearForward(context.stream, product);
}

void SelfAttention::BackwardInput(const SublayerContext& context, const PartTensors& tensors, bool accumulate) const {
  const int64_t rows = tensors.d_y.rows;
  const Saved<const std::byte> s = Views<const std::byte>(tensors.saved, tensors.saved_input, rows);
  const AnyMatrix d_qkv = PendingGradient(tensors.pending, rows);
  const AnyMatrix d_attended = context.workspace.attended_gradient(rows);
  BackwardOutput(context, s, tensors.d_y, d_attended, d_qkv);
  const AnyMatrix d_q = d_qkv.Columns(0, query_width_), d_k = d_qkv.Columns(query_width_, key_width_);
  const auto [q, k] = head_norms_.Forward(context, QueriesAndKeys(s.qkv));
  AttentionBackward(context.stream, {.shape = ShapeOf(context),
                                     .q = q,
                                     .k = k,
                                     .v = s.qkv.Columns(query_width_ + key_width_, key_width_),
                                     .log_sum_exp = s.log_sum_exp,
                                     .d_output = d_attended,
                                     .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kAttention),
                                     .d_q = d_q,
                                     .d_k = d_k,
                                     .d_v = d_qkv.Columns(query_width_ + key_width_, key_width_),
                                     .scratch = context.workspace.attention_scratch()});
  head_norms_.Backward(context, QueriesAndKeys(s.qkv), d_q, d_k);
  shift_.BackwardInput(context, {.dy = PendingGradient(tensors.pending, rows),
                                 .weight = context.parameters.ProductWeight(qkv_weight_, products_),
                                 .accumulate = accumulate,
                                 .dx = tensors.d_x});
}

void SelfAttention::BackwardOutput(const SublayerContext& context, const Saved<const std::byte>& s, ConstAnyMatrix d_y,
                                   AnyMatrix d_attended, AnyMatrix d_qkv) const {
  const ParameterStore& parameters = context.parameters;
  LinearBackwardInput(context.stream,
                      {.dy = d_y, .weight = parameters.ProductWeight(output_weight_), .dx = d_attended});
  if (inner_.present()) inner_.Backward(context, s.Scaled(), s.normed_statistics, d_attended, d_attended);
  if (head_scale_ >= 0) {
    HeadScaleBackward(context.stream, {.dy = d_attended,
                                       .x = s.gated,
                                       .gain = parameters.WeightVector(head_scale_),
                                       .dx = d_attended,
                                       .d_gain = parameters.GradientVector(head_scale_),
                                       .partials = context.workspace.norm_partials()});
  }
  if (products_ == 3) return;
  GluBackward(context.stream, {.dy = d_attended,
                               .value = s.attended,
                               .gate = s.qkv.Columns(GatePlace(), query_width_),
                               .d_value = d_attended,
                               .d_gate = d_qkv.Columns(GatePlace(), query_width_)});
}

void SelfAttention::BackwardWeight(const SublayerContext& context, const PartTensors& tensors) const {
  const ParameterStore& parameters = context.parameters;
  const int64_t rows = tensors.d_y.rows;
  const Saved<const std::byte> s = Views<const std::byte>(tensors.saved, tensors.saved_input, rows);
  LinearBackwardWeightArgs output{
      .dy = tensors.d_y, .x = s.Normed(), .d_weight = parameters.Gradient(output_weight_), .batch = context.gradients};
  if (adds_output_bias_) output.d_bias = parameters.GradientVector(output_bias_);
  LinearBackwardWeight(context.stream, output);
  LinearBackwardWeight(context.stream, {.dy = PendingGradient(tensors.pending, rows),
                                        .x = shift_.Read(tensors.x, s.shifted),
                                        .d_weight = parameters.FusedGradient(qkv_weight_, products_),
                                        .d_bias = parameters.FusedGradientVector(qkv_bias_, products_),
                                        .batch = context.gradients});
}

}  // namespace

std::unique_ptr<Branch> MakeSelfAttention(const ModelPlan& plan, int32_t sublayer) {
  return std::make_unique<SelfAttention>(plan, sublayer);
}

}  // namespace hadal

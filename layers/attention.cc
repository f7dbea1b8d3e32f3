// Self- and cross-attention: y = Concat_h(softmax(q_h·k_gᵀ/sqrt(D))·v_g)·W_oᵀ, g the head of keys of head h.
//
//   self    q|k|v = x·W_qkvᵀ + b (one product); causal in the decoder
//   cross   q = x·W_qᵀ + b_q from the residual stream, k|v = m·W_kvᵀ + b_kv (one product) from the encoder's output m,
//           which is not normalised again
// Some blocks norm q and k first (HeadNorms, branch_parts.h). Rotary positions turn q and k inside attention's kernels.
// R-Fixup subtracts a scalar from x before W_q (branch_parts.h). What some methods put around W_o:
//
//   y = inner( g ⊙ σ(u) ⊙ c )·W_oᵀ              c [R, Q], the heads side by side
//     u      x·W_gᵀ + b_g [R, Q], of the same product    gated attention (arXiv 2505.06708; Megatron)
//     g      one learned scalar a head          NormFormer (Shleifer et al. 2021; before W_o, as in the paper)
//     inner  LayerNorm over Q                   Sub-LN (Magneto, arXiv 2210.06423 section 2)
// Rotary positions, windows, u, g and `inner` are self-attention's alone.
// The residual connection's kernel adds b_o; where a norm follows (branch_parts.cc), the product does.
// Source: Vaswani et al. 2017 section 3.2.
// Shapes: x, y [R, d], m [Rs, d], Rs source rows; H heads of D columns, Q = H·D; K heads of keys, q|k|v|u
// [R, Q + 2·K·D + Q], k|v of m [Rs, 2·K·D]. Numerics, order of accumulation, threads: chunk_part.h,
// kernels/attention.h. The encoder output's gradient is added up in fp32, by the cross-attentions in descending
// sublayer order.
// Saved: σ(u) ⊙ c [R, Q]. Then, each only where it exists: the shifted input [R, d]; g ⊙ σ(u) ⊙ c [R, Q]; output [R, Q]
// of `inner`. Only for the input half: q|k|v|u or q, k|v of m, log-sum-exp [R, H]; c, if there is a gate; statistics
// [2R] of `inner`.
// Pending: the gradients of q|k|v|u or q, and of k|v of m.
#include "kernels/attention.h"

#include "kernels/activation.h"
#include "kernels/head_norm.h"
#include "kernels/linear.h"
#include "layers/branch_parts.h"
#include "layers/chunk_part.h"

namespace hadal {
namespace {

class Attention final : public Branch {
 public:
  Attention(const ModelPlan& plan, int32_t sublayer);

  SavedBytes BytesToSave(const ActivationCapacity& capacity) const override {
    return Views(nullptr, nullptr, capacity.rows(stack_), capacity.source_rows).bytes;
  }
  int64_t PendingBytes(const ActivationCapacity& capacity) const override {
    return PendingViews(nullptr, capacity.rows(stack_), capacity.source_rows).bytes;
  }
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, bool accumulate) const override;
  void BackwardWeight(const SublayerContext& context, const PartTensors& tensors) const override;
  int32_t output_bias() const override { return added_bias_ >= 0 ? -1 : output_bias_; }

 private:
  // The results of the products that attention reads, or their gradients.
  struct Products {
    AnyMatrix of_x;       // q|k|v|u, or q
    AnyMatrix of_memory;  // k|v of m; empty in self-attention
  };
  struct Saved {
    Products products;
    AnyMatrix attended, gated;  // gated: `attended` without a gate
    Matrix log_sum_exp;
    AnyMatrix shifted, scaled, normed;  // empty where they do not exist
    float* normed_statistics = nullptr;
    SavedBytes bytes;

    // What the inner norm reads, and what W_o reads.
    AnyMatrix Scaled() const { return scaled.empty() ? gated : scaled; }
    AnyMatrix Normed() const { return normed.empty() ? Scaled() : normed; }
  };
  struct Pending {
    Products gradients;
    int64_t bytes = 0;
  };
  // `source_rows`: not read in self-attention.
  Saved Views(std::byte* saved, std::byte* saved_input, int64_t rows, int64_t source_rows) const;
  Pending PendingViews(std::byte* pending, int64_t rows, int64_t source_rows) const;
  Products TakeProducts(SavedTensors& tensors, int64_t rows, int64_t source_rows) const;
  bool cross() const { return products_ == 1; }
  bool has_gate() const { return products_ == 4; }
  AnyMatrix Query(const Products& p) const { return p.of_x.Columns(0, query_width_); }
  AnyMatrix Key(const Products& p) const { return KeyValue(p).Columns(0, key_width_); }
  AnyMatrix Value(const Products& p) const { return KeyValue(p).Columns(key_width_, key_width_); }
  AnyMatrix KeyValue(const Products& p) const {
    return cross() ? p.of_memory : p.of_x.Columns(query_width_, 2 * key_width_);
  }
  AnyMatrix Gate(const Products& p) const { return p.of_x.Columns(query_width_ + 2 * key_width_, query_width_); }
  AttentionShape ShapeOf(const SublayerContext& context) const;
  // y from the heads' outputs, and the heads' gradient and the gate's from d_y.
  void ForwardOutput(const SublayerContext& context, const Saved& s, AnyMatrix y) const;
  void BackwardOutput(const SublayerContext& context, const Saved& s, ConstAnyMatrix d_y, AnyMatrix d_attended,
                      const Products& gradients) const;

  int32_t sublayer_;
  Stack stack_;
  int32_t products_;                                  // of x. 1: q; 3: q, k, v; 4: and u
  int32_t query_weight_, query_bias_;                 // parameters; k, v, u of x follow
  int32_t key_value_weight_, key_value_bias_;         // of m
  int32_t output_weight_, output_bias_, head_scale_;  // W_o, b_o, g
  int32_t added_bias_;                                // b_o, where this branch adds it; -1: it does not
  InputShift shift_;
  HeadNorms head_norms_;
  PlainNorm inner_;
  Storage storage_;
  int64_t d_model_, query_width_, key_width_;
  int32_t heads_, group_, reach_;
  double dropout_;
};

int32_t ProductsOf(const ModelPlan& plan, int32_t sublayer) {
  if (plan.sublayers[sublayer].kind == SublayerKind::kCrossAttention) return 1;
  return plan.ParameterOf(sublayer, ParameterRole::kGateWeight) < 0 ? 3 : 4;
}

Attention::Attention(const ModelPlan& plan, int32_t sublayer)
    : sublayer_(sublayer),
      stack_(plan.sublayers[sublayer].stack),
      products_(ProductsOf(plan, sublayer)),
      query_weight_(plan.ParameterOf(sublayer, ParameterRole::kQueryWeight)),
      query_bias_(plan.ParameterOf(sublayer, ParameterRole::kQueryBias)),
      key_value_weight_(plan.ParameterOf(sublayer, ParameterRole::kKeyWeight)),
      key_value_bias_(plan.ParameterOf(sublayer, ParameterRole::kKeyBias)),
      output_weight_(plan.ParameterOf(sublayer, ParameterRole::kOutputWeight)),
      output_bias_(plan.ParameterOf(sublayer, ParameterRole::kOutputBias)),
      head_scale_(plan.ParameterOf(sublayer, ParameterRole::kHeadScale)),
      added_bias_(plan.ParameterOf(sublayer, ParameterRole::kOutputNormScale) < 0 ? -1 : output_bias_),
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

Attention::Products Attention::TakeProducts(SavedTensors& tensors, int64_t rows, int64_t source_rows) const {
  if (!cross()) {
    const int64_t gate_width = has_gate() ? query_width_ : 0;
    return {.of_x = tensors.Take(storage_, rows, query_width_ + 2 * key_width_ + gate_width)};
  }
  Products p{.of_x = tensors.Take(storage_, rows, query_width_)};
  p.of_memory = tensors.Take(storage_, source_rows, 2 * key_width_);
  return p;
}

Attention::Saved Attention::Views(std::byte* saved, std::byte* saved_input, int64_t rows, int64_t source_rows) const {
  SavedTensors kept(saved);
  Saved s;
  s.gated = kept.Take(storage_, rows, query_width_);
  if (shift_.present()) s.shifted = kept.Take(storage_, rows, d_model_);
  if (head_scale_ >= 0) s.scaled = kept.Take(storage_, rows, query_width_);
  if (inner_.present()) s.normed = kept.Take(storage_, rows, query_width_);
  SavedTensors input = kept.Behind(saved_input);
  s.products = TakeProducts(input, rows, source_rows);
  s.attended = has_gate() ? input.Take(storage_, rows, query_width_) : s.gated;
  s.log_sum_exp = input.TakeFloats(rows, heads_);
  if (inner_.present()) s.normed_statistics = input.TakeFloats(rows, 2).data;
  s.bytes = {.kept = kept.bytes(), .input = input.bytes()};
  return s;
}

Attention::Pending Attention::PendingViews(std::byte* pending, int64_t rows, int64_t source_rows) const {
  SavedTensors tensors(pending);
  Pending p{.gradients = TakeProducts(tensors, rows, source_rows)};
  p.bytes = tensors.bytes();
  return p;
}

AttentionShape Attention::ShapeOf(const SublayerContext& context) const {
  AttentionShape shape{.query_offsets = context.offsets(stack_),
                       .key_offsets = context.offsets(cross() ? Stack::kEncoder : stack_),
                       .heads = heads_,
                       .group = group_,
                       .causal = !cross() && stack_ == Stack::kDecoder,
                       .reach = reach_};
  if (!cross()) shape.rotary = context.workspace.rotary().Of(reach_);
  if (const DeviceBatch* batch = context.device_batch; batch != nullptr) {
    shape.device_tiles = cross() ? batch->cross : stack_ == Stack::kEncoder ? batch->source_self : batch->target_self;
  }
  return shape;
}

void Attention::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  const ParameterStore& parameters = context.parameters;
  const Saved s = Views(tensors.saved, tensors.saved_input, tensors.x.rows, tensors.encoder_output.rows);
  LinearForward(context.stream, {.x = shift_.Forward(context, tensors.x, s.shifted),
                                 .weight = parameters.ProductWeight(query_weight_, products_),
                                 .bias = parameters.ProductBias(query_bias_, products_),
                                 .y = s.products.of_x});
  if (cross()) {
    LinearForward(context.stream, {.x = tensors.encoder_output,
                                   .weight = parameters.ProductWeight(key_value_weight_, 2),
                                   .bias = parameters.ProductBias(key_value_bias_, 2),
                                   .y = s.products.of_memory});
  }
  const auto [q, k] = head_norms_.Forward(context, {Query(s.products), Key(s.products)});
  AttentionForward(context.stream, {.shape = ShapeOf(context),
                                    .q = q,
                                    .k = k,
                                    .v = Value(s.products),
                                    .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kAttention),
                                    .output = s.attended,
                                    .log_sum_exp = s.log_sum_exp,
                                    .scratch = context.workspace.attention_scratch()});
  ForwardOutput(context, s, tensors.y);
}

void Attention::ForwardOutput(const SublayerContext& context, const Saved& s, AnyMatrix y) const {
  const ParameterStore& parameters = context.parameters;
  if (has_gate()) GluForward(context.stream, {.value = s.attended, .gate = Gate(s.products), .y = s.gated});
  if (head_scale_ >= 0) {
    HeadScaleForward(context.stream, {.x = s.gated, .gain = parameters.WeightVector(head_scale_), .y = s.scaled});
  }
  if (inner_.present()) inner_.Forward(context, s.Scaled(), s.normed, s.normed_statistics);
  LinearForward(context.stream, {.x = s.Normed(),
                                 .weight = parameters.ProductWeight(output_weight_),
                                 .bias = parameters.ProductBias(added_bias_),
                                 .y = y});
}

void Attention::BackwardInput(const SublayerContext& context, const PartTensors& tensors, bool accumulate) const {
  const int64_t rows = tensors.d_y.rows, source_rows = tensors.encoder_output.rows;
  const Saved s = Views(tensors.saved, tensors.saved_input, rows, source_rows);
  const Products d = PendingViews(tensors.pending, rows, source_rows).gradients;
  const AnyMatrix d_attended = context.workspace.attended_gradient(rows);
  BackwardOutput(context, s, tensors.d_y, d_attended, d);
  const HeadNorms::Pair raw = {Query(s.products), Key(s.products)};
  const auto [q, k] = head_norms_.Forward(context, raw);
  AttentionBackward(context.stream, {.shape = ShapeOf(context),
                                     .q = q,
                                     .k = k,
                                     .v = Value(s.products),
                                     .log_sum_exp = s.log_sum_exp,
                                     .d_output = d_attended,
                                     .dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kAttention),
                                     .d_q = Query(d),
                                     .d_k = Key(d),
                                     .d_v = Value(d),
                                     .scratch = context.workspace.attention_scratch()});
  head_norms_.Backward(context, raw, Query(d), Key(d));
  shift_.BackwardInput(context, {.dy = d.of_x,
                                 .weight = context.parameters.ProductWeight(query_weight_, products_),
                                 .accumulate = accumulate,
                                 .dx = tensors.d_x});
  if (!cross()) return;
  LinearBackwardInput(context.stream, {.dy = d.of_memory,
                                       .weight = context.parameters.ProductWeight(key_value_weight_, 2),
                                       .accumulate = true,
                                       .dx = tensors.d_encoder_output});
}

void Attention::BackwardOutput(const SublayerContext& context, const Saved& s, ConstAnyMatrix d_y, AnyMatrix d_attended,
                               const Products& gradients) const {
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
  if (!has_gate()) return;
  GluBackward(context.stream, {.dy = d_attended,
                               .value = s.attended,
                               .gate = Gate(s.products),
                               .d_value = d_attended,
                               .d_gate = Gate(gradients)});
}

void Attention::BackwardWeight(const SublayerContext& context, const PartTensors& tensors) const {
  const ParameterStore& parameters = context.parameters;
  const int64_t rows = tensors.d_y.rows, source_rows = tensors.encoder_output.rows;
  const Saved s = Views(tensors.saved, tensors.saved_input, rows, source_rows);
  const Products d = PendingViews(tensors.pending, rows, source_rows).gradients;
  LinearBackwardWeight(context.stream, {.dy = tensors.d_y,
                                        .x = s.Normed(),
                                        .d_weight = parameters.Gradient(output_weight_),
                                        .d_bias = parameters.GradientVector(added_bias_),
                                        .batch = context.gradients});
  LinearBackwardWeight(context.stream, {.dy = d.of_x,
                                        .x = shift_.Read(tensors.x, s.shifted),
                                        .d_weight = parameters.FusedGradient(query_weight_, products_),
                                        .d_bias = parameters.FusedGradientVector(query_bias_, products_),
                                        .batch = context.gradients});
  if (!cross()) return;
  LinearBackwardWeight(context.stream, {.dy = d.of_memory,
                                        .x = tensors.encoder_output,
                                        .d_weight = parameters.FusedGradient(key_value_weight_, 2),
                                        .d_bias = parameters.FusedGradientVector(key_value_bias_, 2),
                                        .batch = context.gradients});
}

}  // namespace

std::unique_ptr<Branch> MakeAttention(const ModelPlan& plan, int32_t sublayer) {
  return std::make_unique<Attention>(plan, sublayer);
}

}  // namespace hadal

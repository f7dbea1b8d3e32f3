#include "layers/branch_parts.h"

#include <utility>

#include "kernels/head_norm.h"
#include "kernels/residual_norm.h"
#include "kernels/shift_scale.h"

namespace hadal {

void PlainNorm::Forward(const Stream& stream, const ParameterStore& parameters, ConstAnyMatrix x, AnyMatrix normed,
                        float* statistics) const {
  ResidualNormForward(stream, {.residual = x,
                               .scale = parameters.WeightVector(scale_),
                               .shift = parameters.WeightVector(parameters.plan().NormShift(scale_)),
                               .form = parameters.plan().norm_form(),
                               .norm_gain = gain_,
                               .normed = normed,
                               .mean = {statistics, x.rows},
                               .rstd = {statistics + x.rows, x.rows}});
}

void PlainNorm::Backward(const SublayerContext& context, ConstAnyMatrix x, const float* statistics,
                         ConstAnyMatrix d_normed, AnyMatrix d_x, bool accumulate) const {
  ResidualNormBackward(context.stream, {.d_normed = d_normed,
                                        .d_sum = accumulate ? ConstAnyMatrix(d_x) : ConstAnyMatrix(),
                                        .sum = x,
                                        .mean = {statistics, x.rows},
                                        .rstd = {statistics + x.rows, x.rows},
                                        .scale = context.parameters.WeightVector(scale_),
                                        .form = context.plan().norm_form(),
                                        .norm_gain = gain_,
                                        .d_residual = d_x,
                                        .d_scale = context.parameters.GradientVector(scale_),
                                        .d_shift = context.parameters.GradientVector(context.plan().NormShift(scale_)),
                                        .partials = context.workspace.norm_partials(),
                                        .batch = context.gradients});
}

HeadNorms::Pair HeadNorms::Forward(const SublayerContext& context, const Pair& raw) const {
  if (query_scale_ < 0) return raw;
  const AnyMatrix q = context.workspace.normed_queries(raw.q.rows), k = context.workspace.normed_keys(raw.k.rows);
  Norm(context.stream, context.parameters, query_scale_, raw.q, q);
  Norm(context.stream, context.parameters, key_scale_, raw.k, k);
  return {q, k};
}

void HeadNorms::Norm(const Stream& stream, const ParameterStore& parameters, int32_t scale, ConstAnyMatrix x,
                     AnyMatrix y) {
  if (scale < 0) return;
  HeadNormForward(stream, {.x = x,
                           .scale = parameters.WeightVector(scale),
                           .shift = parameters.WeightVector(parameters.plan().NormShift(scale)),
                           .form = parameters.plan().norm_form(),
                           .y = y});
}

void HeadNorms::Backward(const SublayerContext& context, const Pair& raw, AnyMatrix d_q, AnyMatrix d_k) const {
  if (query_scale_ < 0) return;
  const auto backward = [&](int32_t scale, ConstAnyMatrix x, AnyMatrix gradient) {
    HeadNormBackward(context.stream, {.dy = gradient,
                                      .x = x,
                                      .scale = context.parameters.WeightVector(scale),
                                      .form = context.plan().norm_form(),
                                      .dx = gradient,
                                      .d_scale = context.parameters.GradientVector(scale),
                                      .d_shift = context.parameters.GradientVector(context.plan().NormShift(scale)),
                                      .partials = context.workspace.norm_partials()});
  };
  backward(query_scale_, raw.q, d_q);
  backward(key_scale_, raw.k, d_k);
}

ConstAnyMatrix InputShift::Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix shifted) const {
  if (!present()) return x;
  ShiftScaleForward(context.stream, {.x = x, .shift = context.parameters.WeightVector(shift_), .y = shifted});
  return shifted;
}

void InputShift::BackwardInput(const SublayerContext& context, const LinearBackwardInputArgs& product) const {
  if (!present()) return LinearBackwardInput(context.stream, product);
  LinearBackwardInputArgs alone = product;
  alone.accumulate = false;
  if (product.accumulate) alone.dx = context.workspace.branch_input_gradient(product.dx.rows);
  LinearBackwardInput(context.stream, alone);
  ShiftScaleBackward(context.stream, {.dy = alone.dx,
                                      .shift = context.parameters.WeightVector(shift_),
                                      .accumulate = product.accumulate,
                                      .dx = product.dx,
                                      .d_shift = context.parameters.GradientVector(shift_),
                                      .partials = context.workspace.norm_partials()});
}

ConstAnyVector MakeHiddenBias(const Stream& stream, const ParameterStore& parameters, int32_t bias, int32_t shift,
                              AnyMatrix row) {
  ConstAnyMatrix before = row;
  if (bias >= 0) {
    before = ConstMatrix(parameters.WeightVector(bias).data, 1, row.columns);
  } else {
    stream.Clear(row.data, row.bytes());
  }
  ShiftScaleForward(stream, {.x = before, .shift = parameters.WeightVector(shift), .y = row});
  ConstAnyVector made;
  made.data = row.data;
  made.size = row.columns;
  made.storage = row.storage;
  return made;
}

// NormedBranch: a branch between two LayerNorms over d, each of which may be absent:
//
//   y = post(F(pre(x)) + b)      b: the branch's last bias, which F adds itself where there is a `post`
//     pre   Keel (arXiv 2601.19895), beside the norm of the method
//     post  Peri-LN (arXiv 2502.02732); NormFormer's self-attention (Shleifer et al. 2021)
// Each norm is a trip over memory of its own: unlike the method's norm it is not part of the residual connection's
// kernel.
// Saved: pre(x) [R, d], which F's weight half reads; only for the input half: statistics [2R] of `pre`, input [R, d]
// and statistics [2R] of `post`; then what F saves. Pending: the gradient of the input of `post` [R, d], then F's.
// Numerics, threads: chunk_part.h.
namespace {

class NormedBranch final : public Branch {
 public:
  NormedBranch(const ModelPlan& plan, int32_t sublayer, std::unique_ptr<Branch> inner)
      : inner_(std::move(inner)),
        stack_(plan.sublayers[sublayer].stack),
        pre_(plan, sublayer, ParameterRole::kInputNormScale),
        post_(plan, sublayer, ParameterRole::kOutputNormScale),
        storage_(plan.compute_storage),
        d_model_(plan.options.d_model) {}

  SavedBytes BytesToSave(const ActivationCapacity& capacity) const override {
    const SavedBytes own = Views(nullptr, nullptr, capacity.rows(stack_)).bytes;
    const SavedBytes inner = inner_->BytesToSave(capacity);
    return {.kept = own.kept + inner.kept, .input = own.input + inner.input};
  }
  int64_t PendingBytes(const ActivationCapacity& capacity) const override {
    return PendingViews(nullptr, capacity.rows(stack_)).bytes + inner_->PendingBytes(capacity);
  }
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, bool accumulate) const override;
  void BackwardWeight(const SublayerContext& context, const PartTensors& tensors) const override;
  int32_t output_bias() const override { return post_.present() ? -1 : inner_->output_bias(); }

 private:
  struct Saved {
    AnyMatrix normed, projected;  // empty where they do not exist
    float *normed_statistics = nullptr, *projected_statistics = nullptr;
    SavedBytes bytes;
  };
  struct Pending {
    AnyMatrix d_projected;
    int64_t bytes = 0;
  };
  Saved Views(std::byte* saved, std::byte* saved_input, int64_t rows) const;
  Pending PendingViews(std::byte* pending, int64_t rows) const;
  // The tensors of F: memory behind this branch's, and what its norms give.
  PartTensors Inner(const PartTensors& tensors, int64_t rows) const;

  std::unique_ptr<Branch> inner_;
  Stack stack_;
  PlainNorm pre_, post_;
  Storage storage_;
  int64_t d_model_;
};

NormedBranch::Saved NormedBranch::Views(std::byte* saved, std::byte* saved_input, int64_t rows) const {
  SavedTensors kept(saved);
  Saved s;
  if (pre_.present()) s.normed = kept.Take(storage_, rows, d_model_);
  SavedTensors input = kept.Behind(saved_input);
  if (pre_.present()) s.normed_statistics = input.TakeFloats(rows, 2).data;
  if (post_.present()) {
    s.projected = input.Take(storage_, rows, d_model_);
    s.projected_statistics = input.TakeFloats(rows, 2).data;
  }
  s.bytes = {.kept = kept.bytes(), .input = input.bytes()};
  return s;
}

NormedBranch::Pending NormedBranch::PendingViews(std::byte* pending, int64_t rows) const {
  SavedTensors tensors(pending);
  Pending p;
  if (post_.present()) p.d_projected = tensors.Take(storage_, rows, d_model_);
  p.bytes = tensors.bytes();
  return p;
}

PartTensors NormedBranch::Inner(const PartTensors& tensors, int64_t rows) const {
  const Saved s = Views(tensors.saved, tensors.saved_input, rows);
  const Pending p = PendingViews(tensors.pending, rows);
  PartTensors inner = tensors;
  if (pre_.present()) inner.x = s.normed;
  if (post_.present()) inner.d_y = p.d_projected;
  inner.saved += s.bytes.kept;
  if (inner.saved_input != nullptr) {
    inner.saved_input += s.bytes.input;
  } else {
    inner.saved += s.bytes.input;
  }
  if (inner.pending != nullptr) inner.pending += p.bytes;
  return inner;
}

void NormedBranch::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  const Saved s = Views(tensors.saved, tensors.saved_input, tensors.x.rows);
  PartTensors inner = Inner(tensors, tensors.x.rows);
  if (pre_.present()) pre_.Forward(context, tensors.x, s.normed, s.normed_statistics);
  if (post_.present()) inner.y = s.projected;
  inner_->Forward(context, inner);
  if (post_.present()) post_.Forward(context, s.projected, tensors.y, s.projected_statistics);
}

void NormedBranch::BackwardInput(const SublayerContext& context, const PartTensors& tensors, bool accumulate) const {
  const int64_t rows = tensors.d_y.rows;
  const Saved s = Views(tensors.saved, tensors.saved_input, rows);
  PartTensors inner = Inner(tensors, rows);
  if (post_.present()) post_.Backward(context, s.projected, s.projected_statistics, tensors.d_y, inner.d_y);
  if (!pre_.present()) return inner_->BackwardInput(context, inner, accumulate);
  inner.d_x = context.workspace.branch_input_gradient(rows);
  inner_->BackwardInput(context, inner, /*accumulate=*/false);
  pre_.Backward(context, tensors.x, s.normed_statistics, inner.d_x, tensors.d_x, accumulate);
}

void NormedBranch::BackwardWeight(const SublayerContext& context, const PartTensors& tensors) const {
  inner_->BackwardWeight(context, Inner(tensors, tensors.d_y.rows));
}

}  // namespace

std::unique_ptr<Branch> MakeNormedBranch(const ModelPlan& plan, int32_t sublayer, std::unique_ptr<Branch> inner) {
  return std::make_unique<NormedBranch>(plan, sublayer, std::move(inner));
}

}  // namespace hadal

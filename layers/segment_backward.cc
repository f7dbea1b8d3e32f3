// Backward of a segment. segment.cc has the offsets and the forward.
#include "kernels/convert.h"
#include "kernels/residual_norm.h"
#include "kernels/shift_scale.h"
#include "layers/segment.h"
#include "runtime/profiler.h"

namespace hadal {
namespace {

const float* FloatsAt(const std::byte* saved, int64_t offset) { return reinterpret_cast<const float*>(saved + offset); }

}  // namespace

ConstAnyMatrix Segment::OutputGradient(const SublayerContext& context, AnyMatrix d_residual) const {
  if (!joints_.back().output_is_normed) return {};
  if (compute_storage_ == residual_storage_) return d_residual;
  const AnyMatrix d_normed = context.workspace.branch_input_gradient(d_residual.rows);
  Convert(context.stream, {.from = d_residual, .to = d_normed});
  return d_normed;
}

void Segment::BackwardClosing(const SublayerContext& context, const std::byte* saved, AnyMatrix d_residual) const {
  const Joint& joint = joints_.back();
  if (joint.closing_shift < 0) return;
  ShiftScaleBackward(context.stream, {.dy = d_residual,
                                      .x = ResidualAt(saved, joint.sum, d_residual.rows),
                                      .shift = context.parameters.WeightVector(joint.closing_shift),
                                      .scale = context.parameters.WeightVector(joint.closing_scale),
                                      .dx = d_residual,
                                      .d_shift = context.parameters.GradientVector(joint.closing_shift),
                                      .d_scale = context.parameters.GradientVector(joint.closing_scale),
                                      .partials = context.workspace.norm_partials()});
}

void Segment::BackwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix x, const std::byte* saved,
                            ConstAnyMatrix d_normed, ConstAnyMatrix d_sum, AnyMatrix d_residual,
                            AnyMatrix d_branch) const {
  const Joint& joint = joints_[index];
  const int64_t rows = d_residual.rows;
  ResidualNormBackwardArgs args{.d_normed = d_normed, .d_sum = d_sum, .d_residual = d_residual};
  if (index > 0) {
    const int32_t sublayer = first_ + static_cast<int32_t>(index) - 1;
    const SublayerRecord& record = context.plan().sublayers[sublayer];
    args.residual_gain = record.residual_gain;
    if (joint.omega >= 0) {
      args.residual = ResidualAfter(index - 1, x, saved);
      args.learned_residual_gain = context.parameters.WeightVector(joint.omega);
      args.d_learned_residual_gain = context.parameters.GradientVector(joint.omega);
    }
    args.branch_gain = BranchGain(record, context.scalars.update);
    args.branch_gain_place = context.branch_gain_place(sublayer);
    args.dropout = context.MakeDropout(dropout_, sublayer, RandomSite::kResidual);
    args.d_branch = d_branch;
    if (joint.skip_from >= 0) {
      args.d_skip = context.workspace.layer_input_gradient(rows);
      context.stream.Clear(args.d_skip.data, rows * d_model_ * int64_t{sizeof(float)});
      args.skip_gain = record.skip_gain;
    }
    if (const int32_t bias = branches_[index - 1]->output_bias(); bias >= 0) {
      args.bias = context.parameters.WeightVector(bias);
      args.d_bias = context.parameters.GradientVector(bias);
    }
    if (record.learned_gain >= 0) {
      args.branch = ProductAt(saved, joint.branch, rows);
      args.learned_branch_gain = context.parameters.WeightVector(record.learned_gain);
      args.d_learned_branch_gain = context.parameters.GradientVector(record.learned_gain);
    }
  }
  if (joint.norm_scale >= 0) {
    args.sum = index == 0 ? x : ResidualAt(saved, joint.sum, rows);
    args.mean = {FloatsAt(saved, joint.mean), rows};
    args.rstd = {FloatsAt(saved, joint.rstd), rows};
    args.scale = context.parameters.WeightVector(joint.norm_scale);
    args.d_scale = context.parameters.GradientVector(joint.norm_scale);
    args.d_shift = context.parameters.GradientVector(joint.norm_scale + 1);
  }
  args.partials = context.workspace.norm_partials();
  ResidualNormBackward(context.stream, args);
}

void Segment::ObserveBackwardBefore(const SublayerContext& context, size_t index, ConstAnyMatrix d_normed,
                                    ConstAnyMatrix d_residual) const {
  const int32_t closed = first_ + static_cast<int32_t>(index) - 1;
  if (!pre_norm_) {
    context.Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = closed, .values = d_residual});
    if (joints_[index].norm_scale < 0) return;
    context.Observe({.tensor = DepthTensor::kNormOutputGradient, .sublayer = closed, .values = d_normed});
  } else if (index < branches_.size()) {
    context.Observe({.tensor = DepthTensor::kNormOutputGradient, .sublayer = closed + 1, .values = d_normed});
  }
}

void Segment::ObserveBackwardAfter(const SublayerContext& context, size_t index, ConstAnyMatrix d_residual,
                                   ConstAnyMatrix d_branch) const {
  const int32_t closed = first_ + static_cast<int32_t>(index) - 1;
  const float gain = context.plan().sublayers[closed].residual_gain;
  // The kernel writes r·∂L/∂s and keeps ∂L/∂s in registers. Where Admin's vector multiplies r, ∂L/∂s cannot be
  // recovered.
  if (gain != 0 && joints_[index].omega < 0 && (pre_norm_ || joints_[index].norm_scale >= 0)) {
    context.Observe({.tensor = pre_norm_ ? DepthTensor::kOutputGradient : DepthTensor::kNormInputGradient,
                     .sublayer = closed,
                     .values = d_residual,
                     .factor = gain});
  }
  context.Observe({.tensor = DepthTensor::kBranchGradient, .sublayer = closed, .values = d_branch});
}

void Segment::Backward(const SublayerContext& context, ConstAnyMatrix x, const std::byte* saved, AnyMatrix d_residual,
                       Matrix d_history) const {
  BackwardLayers(context, Input(x, saved, d_residual.rows), saved, d_residual);
  if (combination_) {
    combination_->Backward(context, x, saved + combination_saved_, d_residual, d_history);
  }
  context.MarkComplete(first_);
}

void Segment::BackwardLayers(const SublayerContext& context, ConstAnyMatrix x, const std::byte* saved,
                             AnyMatrix d_residual) const {
  const AnyMatrix d_branch = context.workspace.branch(x.rows);
  const AnyMatrix d_input = context.workspace.branch_input_gradient(x.rows);
  BackwardClosing(context, saved, d_residual);
  const ConstAnyMatrix d_output = OutputGradient(context, d_residual);
  for (size_t i = branches_.size(); i > 0; --i) {
    const ProfilerRange range(context.stream, "sublayer", first_ + static_cast<int32_t>(i) - 1);
    const bool normed_output = joints_[i].output_is_normed;  // d_residual is the gradient of the norm's output
    const bool follows_branch = pre_norm_ && i < branches_.size();
    const ConstAnyMatrix d_normed = follows_branch          ? ConstAnyMatrix(d_input)
                                    : i == branches_.size() ? d_output
                                    : normed_output         ? ConstAnyMatrix(d_residual)
                                                            : ConstAnyMatrix();
    if (context.observer != nullptr) ObserveBackwardBefore(context, i, d_normed, d_residual);
    BackwardJoint(context, i, x, saved, d_normed, normed_output ? AnyMatrix() : d_residual, d_residual, d_branch);
    if (context.observer != nullptr) ObserveBackwardAfter(context, i, d_residual, d_branch);
    const Branch& branch = *branches_[i - 1];
    const std::byte* branch_saved = saved + branch_saved_[i - 1];
    branch.BackwardInput(context, d_branch, branch_saved, /*accumulate=*/!pre_norm_, pre_norm_ ? d_input : d_residual);
    if (skipped_from_[i - 1]) {  // d_residual += the gradient through the skip
      ResidualNormForward(
          context.stream,
          {.residual = d_residual, .branch = context.workspace.layer_input_gradient(x.rows), .sum = d_residual});
    }
    branch.BackwardWeight(context, BranchInput(i - 1, x, saved), d_branch, branch_saved);
    // Sublayer i − 1 is not complete yet: its norm's backward may be in the joint before it.
    context.MarkComplete(first_ + static_cast<int32_t>(i));
    context.Progress();
  }
  if (pre_norm_) {
    if (context.observer != nullptr) ObserveBackwardBefore(context, 0, d_input, d_residual);
    BackwardJoint(context, 0, x, saved, d_input, d_residual, d_residual, {});
  }
}

}  // namespace hadal

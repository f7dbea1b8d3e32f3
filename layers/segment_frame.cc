#include "layers/segment_frame.h"

#include "kernels/convert.h"
#include "kernels/residual_norm.h"
#include "runtime/check.h"
#include "runtime/profiler.h"

namespace hadal {

SegmentFrame::SegmentFrame(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity)
    : first_(first),
      capacity_(capacity),
      stack_(plan.sublayers[first].stack),
      storage_(plan.compute_storage),
      d_model_(plan.options.d_model),
      dropout_(plan.options.dropout) {
  HADAL_CHECK_LT(first, last);
  for (int32_t s = first; s < last; ++s) {
    PlacedBranch& placed = branches_.emplace_back(PlacedBranch{.branch = MakeBranch(plan, s)});
    const SavedBytes bytes = placed.branch->BytesToSave(capacity);
    placed.saved = {.kept = kept_.Reserve(bytes.kept), .input = input_.Reserve(bytes.input)};
  }
  Reserve(pending_, d_model_, storage_);
}

SegmentFrame::Tensors SegmentFrame::With(const SublayerContext& context, const PartTensors& tensors) const {
  Tensors t{tensors, context.rows(stack_)};
  if (t.saved_input == nullptr) t.saved_input = t.saved + kept_.bytes();
  return t;
}

PartTensors SegmentFrame::BranchTensors(const SublayerContext& context, size_t index, const Tensors& t) const {
  const SavedBytes& saved = branches_[index].saved;
  PartTensors tensors{.x = BranchInput(index, t),
                      .encoder_output = t.encoder_output,
                      .saved = t.saved + saved.kept,
                      .saved_input = t.saved_input + saved.input};
  if (t.pending == nullptr) return tensors;
  tensors.d_y = BranchGradient(t);
  tensors.d_x = context.workspace.branch_input_gradient(t.rows);
  tensors.d_encoder_output = t.d_encoder_output;
  tensors.pending = t.pending + pending_.bytes();
  return tensors;
}

void SegmentFrame::BackwardWeight(const SublayerContext& context, const PartTensors& tensors, int32_t step) const {
  const ProfilerRange range(context.stream, "sublayer", first_ + step);
  const Tensors t = With(context, tensors);
  branches_[step].branch->BackwardWeight(context, BranchTensors(context, step, t));
  BackwardWeightBeside(context, t, step);
  context.Progress();
}

ReadingSegment::ReadingSegment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity)
    : SegmentFrame(plan, first, last, capacity) {
  for (int32_t s = first; s < last; ++s) {
    PlacedNorm& placed = norms_.emplace_back();
    placed.norm = PlainNorm(plan.ParameterOf(s, ParameterRole::kNormScale), plan.sublayers[s].norm_gain);
    placed.normed = Reserve(kept_, d_model_, storage_);
    placed.statistics = Reserve(input_, 2);
  }
}

void ReadingSegment::ForwardBranch(const SublayerContext& context, size_t index, const Tensors& t, ConstMatrix u,
                                   ConstMatrix residual, Matrix sum) const {
  const int32_t sublayer = SublayerAt(index);
  const PlacedNorm& n = norms_[index];
  const AnyMatrix normed = ProductAt(t.saved, n.normed, t.rows);
  if (n.norm.present()) {
    context.Observe({.tensor = DepthTensor::kNormInput, .sublayer = sublayer, .values = u});
    n.norm.Forward(context.stream, context.parameters, u, normed,
                   FloatsAt(t.saved_input, n.statistics, t.rows, 2).data);
  } else {
    Convert(context.stream, {.from = u, .to = normed});
  }
  PartTensors of_branch = BranchTensors(context, index, t);
  of_branch.y = context.workspace.branch(t.rows);
  branches_[index].branch->Forward(context, of_branch);
  context.Observe({.tensor = DepthTensor::kBranch, .sublayer = sublayer, .values = of_branch.y});
  ResidualNormForwardArgs args{.residual = residual.empty() ? u : residual, .branch = of_branch.y};
  SetBranch(context, index, t, args);
  args.residual_gain = residual.empty() ? 0 : 1;
  args.sum = sum;
  ResidualNormForward(context.stream, args);
}

void ReadingSegment::BackwardBranch(const SublayerContext& context, size_t index, const Tensors& t, ConstMatrix u,
                                    float residual_gain, Matrix d_sum, Matrix du) const {
  const int32_t sublayer = SublayerAt(index);
  ResidualNormBackwardArgs args{.d_sum = d_sum, .d_residual = d_sum};
  SetBranch(context, index, t, args);
  args.residual_gain = residual_gain;
  args.partials = context.workspace.norm_partials();
  args.batch = context.gradients;
  ResidualNormBackward(context.stream, args);
  context.Observe({.tensor = DepthTensor::kBranchGradient, .sublayer = sublayer, .values = BranchGradient(t)});
  branches_[index].branch->BackwardInput(context, BranchTensors(context, index, t), /*accumulate=*/false);
  const PlacedNorm& n = norms_[index];
  const AnyMatrix d_normed = context.workspace.branch_input_gradient(t.rows);
  if (!n.norm.present()) return Convert(context.stream, {.from = d_normed, .to = du});
  context.Observe({.tensor = DepthTensor::kNormOutputGradient, .sublayer = sublayer, .values = d_normed});
  n.norm.Backward(context, u, FloatsAt(t.saved_input, n.statistics, t.rows, 2).data, d_normed, du);
  context.Observe({.tensor = DepthTensor::kNormInputGradient, .sublayer = sublayer, .values = du});
}

}  // namespace hadal

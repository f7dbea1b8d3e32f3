#include "layers/segment.h"

#include "kernels/residual_norm.h"
#include "kernels/shift_scale.h"
#include "runtime/profiler.h"

namespace hadal {

Segment::Segment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity)
    : first_(first),
      last_(last),
      stack_(plan.sublayers[first].stack),
      pre_norm_(plan.sublayers[first].norm == NormPlacement::kPre),
      d_model_(plan.options.d_model),
      dropout_(plan.options.dropout) {
  HADAL_CHECK_LT(first, last);
  const int64_t rows = capacity.rows(stack_);
  const auto reserve = [this](int64_t floats) {
    // On 16 bytes, as kernels of a device like it: a product there has the same bits wherever its rows lie.
    constexpr int64_t kAlignmentFloats = 4;
    const int64_t offset = saved_floats_;
    saved_floats_ += (floats + kAlignmentFloats - 1) / kAlignmentFloats * kAlignmentFloats;
    return offset;
  };
  if (plan.Combines(stack_)) {
    HADAL_CHECK_EQ(plan.NextCut(first + 1), last);
    combination_.emplace(plan, first, rows);
    combination_saved_ = reserve(combination_->saved_floats());
    combined_ = reserve(rows * d_model_);
  }
  const size_t count = last - first;
  skipped_from_.assign(count, false);
  for (size_t j = 0; j <= count; ++j) {
    Joint joint = MakeJoint(plan, j);
    const bool is_output = j == count;
    if (j > 0 && plan.sublayers[first + j - 1].learned_gain >= 0) joint.branch = reserve(rows * d_model_);
    const bool has_norm = joint.norm_scale >= 0;
    // The norm's input: x itself at joint 0. A sum that is the segment's output is the caller's.
    if (j > 0 && (has_norm || !is_output || joint.closing_shift >= 0)) joint.sum = reserve(rows * d_model_);
    if (has_norm) {
      if (!is_output) joint.normed = reserve(rows * d_model_);
      joint.mean = reserve(rows);
      joint.rstd = reserve(rows);
    }
    joints_.push_back(joint);
    if (is_output) break;
    branches_.push_back(MakeBranch(plan, first + static_cast<int32_t>(j)));
    branch_saved_.push_back(reserve(branches_.back()->SavedFloats(plan, capacity)));
  }
}

Segment::Joint Segment::MakeJoint(const ModelPlan& plan, size_t index) {
  const int32_t before = first_ + static_cast<int32_t>(index) - 1;  // the sublayer this joint closes
  const int32_t after = before + 1;
  Joint joint;
  if (index > 0) {
    joint.omega = plan.ParameterOf(before, ParameterRole::kOmega);
    joint.profiled = joint.omega >= 0 && IsProfiled(plan, stack_);
  }
  if (index > 0 && plan.sublayers[before].skip_gain != 0) {
    int32_t from = before;
    while (plan.sublayers[from].kind != SublayerKind::kSelfAttention) --from;
    joint.skip_from = from - first_;
    HADAL_CHECK_GE(joint.skip_from, 0);
    skipped_from_[joint.skip_from] = true;
  }
  switch (plan.sublayers[first_].norm) {
    case NormPlacement::kPost:
      if (index > 0) joint.norm_scale = plan.ParameterOf(before, ParameterRole::kNormScale);
      return joint;
    case NormPlacement::kPre:
      joint.norm_scale = after < last_ ? plan.ParameterOf(after, ParameterRole::kNormScale) : plan.NormBehind(before);
      joint.output_is_normed = after == last_ && joint.norm_scale >= 0;
      return joint;
    case NormPlacement::kNone:
      joint.output_is_normed = false;
      if (after < last_) return joint;
      joint.closing_shift = plan.ParameterOf(before, ParameterRole::kClosingShift);
      joint.closing_scale = plan.ParameterOf(before, ParameterRole::kClosingScale);
      return joint;
  }
  return joint;
}

ConstMatrix Segment::StreamAfter(size_t index, ConstMatrix x, const float* saved) const {
  if (index == 0) return x;
  const Joint& joint = joints_[index];
  return {saved + (joint.output_is_normed ? joint.normed : joint.sum), x.rows, d_model_};
}

ConstMatrix Segment::BranchInput(size_t index, ConstMatrix x, const float* saved) const {
  if (!pre_norm_) return StreamAfter(index, x, saved);
  return {saved + joints_[index].normed, x.rows, d_model_};
}

Matrix Segment::SumOf(size_t index, float* saved, Matrix out) const {
  const Joint& joint = joints_[index];
  const bool is_output = index == branches_.size() && !joint.output_is_normed && joint.closing_shift < 0;
  return is_output ? out : Matrix(saved + joint.sum, out.rows, d_model_);
}

void Segment::ForwardJoint(const SublayerContext& context, size_t index, ConstMatrix x, ConstMatrix branch,
                           float* saved, Matrix out) const {
  const Joint& joint = joints_[index];
  const bool is_output = index == branches_.size();
  const bool has_norm = joint.norm_scale >= 0;
  const int64_t rows = x.rows;
  ResidualNormForwardArgs args{.stream = x};
  if (index > 0) {
    args.stream = StreamAfter(index - 1, x, saved);
    const int32_t sublayer = first_ + static_cast<int32_t>(index) - 1;
    const SublayerRecord& record = context.plan().sublayers[sublayer];
    args.branch = branch;
    if (const int32_t bias = branches_[index - 1]->output_bias(); bias >= 0) {
      args.bias = context.parameters.WeightVector(bias);
    }
    if (record.learned_gain >= 0) args.learned_branch_gain = context.parameters.WeightVector(record.learned_gain);
    args.residual_gain = record.residual_gain;
    args.learned_residual_gain = context.parameters.WeightVector(joint.omega);
    args.branch_gain = BranchGain(record, context.scalars.update);
    args.dropout = context.MakeDropout(dropout_, sublayer, RandomSite::kResidual);
    if (joint.skip_from >= 0) {
      args.skip = StreamAfter(joint.skip_from, x, saved);
      args.skip_gain = record.skip_gain;
    }
    args.sum = SumOf(index, saved, out);
  }
  if (has_norm) {
    args.scale = context.parameters.WeightVector(joint.norm_scale);
    args.shift = context.parameters.WeightVector(joint.norm_scale + 1);
    args.normed = is_output ? out : Matrix(saved + joint.normed, rows, d_model_);
    args.mean = {saved + joint.mean, rows};
    args.rstd = {saved + joint.rstd, rows};
  }
  ResidualNormForward(context.stream, args);
  if (joint.closing_shift >= 0) {
    ShiftScaleForward(context.stream, {.x = args.sum,
                                       .shift = context.parameters.WeightVector(joint.closing_shift),
                                       .scale = context.parameters.WeightVector(joint.closing_scale),
                                       .y = out});
  }
  if (context.observer != nullptr) ObserveForward(context, index, x, saved, out);
}

void Segment::BackwardClosing(const SublayerContext& context, const float* saved, Matrix d_stream) const {
  const Joint& joint = joints_.back();
  if (joint.closing_shift < 0) return;
  ShiftScaleBackward(context.stream, {.dy = d_stream,
                                      .x = ConstMatrix(saved + joint.sum, d_stream.rows, d_model_),
                                      .shift = context.parameters.WeightVector(joint.closing_shift),
                                      .scale = context.parameters.WeightVector(joint.closing_scale),
                                      .dx = d_stream,
                                      .d_shift = context.parameters.GradientVector(joint.closing_shift),
                                      .d_scale = context.parameters.GradientVector(joint.closing_scale),
                                      .partials = context.workspace.norm_partials()});
}

void Segment::ObserveForward(const SublayerContext& context, size_t index, ConstMatrix x, const float* saved,
                             ConstMatrix out) const {
  const Joint& joint = joints_[index];
  const int32_t closed = first_ + static_cast<int32_t>(index) - 1;
  const bool is_output = index == branches_.size();
  const ConstMatrix sum = index == 0 ? x : ConstMatrix(saved + joint.sum, x.rows, d_model_);
  const bool has_norm = joint.norm_scale >= 0;
  if (!pre_norm_ && has_norm) {
    context.Observe({.tensor = DepthTensor::kNormInput, .sublayer = closed, .values = sum});
  }
  if (index > 0) {
    // In front of a closing norm the stream is the sum.
    const bool sum_is_stream = pre_norm_ && joint.output_is_normed;
    context.Observe({.tensor = DepthTensor::kOutput,
                     .sublayer = closed,
                     .values = sum_is_stream ? sum
                               : is_output   ? out
                                             : StreamAfter(index, x, saved),
                     .before = StreamAfter(index - 1, x, saved)});
  }
  if (pre_norm_ && !is_output) {
    context.Observe({.tensor = DepthTensor::kNormInput, .sublayer = closed + 1, .values = sum});
  }
}

ConstMatrix Segment::Input(ConstMatrix x, const float* saved, int64_t rows) const {
  return combination_ ? ConstMatrix(saved + combined_, rows, d_model_) : x;
}

void Segment::Forward(const SublayerContext& context, ConstMatrix x, float* saved, Matrix out) const {
  if (combination_) {
    combination_->Forward(context.stream, context.parameters, x, saved + combination_saved_,
                          Matrix(saved + combined_, out.rows, d_model_));
  }
  ForwardLayers(context, Input(x, saved, out.rows), saved, out);
}

void Segment::ForwardLayers(const SublayerContext& context, ConstMatrix x, float* saved, Matrix out) const {
  if (pre_norm_) ForwardJoint(context, 0, x, {}, saved, out);
  for (size_t i = 0; i < branches_.size(); ++i) {
    const int32_t sublayer = first_ + static_cast<int32_t>(i);
    const ProfilerRange range(context.stream, "sublayer", sublayer);
    const int64_t kept = joints_[i + 1].branch;
    const Matrix branch = kept < 0 ? context.workspace.branch(x.rows) : Matrix(saved + kept, x.rows, d_model_);
    branches_[i]->Forward(context, BranchInput(i, x, saved), saved + branch_saved_[i], branch);
    context.Observe({.tensor = DepthTensor::kBranch, .sublayer = sublayer, .values = branch});
    const bool profiles = context.profile != nullptr && joints_[i + 1].profiled;
    if (profiles) context.profile->Begin(context.stream, context.parameters, sublayer);
    ForwardJoint(context, i + 1, x, branch, saved, out);
    if (profiles) {
      context.profile->End(context.stream, context.plan().sublayers[sublayer], StreamAfter(i, x, saved),
                           SumOf(i + 1, saved, out));
    }
    context.Progress();
  }
}

void Segment::BackwardJoint(const SublayerContext& context, size_t index, ConstMatrix x, const float* saved,
                            ConstMatrix d_normed, ConstMatrix d_sum, Matrix d_stream, Matrix d_branch) const {
  const Joint& joint = joints_[index];
  const int64_t rows = d_stream.rows;
  ResidualNormBackwardArgs args{.d_normed = d_normed, .d_sum = d_sum, .d_stream = d_stream};
  if (index > 0) {
    const int32_t sublayer = first_ + static_cast<int32_t>(index) - 1;
    const SublayerRecord& record = context.plan().sublayers[sublayer];
    args.residual_gain = record.residual_gain;
    if (joint.omega >= 0) {
      args.stream = StreamAfter(index - 1, x, saved);
      args.learned_residual_gain = context.parameters.WeightVector(joint.omega);
      args.d_learned_residual_gain = context.parameters.GradientVector(joint.omega);
    }
    args.branch_gain = BranchGain(record, context.scalars.update);
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
      args.branch = {saved + joint.branch, rows, d_model_};
      args.learned_branch_gain = context.parameters.WeightVector(record.learned_gain);
      args.d_learned_branch_gain = context.parameters.GradientVector(record.learned_gain);
    }
  }
  if (joint.norm_scale >= 0) {
    args.sum = index == 0 ? x : ConstMatrix(saved + joint.sum, rows, d_model_);
    args.mean = {saved + joint.mean, rows};
    args.rstd = {saved + joint.rstd, rows};
    args.scale = context.parameters.WeightVector(joint.norm_scale);
    args.d_scale = context.parameters.GradientVector(joint.norm_scale);
    args.d_shift = context.parameters.GradientVector(joint.norm_scale + 1);
  }
  args.partials = context.workspace.norm_partials();
  ResidualNormBackward(context.stream, args);
}

void Segment::ObserveBackwardBefore(const SublayerContext& context, size_t index, ConstMatrix d_normed,
                                    ConstMatrix d_stream) const {
  const int32_t closed = first_ + static_cast<int32_t>(index) - 1;
  if (!pre_norm_) {
    context.Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = closed, .values = d_stream});
    if (joints_[index].norm_scale < 0) return;
    context.Observe({.tensor = DepthTensor::kNormOutputGradient, .sublayer = closed, .values = d_normed});
  } else if (index < branches_.size()) {
    context.Observe({.tensor = DepthTensor::kNormOutputGradient, .sublayer = closed + 1, .values = d_normed});
  }
}

void Segment::ObserveBackwardAfter(const SublayerContext& context, size_t index, ConstMatrix d_stream,
                                   ConstMatrix d_branch) const {
  const int32_t closed = first_ + static_cast<int32_t>(index) - 1;
  const float gain = context.plan().sublayers[closed].residual_gain;
  // The kernel leaves r·∂L/∂s; ∂L/∂s itself stays in its registers. Where r is Admin's vector it is not had back.
  if (gain != 0 && joints_[index].omega < 0 && (pre_norm_ || joints_[index].norm_scale >= 0)) {
    context.Observe({.tensor = pre_norm_ ? DepthTensor::kOutputGradient : DepthTensor::kNormInputGradient,
                     .sublayer = closed,
                     .values = d_stream,
                     .factor = gain});
  }
  context.Observe({.tensor = DepthTensor::kBranchGradient, .sublayer = closed, .values = d_branch});
}

void Segment::Backward(const SublayerContext& context, ConstMatrix x, const float* saved, Matrix d_stream,
                       Matrix d_history) const {
  BackwardLayers(context, Input(x, saved, d_stream.rows), saved, d_stream);
  if (combination_) combination_->Backward(context, x, saved + combination_saved_, d_stream, d_history);
  context.MarkComplete(first_);
}

void Segment::BackwardLayers(const SublayerContext& context, ConstMatrix x, const float* saved, Matrix d_stream) const {
  const Matrix d_branch = context.workspace.branch(x.rows);
  const Matrix d_input = context.workspace.branch_input_gradient(x.rows);
  BackwardClosing(context, saved, d_stream);
  for (size_t i = branches_.size(); i > 0; --i) {
    const ProfilerRange range(context.stream, "sublayer", first_ + static_cast<int32_t>(i) - 1);
    const bool normed_output = joints_[i].output_is_normed;  // d_stream arrives at the norm's output
    const bool follows_branch = pre_norm_ && i < branches_.size();
    const Matrix d_normed = follows_branch ? d_input : normed_output ? d_stream : Matrix();
    if (context.observer != nullptr) ObserveBackwardBefore(context, i, d_normed, d_stream);
    BackwardJoint(context, i, x, saved, d_normed, normed_output ? Matrix() : d_stream, d_stream, d_branch);
    if (context.observer != nullptr) ObserveBackwardAfter(context, i, d_stream, d_branch);
    const Branch& branch = *branches_[i - 1];
    const float* branch_saved = saved + branch_saved_[i - 1];
    branch.BackwardInput(context, d_branch, branch_saved, /*accumulate=*/!pre_norm_, pre_norm_ ? d_input : d_stream);
    if (skipped_from_[i - 1]) {  // d_stream += the gradient through the skip
      ResidualNormForward(
          context.stream,
          {.stream = d_stream, .branch = context.workspace.layer_input_gradient(x.rows), .sum = d_stream});
    }
    branch.BackwardWeight(context, BranchInput(i - 1, x, saved), d_branch, branch_saved);
    // The branch's own norm may be the joint before it.
    context.MarkComplete(first_ + static_cast<int32_t>(i));
    context.Progress();
  }
  if (pre_norm_) {
    if (context.observer != nullptr) ObserveBackwardBefore(context, 0, d_input, d_stream);
    BackwardJoint(context, 0, x, saved, d_input, d_stream, d_stream, {});
  }
}

}  // namespace hadal

#include "layers/segment.h"

#include "kernels/convert.h"
#include "kernels/residual_norm.h"
#include "kernels/shift_scale.h"
#include "runtime/profiler.h"

namespace hadal {
namespace {

float* FloatsAt(std::byte* saved, int64_t offset) { return reinterpret_cast<float*>(saved + offset); }
const float* FloatsAt(const std::byte* saved, int64_t offset) { return reinterpret_cast<const float*>(saved + offset); }

}  // namespace

Segment::Segment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity)
    : first_(first),
      last_(last),
      stack_(plan.sublayers[first].stack),
      pre_norm_(plan.sublayers[first].norm == NormPlacement::kPre),
      d_model_(plan.options.d_model),
      dropout_(plan.options.dropout),
      compute_storage_(plan.compute_storage),
      stream_storage_(plan.stream_storage(stack_)),
      output_storage_(plan.ends_stack(last) && !plan.Combines(stack_) ? compute_storage_ : stream_storage_) {
  HADAL_CHECK_LT(first, last);
  const int64_t rows = capacity.rows(stack_);
  // On 16 bytes: a product on a device has the same bits wherever its rows lie.
  const auto reserve = [this](int64_t bytes) {
    const int64_t offset = saved_.bytes();
    saved_.TakeBytes(bytes);
    return offset;
  };
  const int64_t floats = BytesOf(Storage::kFloat32);
  const int64_t of_stream = rows * d_model_ * BytesOf(stream_storage_);
  const int64_t of_product = rows * d_model_ * BytesOf(compute_storage_);
  if (plan.Combines(stack_)) {
    HADAL_CHECK_EQ(plan.NextCut(first + 1), last);
    combination_.emplace(plan, first, rows);
    combination_saved_ = reserve(combination_->saved_bytes());
    combined_ = reserve(of_stream);
  }
  const size_t count = last - first;
  skipped_from_.assign(count, false);
  for (size_t j = 0; j <= count; ++j) {
    Joint joint = MakeJoint(plan, j);
    const bool is_output = j == count;
    if (j > 0 && plan.sublayers[first + j - 1].learned_gain >= 0) joint.branch = reserve(of_product);
    const bool has_norm = joint.norm_scale >= 0;
    // The norm's input: x itself at joint 0. A sum that is the segment's output is the caller's.
    const bool sum_is_output = is_output && joint.closing_shift < 0 && output_storage_ == stream_storage_;
    if (j > 0 && (has_norm || !sum_is_output)) joint.sum = reserve(of_stream);
    if (has_norm) {
      if (!is_output || NormedApart()) joint.normed = reserve(of_product);
      joint.mean = reserve(rows * floats);
      joint.rstd = reserve(rows * floats);
    } else if (!is_output && !pre_norm_ && stream_storage_ != compute_storage_) {
      joint.rounded = reserve(of_product);
    }
    joints_.push_back(joint);
    if (is_output) break;
    branches_.push_back(MakeBranch(plan, first + static_cast<int32_t>(j)));
    branch_saved_.push_back(reserve(branches_.back()->SavedBytes(capacity)));
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

ConstAnyMatrix Segment::StreamAfter(size_t index, ConstAnyMatrix x, const std::byte* saved) const {
  if (index == 0) return x;
  const Joint& joint = joints_[index];
  return StreamAt(saved, joint.output_is_normed ? joint.normed : joint.sum, x.rows);
}

ConstAnyMatrix Segment::BranchInput(size_t index, ConstAnyMatrix x, const std::byte* saved) const {
  const Joint& joint = joints_[index];
  if (pre_norm_) return ProductAt(saved, joint.normed, x.rows);
  return joint.rounded >= 0 ? ProductAt(saved, joint.rounded, x.rows) : StreamAfter(index, x, saved);
}

AnyMatrix Segment::SumOf(size_t index, std::byte* saved, AnyMatrix out) const {
  const Joint& joint = joints_[index];
  const bool is_output = index == branches_.size() && !joint.output_is_normed && joint.closing_shift < 0 &&
                         output_storage_ == stream_storage_;
  return is_output ? out : StreamAt(saved, joint.sum, out.rows);
}

void Segment::ForwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix x, ConstAnyMatrix branch,
                           std::byte* saved, AnyMatrix out) const {
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
    args.branch_gain_place = context.branch_gain_place(sublayer);
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
    args.normed = is_output && !NormedApart() ? out : ProductAt(saved, joint.normed, rows);
    args.mean = {FloatsAt(saved, joint.mean), rows};
    args.rstd = {FloatsAt(saved, joint.rstd), rows};
  }
  if (index > 0 || has_norm) ResidualNormForward(context.stream, args);
  if (is_output && has_norm && NormedApart()) Convert(context.stream, {.from = args.normed, .to = out});
  if (joint.rounded >= 0) {
    Convert(context.stream, {.from = StreamAfter(index, x, saved), .to = ProductAt(saved, joint.rounded, rows)});
  }
  if (is_output && !has_norm && joint.closing_shift < 0 && output_storage_ != stream_storage_) {
    Convert(context.stream, {.from = args.sum, .to = out});
  }
  if (joint.closing_shift >= 0) {
    ShiftScaleForward(context.stream, {.x = args.sum,
                                       .shift = context.parameters.WeightVector(joint.closing_shift),
                                       .scale = context.parameters.WeightVector(joint.closing_scale),
                                       .y = out});
  }
  if (context.observer != nullptr) ObserveForward(context, index, x, saved, out);
}

ConstAnyMatrix Segment::OutputGradient(const SublayerContext& context, AnyMatrix d_stream) const {
  if (!joints_.back().output_is_normed) return {};
  if (compute_storage_ == stream_storage_) return d_stream;
  const AnyMatrix d_normed = context.workspace.branch_input_gradient(d_stream.rows);
  Convert(context.stream, {.from = d_stream, .to = d_normed});
  return d_normed;
}

void Segment::BackwardClosing(const SublayerContext& context, const std::byte* saved, AnyMatrix d_stream) const {
  const Joint& joint = joints_.back();
  if (joint.closing_shift < 0) return;
  ShiftScaleBackward(context.stream, {.dy = d_stream,
                                      .x = StreamAt(saved, joint.sum, d_stream.rows),
                                      .shift = context.parameters.WeightVector(joint.closing_shift),
                                      .scale = context.parameters.WeightVector(joint.closing_scale),
                                      .dx = d_stream,
                                      .d_shift = context.parameters.GradientVector(joint.closing_shift),
                                      .d_scale = context.parameters.GradientVector(joint.closing_scale),
                                      .partials = context.workspace.norm_partials()});
}

void Segment::ObserveForward(const SublayerContext& context, size_t index, ConstAnyMatrix x, const std::byte* saved,
                             ConstAnyMatrix out) const {
  const Joint& joint = joints_[index];
  const int32_t closed = first_ + static_cast<int32_t>(index) - 1;
  const bool is_output = index == branches_.size();
  const ConstAnyMatrix sum = index == 0 ? x : StreamAt(saved, joint.sum, x.rows);
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

ConstAnyMatrix Segment::Input(ConstAnyMatrix x, const std::byte* saved, int64_t rows) const {
  return combination_ ? ConstAnyMatrix(StreamAt(saved, combined_, rows)) : x;
}

void Segment::Forward(const SublayerContext& context, ConstAnyMatrix x, std::byte* saved, AnyMatrix out) const {
  if (combination_) {
    combination_->Forward(context.stream, context.parameters, x, saved + combination_saved_,
                          StreamAt(saved, combined_, out.rows));
  }
  ForwardLayers(context, Input(x, saved, out.rows), saved, out);
}

void Segment::ForwardLayers(const SublayerContext& context, ConstAnyMatrix x, std::byte* saved, AnyMatrix out) const {
  if (pre_norm_ || joints_[0].rounded >= 0) ForwardJoint(context, 0, x, {}, saved, out);
  for (size_t i = 0; i < branches_.size(); ++i) {
    const int32_t sublayer = first_ + static_cast<int32_t>(i);
    const ProfilerRange range(context.stream, "sublayer", sublayer);
    const int64_t kept = joints_[i + 1].branch;
    const AnyMatrix branch = kept < 0 ? context.workspace.branch(x.rows) : ProductAt(saved, kept, x.rows);
    branches_[i]->Forward(context, BranchInput(i, x, saved), saved + branch_saved_[i], branch);
    context.Observe({.tensor = DepthTensor::kBranch, .sublayer = sublayer, .values = branch});
    const bool profiles = context.profile != nullptr && joints_[i + 1].profiled;
    if (profiles) context.profile->Begin(context.stream, context.parameters, sublayer);
    ForwardJoint(context, i + 1, x, branch, saved, out);
    if (profiles) {
      const int64_t rows = context.sentence_rows(stack_);
      context.profile->End(context.stream, context.plan().sublayers[sublayer], StreamAfter(i, x, saved).Rows(0, rows),
                           SumOf(i + 1, saved, out).Rows(0, rows));
    }
    context.Progress();
  }
}

void Segment::BackwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix x, const std::byte* saved,
                            ConstAnyMatrix d_normed, ConstAnyMatrix d_sum, AnyMatrix d_stream,
                            AnyMatrix d_branch) const {
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
    args.sum = index == 0 ? x : StreamAt(saved, joint.sum, rows);
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
                                    ConstAnyMatrix d_stream) const {
  const int32_t closed = first_ + static_cast<int32_t>(index) - 1;
  if (!pre_norm_) {
    context.Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = closed, .values = d_stream});
    if (joints_[index].norm_scale < 0) return;
    context.Observe({.tensor = DepthTensor::kNormOutputGradient, .sublayer = closed, .values = d_normed});
  } else if (index < branches_.size()) {
    context.Observe({.tensor = DepthTensor::kNormOutputGradient, .sublayer = closed + 1, .values = d_normed});
  }
}

void Segment::ObserveBackwardAfter(const SublayerContext& context, size_t index, ConstAnyMatrix d_stream,
                                   ConstAnyMatrix d_branch) const {
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

void Segment::Backward(const SublayerContext& context, ConstAnyMatrix x, const std::byte* saved, AnyMatrix d_stream,
                       Matrix d_history) const {
  BackwardLayers(context, Input(x, saved, d_stream.rows), saved, d_stream);
  if (combination_) {
    combination_->Backward(context, x, saved + combination_saved_, d_stream, d_history);
  }
  context.MarkComplete(first_);
}

void Segment::BackwardLayers(const SublayerContext& context, ConstAnyMatrix x, const std::byte* saved,
                             AnyMatrix d_stream) const {
  const AnyMatrix d_branch = context.workspace.branch(x.rows);
  const AnyMatrix d_input = context.workspace.branch_input_gradient(x.rows);
  BackwardClosing(context, saved, d_stream);
  const ConstAnyMatrix d_output = OutputGradient(context, d_stream);
  for (size_t i = branches_.size(); i > 0; --i) {
    const ProfilerRange range(context.stream, "sublayer", first_ + static_cast<int32_t>(i) - 1);
    const bool normed_output = joints_[i].output_is_normed;  // d_stream arrives at the norm's output
    const bool follows_branch = pre_norm_ && i < branches_.size();
    const ConstAnyMatrix d_normed = follows_branch          ? ConstAnyMatrix(d_input)
                                    : i == branches_.size() ? d_output
                                    : normed_output         ? ConstAnyMatrix(d_stream)
                                                            : ConstAnyMatrix();
    if (context.observer != nullptr) ObserveBackwardBefore(context, i, d_normed, d_stream);
    BackwardJoint(context, i, x, saved, d_normed, normed_output ? AnyMatrix() : d_stream, d_stream, d_branch);
    if (context.observer != nullptr) ObserveBackwardAfter(context, i, d_stream, d_branch);
    const Branch& branch = *branches_[i - 1];
    const std::byte* branch_saved = saved + branch_saved_[i - 1];
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

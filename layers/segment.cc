#include "layers/segment.h"

#include "kernels/convert.h"
#include "kernels/residual_norm.h"
#include "kernels/shift_scale.h"
#include "layers/hyper_segment.h"
#include "runtime/profiler.h"

namespace hadal {
namespace {

float* FloatsAt(std::byte* saved, int64_t offset) { return reinterpret_cast<float*>(saved + offset); }

}  // namespace

std::unique_ptr<ChunkPart> MakeSegment(const ModelPlan& plan, int32_t first, int32_t last,
                                       const ActivationCapacity& capacity) {
  if (plan.Residuals(plan.sublayers[first].stack) > 1) {
    return std::make_unique<HyperSegment>(plan, first, last, capacity);
  }
  return std::make_unique<Segment>(plan, first, last, capacity);
}

Segment::Segment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity)
    : first_(first),
      last_(last),
      capacity_(capacity),
      pre_norm_(plan.sublayers[first].norm == NormPlacement::kPre),
      d_model_(plan.options.d_model),
      dropout_(plan.options.dropout),
      compute_storage_(plan.compute_storage),
      residual_storage_(plan.residual_storage(plan.sublayers[first].stack)),
      output_storage_(plan.segment_storage(plan.sublayers[first].stack, last)) {
  HADAL_CHECK_LT(first, last);
  for (int32_t s = first; s < last; ++s) HADAL_CHECK(plan.sublayers[s].norm == plan.sublayers[first].norm);
  const Stack stack = plan.sublayers[first].stack;
  const int64_t rows = capacity.rows(stack);
  // Every offset is on 16 bytes, because on a device a product's bits depend on the alignment of its rows.
  const auto reserve_in = [](SavedTensors<std::byte>& tensors, int64_t bytes) {
    const int64_t offset = tensors.bytes();
    tensors.TakeBytes(bytes);
    return offset;
  };
  const auto keep = [&](int64_t bytes) { return reserve_in(kept_, bytes); };
  const auto keep_for_input = [&](int64_t bytes) { return reserve_in(input_, bytes); };
  const int64_t floats = BytesOf(Storage::kFloat32);
  const int64_t of_residual = rows * d_model_ * BytesOf(residual_storage_);
  const int64_t of_product = rows * d_model_ * BytesOf(compute_storage_);
  if (plan.Combines(stack)) {
    HADAL_CHECK_EQ(plan.NextCut(first + 1), last);
    combination_.emplace(plan, first, rows);
    combination_saved_ = keep_for_input(combination_->saved_bytes());
    combined_ = keep(of_residual);
  }
  const size_t count = last - first;
  skipped_from_.assign(count, false);
  for (size_t j = 0; j <= count; ++j) {
    Joint joint = MakeJoint(plan, j);
    const bool is_output = j == count;
    if (j > 0 && plan.sublayers[first + j - 1].learned_gain >= 0) joint.branch = keep_for_input(of_product);
    const bool has_norm = joint.norm_scale >= 0;
    // The norm's input has a place in `saved`, except at joint 0, where it is x. A sum that is the segment's output is
    // written to `out`.
    const bool sum_is_output = is_output && joint.closing_shift < 0 && output_storage_ == residual_storage_;
    if (j > 0 && (has_norm || !sum_is_output)) {
      joint.sum.in_input = plan.sublayers[first].norm != NormPlacement::kNone;
      joint.sum.offset = joint.sum.in_input ? keep_for_input(of_residual) : keep(of_residual);
    }
    if (has_norm) {
      if (!is_output || NormedApart()) joint.normed = keep(of_product);
      joint.mean = keep_for_input(rows * floats);
      joint.rstd = keep_for_input(rows * floats);
    } else if (!is_output && !pre_norm_ && residual_storage_ != compute_storage_) {
      joint.rounded = keep(of_product);
    }
    joints_.push_back(joint);
    if (is_output) break;
    branches_.push_back(MakeBranch(plan, first + static_cast<int32_t>(j)));
    const SavedBytes bytes = branches_.back()->BytesToSave(capacity);
    branch_saved_.push_back({.kept = keep(bytes.kept), .input = keep_for_input(bytes.input)});
  }
  SavedTensors<std::byte> pending(nullptr);
  pending.TakeBytes(of_product);
  branch_pending_ = pending.bytes();
}

Segment::Joint Segment::MakeJoint(const ModelPlan& plan, size_t index) {
  const int32_t before = first_ + static_cast<int32_t>(index) - 1;  // the sublayer that this joint ends
  const int32_t after = before + 1;
  Joint joint;
  if (index > 0) joint.omega = plan.ParameterOf(before, ParameterRole::kOmega);
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
      if (after < last_) joint.norm_gain = plan.sublayers[after].norm_gain;
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

Segment::Layers Segment::BehindCombination(const PartTensors& tensors, int64_t rows) const {
  Layers t{tensors};
  if (t.saved_input == nullptr) t.saved_input = t.saved + kept_.bytes();
  if (combination_) t.x = ResidualAt(tensors.saved, combined_, rows);
  return t;
}

ConstAnyMatrix Segment::ResidualAfter(size_t index, const Layers& t) const {
  if (index == 0) return t.x;
  const Joint& joint = joints_[index];
  return joint.output_is_normed ? ResidualAt(t.saved, joint.normed, t.x.rows) : KeptSum(index, t);
}

AnyMatrix Segment::KeptSum(size_t index, const Layers& t) const {
  const SavedOffset& sum = joints_[index].sum;
  return ResidualAt(sum.in_input ? t.saved_input : t.saved, sum.offset, t.x.rows);
}

ConstAnyMatrix Segment::BranchInput(size_t index, const Layers& t) const {
  const Joint& joint = joints_[index];
  if (pre_norm_) return ProductAt(t.saved, joint.normed, t.x.rows);
  return joint.rounded >= 0 ? ProductAt(t.saved, joint.rounded, t.x.rows) : ResidualAfter(index, t);
}

AnyMatrix Segment::SumOf(size_t index, const Layers& t) const {
  const Joint& joint = joints_[index];
  const bool is_output = index == branches_.size() && !joint.output_is_normed && joint.closing_shift < 0 &&
                         output_storage_ == residual_storage_;
  return is_output ? t.y : KeptSum(index, t);
}

void Segment::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  const Layers t = BehindCombination(tensors, tensors.y.rows);
  if (combination_) {
    combination_->Combine(context.stream, context.parameters, tensors.x, t.saved_input + combination_saved_,
                          ResidualAt(t.saved, combined_, t.y.rows));
  }
  if (pre_norm_ || joints_[0].rounded >= 0) ForwardJoint(context, 0, {}, t);
  for (size_t i = 0; i < branches_.size(); ++i) {
    const int32_t sublayer = first_ + static_cast<int32_t>(i);
    const ProfilerRange range(context.stream, "sublayer", sublayer);
    const int64_t kept = joints_[i + 1].branch;
    const AnyMatrix branch = kept < 0 ? context.workspace.branch(t.x.rows) : ProductAt(t.saved_input, kept, t.x.rows);
    branches_[i]->Forward(context, {.x = BranchInput(i, t),
                                    .encoder_output = t.encoder_output,
                                    .y = branch,
                                    .saved = t.saved + branch_saved_[i].kept,
                                    .saved_input = t.saved_input + branch_saved_[i].input});
    context.Observe({.tensor = DepthTensor::kBranch, .sublayer = sublayer, .values = branch});
    ForwardJoint(context, i + 1, branch, t);
    context.Progress();
  }
}

void Segment::ForwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix branch, const Layers& t) const {
  const Joint& joint = joints_[index];
  const bool is_output = index == branches_.size();
  const bool has_norm = joint.norm_scale >= 0;
  const int64_t rows = t.x.rows;
  ResidualNormForwardArgs args{.residual = t.x};
  if (index > 0) {
    args.residual = ResidualAfter(index - 1, t);
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
    args.device_branch_gain = context.DeviceBranchGain(sublayer);
    args.dropout = context.MakeDropout(dropout_, sublayer, RandomSite::kResidual);
    if (joint.skip_from >= 0) {
      args.skip = ResidualAfter(joint.skip_from, t);
      args.skip_gain = record.skip_gain;
    }
    args.sum = SumOf(index, t);
    args.second_gain = record.second_gain;
    args.second_sum = t.second;
    if (!context.plan().begins_stack(sublayer)) args.second = t.second;
  }
  if (has_norm) {
    args.scale = context.parameters.WeightVector(joint.norm_scale);
    args.shift = context.parameters.WeightVector(joint.norm_scale + 1);
    args.norm_gain = joint.norm_gain;
    args.normed = is_output && !NormedApart() ? t.y : ProductAt(t.saved, joint.normed, rows);
    args.mean = {FloatsAt(t.saved_input, joint.mean), rows};
    args.rstd = {FloatsAt(t.saved_input, joint.rstd), rows};
  }
  if (index > 0 || has_norm) ResidualNormForward(context.stream, args);
  if (is_output && has_norm && NormedApart()) Convert(context.stream, {.from = args.normed, .to = t.y});
  if (joint.rounded >= 0) {
    Convert(context.stream, {.from = ResidualAfter(index, t), .to = ProductAt(t.saved, joint.rounded, rows)});
  }
  if (is_output && !has_norm && joint.closing_shift < 0 && output_storage_ != residual_storage_) {
    Convert(context.stream, {.from = args.sum, .to = t.y});
  }
  if (joint.closing_shift >= 0) {
    ShiftScaleForward(context.stream, {.x = args.sum,
                                       .shift = context.parameters.WeightVector(joint.closing_shift),
                                       .scale = context.parameters.WeightVector(joint.closing_scale),
                                       .y = t.y});
  }
  if (context.observer != nullptr) ObserveForward(context, index, t);
}

void Segment::ObserveForward(const SublayerContext& context, size_t index, const Layers& t) const {
  const Joint& joint = joints_[index];
  const int32_t closed = first_ + static_cast<int32_t>(index) - 1;
  const bool is_output = index == branches_.size();
  const ConstAnyMatrix sum = index == 0 ? t.x : ConstAnyMatrix(KeptSum(index, t));
  const bool has_norm = joint.norm_scale >= 0;
  if (!pre_norm_ && has_norm) {
    context.Observe({.tensor = DepthTensor::kNormInput, .sublayer = closed, .values = sum});
  }
  if (index > 0) {
    // Before a closing norm the sum is the residual stream.
    const bool sum_is_residual = pre_norm_ && joint.output_is_normed;
    context.Observe({.tensor = DepthTensor::kOutput,
                     .sublayer = closed,
                     .values = sum_is_residual ? sum
                               : is_output     ? ConstAnyMatrix(t.y)
                                               : ResidualAfter(index, t),
                     .before = ResidualAfter(index - 1, t)});
    if (!t.second.empty()) {
      context.Observe({.tensor = DepthTensor::kSecondStream, .sublayer = closed, .values = t.second});
    }
  }
  if (pre_norm_ && !is_output) {
    context.Observe({.tensor = DepthTensor::kNormInput, .sublayer = closed + 1, .values = sum});
  }
}

void Segment::BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const {
  const Layers t = BehindCombination(tensors, tensors.d_y.rows);
  const size_t index = static_cast<size_t>(step) + 1;  // the joint that ends the sublayer
  const ProfilerRange range(context.stream, "sublayer", first_ + step);
  if (index == branches_.size()) BackwardClosing(context, t);
  BackwardJoint(context, index, NormedGradient(context, index, t), t);
  branches_[step]->BackwardInput(context, BranchTensors(context, step, t), /*accumulate=*/!pre_norm_);
  if (skipped_from_[step]) {  // d_y += the gradient through the skip
    ResidualNormForward(
        context.stream,
        {.residual = t.d_y, .branch = context.workspace.layer_input_gradient(t.d_y.rows), .sum = t.d_y});
  }
  if (step > 0) return;
  if (pre_norm_) BackwardJoint(context, 0, NormedGradient(context, 0, t), t);
  if (combination_) {
    if (pre_norm_) {
      context.Observe({.tensor = DepthTensor::kNormInputGradient, .sublayer = first_, .values = t.d_y});
    }
    PartTensors combination = tensors;
    combination.saved = t.saved_input + combination_saved_;
    combination_->BackwardInput(context, combination, 0);
  }
}

void Segment::BackwardWeight(const SublayerContext& context, const PartTensors& tensors, int32_t step) const {
  const ProfilerRange range(context.stream, "sublayer", first_ + step);
  const Layers t = BehindCombination(tensors, tensors.d_y.rows);
  branches_[step]->BackwardWeight(context, BranchTensors(context, step, t));
  context.Progress();
}

PartTensors Segment::BranchTensors(const SublayerContext& context, size_t index, const Layers& t) const {
  return {.x = BranchInput(index, t),
          .encoder_output = t.encoder_output,
          .saved = t.saved + branch_saved_[index].kept,
          .saved_input = t.saved_input + branch_saved_[index].input,
          .d_y = BranchGradient(t),
          .d_x = pre_norm_ ? context.workspace.branch_input_gradient(t.d_y.rows) : t.d_y,
          .d_encoder_output = t.d_encoder_output,
          .pending = t.pending + branch_pending_};
}

ConstAnyMatrix Segment::NormedGradient(const SublayerContext& context, size_t index, const Layers& t) const {
  const AnyMatrix d_input = context.workspace.branch_input_gradient(t.d_y.rows);
  if (index < branches_.size() && pre_norm_) return d_input;  // of the branch that follows
  if (!joints_[index].output_is_normed) return {};
  if (index < branches_.size() || compute_storage_ == residual_storage_) return t.d_y;
  Convert(context.stream, {.from = t.d_y, .to = d_input});
  return d_input;
}

void Segment::BackwardClosing(const SublayerContext& context, const Layers& t) const {
  const Joint& joint = joints_.back();
  if (joint.closing_shift < 0) return;
  ShiftScaleBackward(context.stream, {.dy = t.d_y,
                                      .x = KeptSum(joints_.size() - 1, t),
                                      .shift = context.parameters.WeightVector(joint.closing_shift),
                                      .scale = context.parameters.WeightVector(joint.closing_scale),
                                      .dx = t.d_y,
                                      .d_shift = context.parameters.GradientVector(joint.closing_shift),
                                      .d_scale = context.parameters.GradientVector(joint.closing_scale),
                                      .partials = context.workspace.norm_partials()});
}

void Segment::BackwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix d_normed,
                            const Layers& t) const {
  const Joint& joint = joints_[index];
  const int64_t rows = t.d_y.rows;
  if (context.observer != nullptr) ObserveBackwardBefore(context, index, d_normed, t);
  ResidualNormBackwardArgs args{.d_normed = d_normed, .d_residual = t.d_y};
  if (!joint.output_is_normed) args.d_sum = t.d_y;
  if (index > 0) {
    const int32_t sublayer = first_ + static_cast<int32_t>(index) - 1;
    const SublayerRecord& record = context.plan().sublayers[sublayer];
    args.residual_gain = record.residual_gain;
    if (joint.omega >= 0) {
      args.residual = ResidualAfter(index - 1, t);
      args.learned_residual_gain = context.parameters.WeightVector(joint.omega);
      args.d_learned_residual_gain = context.parameters.GradientVector(joint.omega);
    }
    args.branch_gain = BranchGain(record, context.scalars.update);
    args.device_branch_gain = context.DeviceBranchGain(sublayer);
    args.dropout = context.MakeDropout(dropout_, sublayer, RandomSite::kResidual);
    args.d_branch = BranchGradient(t);
    args.second_gain = record.second_gain;
    args.d_second = t.d_second;
    args.second_starts = !t.d_second.empty() && context.plan().begins_stack(sublayer);
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
      args.branch = ProductAt(t.saved_input, joint.branch, rows);
      args.learned_branch_gain = context.parameters.WeightVector(record.learned_gain);
      args.d_learned_branch_gain = context.parameters.GradientVector(record.learned_gain);
    }
  }
  if (joint.norm_scale >= 0) {
    args.sum = index == 0 ? t.x : ConstAnyMatrix(KeptSum(index, t));
    args.mean = {FloatsAt(t.saved_input, joint.mean), rows};
    args.rstd = {FloatsAt(t.saved_input, joint.rstd), rows};
    args.scale = context.parameters.WeightVector(joint.norm_scale);
    args.norm_gain = joint.norm_gain;
    args.d_scale = context.parameters.GradientVector(joint.norm_scale);
    args.d_shift = context.parameters.GradientVector(joint.norm_scale + 1);
  }
  args.partials = context.workspace.norm_partials();
  args.batch = context.gradients;
  ResidualNormBackward(context.stream, args);
  if (context.observer != nullptr && index > 0) ObserveBackwardAfter(context, index, t);
}

void Segment::ObserveBackwardBefore(const SublayerContext& context, size_t index, ConstAnyMatrix d_normed,
                                    const Layers& t) const {
  const int32_t closed = first_ + static_cast<int32_t>(index) - 1;
  if (!pre_norm_) {
    context.Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = closed, .values = t.d_y});
    if (joints_[index].norm_scale < 0) return;
    context.Observe({.tensor = DepthTensor::kNormOutputGradient, .sublayer = closed, .values = d_normed});
  } else if (index < branches_.size()) {
    context.Observe({.tensor = DepthTensor::kNormOutputGradient, .sublayer = closed + 1, .values = d_normed});
  }
}

void Segment::ObserveBackwardAfter(const SublayerContext& context, size_t index, const Layers& t) const {
  const int32_t closed = first_ + static_cast<int32_t>(index) - 1;
  const float gain = context.plan().sublayers[closed].residual_gain;
  // The kernel writes r·∂L/∂s and keeps ∂L/∂s in registers. Where Admin's vector multiplies r, or where the gradient of
  // a second stream's start has been added, ∂L/∂s cannot be recovered.
  const bool recovered =
      gain != 0 && joints_[index].omega < 0 && (t.d_second.empty() || !context.plan().begins_stack(closed));
  if (recovered && (pre_norm_ || joints_[index].norm_scale >= 0)) {
    context.Observe({.tensor = pre_norm_ ? DepthTensor::kOutputGradient : DepthTensor::kNormInputGradient,
                     .sublayer = closed,
                     .values = t.d_y,
                     .factor = gain});
  }
  context.Observe({.tensor = DepthTensor::kBranchGradient, .sublayer = closed, .values = BranchGradient(t)});
}

}  // namespace hadal

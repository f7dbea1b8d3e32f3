#include "layers/segment.h"

#include "kernels/convert.h"
#include "kernels/residual_norm.h"
#include "kernels/shift_scale.h"
#include "runtime/profiler.h"

namespace hadal {
namespace {

float* FloatsAt(std::byte* saved, int64_t offset) { return reinterpret_cast<float*>(saved + offset); }

}  // namespace

Segment::Segment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity)
    : first_(first),
      last_(last),
      stack_(plan.sublayers[first].stack),
      pre_norm_(plan.sublayers[first].norm == NormPlacement::kPre),
      d_model_(plan.options.d_model),
      dropout_(plan.options.dropout),
      compute_storage_(plan.compute_storage),
      residual_storage_(plan.residual_storage(stack_)),
      output_storage_(plan.ends_stack(last) && !plan.Combines(stack_) ? compute_storage_ : residual_storage_) {
  HADAL_CHECK_LT(first, last);
  const int64_t rows = capacity.rows(stack_);
  // Every offset is on 16 bytes, because on a device a product's bits depend on the alignment of its rows.
  const auto reserve = [this](int64_t bytes) {
    const int64_t offset = saved_.bytes();
    saved_.TakeBytes(bytes);
    return offset;
  };
  const int64_t floats = BytesOf(Storage::kFloat32);
  const int64_t of_residual = rows * d_model_ * BytesOf(residual_storage_);
  const int64_t of_product = rows * d_model_ * BytesOf(compute_storage_);
  if (plan.Combines(stack_)) {
    HADAL_CHECK_EQ(plan.NextCut(first + 1), last);
    combination_.emplace(plan, first, rows);
    combination_saved_ = reserve(combination_->saved_bytes());
    combined_ = reserve(of_residual);
  }
  const size_t count = last - first;
  skipped_from_.assign(count, false);
  for (size_t j = 0; j <= count; ++j) {
    Joint joint = MakeJoint(plan, j);
    const bool is_output = j == count;
    if (j > 0 && plan.sublayers[first + j - 1].learned_gain >= 0) joint.branch = reserve(of_product);
    const bool has_norm = joint.norm_scale >= 0;
    // The norm's input has a place in `saved`, except at joint 0, where it is x. A sum that is the segment's output is
    // written to `out`.
    const bool sum_is_output = is_output && joint.closing_shift < 0 && output_storage_ == residual_storage_;
    if (j > 0 && (has_norm || !sum_is_output)) joint.sum = reserve(of_residual);
    if (has_norm) {
      if (!is_output || NormedApart()) joint.normed = reserve(of_product);
      joint.mean = reserve(rows * floats);
      joint.rstd = reserve(rows * floats);
    } else if (!is_output && !pre_norm_ && residual_storage_ != compute_storage_) {
      joint.rounded = reserve(of_product);
    }
    joints_.push_back(joint);
    if (is_output) break;
    branches_.push_back(MakeBranch(plan, first + static_cast<int32_t>(j)));
    branch_saved_.push_back(reserve(branches_.back()->SavedBytes(capacity)));
  }
}

Segment::Joint Segment::MakeJoint(const ModelPlan& plan, size_t index) {
  const int32_t before = first_ + static_cast<int32_t>(index) - 1;  // the sublayer that this joint ends
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

ConstAnyMatrix Segment::ResidualAfter(size_t index, ConstAnyMatrix x, const std::byte* saved) const {
  if (index == 0) return x;
  const Joint& joint = joints_[index];
  return ResidualAt(saved, joint.output_is_normed ? joint.normed : joint.sum, x.rows);
}

ConstAnyMatrix Segment::BranchInput(size_t index, ConstAnyMatrix x, const std::byte* saved) const {
  const Joint& joint = joints_[index];
  if (pre_norm_) return ProductAt(saved, joint.normed, x.rows);
  return joint.rounded >= 0 ? ProductAt(saved, joint.rounded, x.rows) : ResidualAfter(index, x, saved);
}

AnyMatrix Segment::SumOf(size_t index, std::byte* saved, AnyMatrix out) const {
  const Joint& joint = joints_[index];
  const bool is_output = index == branches_.size() && !joint.output_is_normed && joint.closing_shift < 0 &&
                         output_storage_ == residual_storage_;
  return is_output ? out : ResidualAt(saved, joint.sum, out.rows);
}

void Segment::ForwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix x, ConstAnyMatrix branch,
                           std::byte* saved, AnyMatrix out) const {
  const Joint& joint = joints_[index];
  const bool is_output = index == branches_.size();
  const bool has_norm = joint.norm_scale >= 0;
  const int64_t rows = x.rows;
  ResidualNormForwardArgs args{.residual = x};
  if (index > 0) {
    args.residual = ResidualAfter(index - 1, x, saved);
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
      args.skip = ResidualAfter(joint.skip_from, x, saved);
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
    Convert(context.stream, {.from = ResidualAfter(index, x, saved), .to = ProductAt(saved, joint.rounded, rows)});
  }
  if (is_output && !has_norm && joint.closing_shift < 0 && output_storage_ != residual_storage_) {
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

void Segment::ObserveForward(const SublayerContext& context, size_t index, ConstAnyMatrix x, const std::byte* saved,
                             ConstAnyMatrix out) const {
  const Joint& joint = joints_[index];
  const int32_t closed = first_ + static_cast<int32_t>(index) - 1;
  const bool is_output = index == branches_.size();
  const ConstAnyMatrix sum = index == 0 ? x : ResidualAt(saved, joint.sum, x.rows);
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
                               : is_output     ? out
                                               : ResidualAfter(index, x, saved),
                     .before = ResidualAfter(index - 1, x, saved)});
  }
  if (pre_norm_ && !is_output) {
    context.Observe({.tensor = DepthTensor::kNormInput, .sublayer = closed + 1, .values = sum});
  }
}

ConstAnyMatrix Segment::Input(ConstAnyMatrix x, const std::byte* saved, int64_t rows) const {
  return combination_ ? ConstAnyMatrix(ResidualAt(saved, combined_, rows)) : x;
}

void Segment::Forward(const SublayerContext& context, ConstAnyMatrix x, std::byte* saved, AnyMatrix out) const {
  if (combination_) {
    combination_->Forward(context.stream, context.parameters, x, saved + combination_saved_,
                          ResidualAt(saved, combined_, out.rows));
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
      context.profile->End(context.stream, context.plan().sublayers[sublayer], ResidualAfter(i, x, saved).Rows(0, rows),
                           SumOf(i + 1, saved, out).Rows(0, rows));
    }
    context.Progress();
  }
}

}  // namespace hadal

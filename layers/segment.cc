// Segment: consecutive residual sublayers of one stack. Activation recomputation drops and recomputes whole segments. A
// segment is a part (chunk_part.h) with one backward step per sublayer.
//
// Between sublayers are *joints*. Joint j (j ≥ 1) ends sublayer j−1: one kernel (kernels/residual_norm.h) computes
//   s = r·x + b·dropout(F(x) + bias)
// and the norm that follows. Post-norm: that is the norm of sublayer j−1. Pre-norm: that is the norm of sublayer j.
// Joint 0 exists for pre-norm only: the first sublayer's norm alone, with the same bits as the fused norm. A pre-norm
// segment ends with the plain sum, or, at the end of a stack, with the closing norm.
//
//   post-norm:  x ─ F_0 ─ joint 1 (LN_0) ─ F_1 ─ joint 2 (LN_1) → y = normed
//   pre-norm:   x ─ joint 0 (LN_0) ─ F_0 ─ joint 1 (sum, LN_1) ─ F_1 ─ joint 2 (sum[, closing LN]) → sum or normed
//   no norm:    x ─ F_0 ─ joint 1 (sum) ─ F_1 ─ joint 2 (sum) → y = sum
// If a stack combines the outputs of all earlier layers (layer_combination.h), a segment is one layer. x is then the
// stack's history [l·R, d], joint 0 follows the combination, and the last joint of a pre-norm layer ends with the norm
// of the layer's output.
// With a second stream (second_stream.h) a joint's kernel also updates that one, in the same pass over memory.
// A joint may also add the layer's input (skip_gain); the whole layer is then in one segment. In R-Fixup, which has no
// norms, learned scalars follow the last sum of a stack: y = g·(sum − b).
//
// Tensors: reads x and, in a decoder, encoder_output; writes y. Backward is in place (d_x is d_y's memory), except if x
// is a history: then it overwrites d_y and adds to d_x, the history's gradient, in fp32.
// Pending, numerics, threads: segment_frame.h.
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/convert.h"
#include "kernels/residual_norm.h"
#include "kernels/shift_scale.h"
#include "layers/chunk_part.h"
#include "layers/layer_combination.h"
#include "layers/model_plan.h"
#include "layers/segment_frame.h"
#include "runtime/check.h"
#include "runtime/profiler.h"

namespace hadal {
namespace {

class Segment final : public SegmentFrame {
 public:
  // Sublayers [first, last) of the plan.  REQUIRES: first < last; residual sublayers of one stack and one placement of
  // norms.
  Segment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity);

  // Calls the context's progress callback after each sublayer.
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;

 private:
  // A tensor's place in `saved`, or in saved_input.
  struct SavedOffset {
    int64_t offset = 0;
    bool in_input = false;
  };
  // Byte offsets of tensors [rows, d] in `saved`; `branch`, `mean` and `rstd` (both [rows]) are in saved_input. Stored
  // types: `sum` as the residual stream; `branch`, `normed` and `rounded` in the compute type (`normed` of post-norm
  // sublayers as the residual stream).
  struct Joint {
    int32_t norm_scale = -1;  // parameter; its shift follows. -1: no norm
    float norm_gain = 1;      // k, of the sublayer that reads the norm; 1 for a norm that ends a sublayer or a stack
    bool output_is_normed = true;
    SavedOffset sum;  // without norms products read it
    int64_t normed = 0, mean = 0, rstd = 0;
    // The residual stream in the compute type; only without a following norm and if the two types differ.
    int64_t rounded = -1;
    int64_t branch = -1;                             // the output of the branch; saved only if its gain is learned
    int32_t skip_from = -1;                          // the sublayer of this segment whose input is also added; -1: none
    int32_t omega = -1;                              // parameter; -1: none
    int32_t closing_shift = -1, closing_scale = -1;  // parameters; -1: none
  };

  Joint MakeJoint(const ModelPlan& plan, size_t index);
  // Returns whether the norm at the end of the segment writes a type other than y's. This is so for the norm of a
  // pre-norm layer's output, which is stored in a history.
  bool NormedApart() const { return output_storage_ != storage_; }
  // The tensors as seen by the sublayers: x [R, d] is the input of the first one, after the combination if any.
  Tensors With(const SublayerContext& context, const PartTensors& tensors) const override;
  void ForwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix branch, const Tensors& t) const;
  void BackwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix d_normed, const Tensors& t) const;
  // Returns the sum of joint `index`.
  AnyMatrix SumOf(size_t index, const Tensors& t) const;
  // Returns the gradient of joint `index`'s norm output in the compute type; empty without a norm.
  ConstAnyMatrix NormedGradient(const SublayerContext& context, size_t index, const Tensors& t) const;
  // Computes the backward of the closing scalars, in place.
  void BackwardClosing(const SublayerContext& context, const Tensors& t) const;
  // Report tensors of joint `index` to the observer: its results, and the gradients before and after its backward.
  void ObserveForward(const SublayerContext& context, size_t index, const Tensors& t) const;
  void ObserveBackwardBefore(const SublayerContext& context, size_t index, ConstAnyMatrix d_normed,
                             const Tensors& t) const;
  void ObserveBackwardAfter(const SublayerContext& context, size_t index, const Tensors& t) const;
  // Returns where joint `index` keeps its sum.
  AnyMatrix KeptSum(size_t index, const Tensors& t) const;
  // Returns the residual stream after joint `index` (index 0: x).
  ConstAnyMatrix ResidualAfter(size_t index, const Tensors& t) const;
  ConstAnyMatrix BranchInput(size_t index, const Tensors& t) const override;
  Vector StatisticAt(int64_t offset, const Tensors& t) const {
    return {FloatsAt(t.saved_input, offset, t.rows, 1).data, t.rows};
  }
  // Returns `rows` rows at an offset into `saved`, in the residual stream's type.
  AnyMatrix ResidualAt(std::byte* saved, int64_t offset, int64_t rows) const {
    return {saved + offset, rows, d_model_, residual_storage_};
  }

  int32_t last_;
  bool pre_norm_;
  Storage residual_storage_, output_storage_;
  std::optional<LayerCombination> combination_;
  int64_t combination_saved_ = 0, combined_ = 0;  // the combination's saved tensors in saved_input; its result
  std::vector<Joint> joints_;                     // branches + 1
  std::vector<bool> skipped_from_;                // whether a later joint adds the sublayer's input
};

Segment::Segment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity)
    : SegmentFrame(plan, first, last, capacity),
      last_(last),
      pre_norm_(plan.sublayers[first].norm == NormPlacement::kPre),
      residual_storage_(plan.residual_storage(stack_)),
      output_storage_(plan.segment_storage(stack_, last)) {
  for (int32_t s = first; s < last; ++s) HADAL_CHECK(plan.sublayers[s].norm == plan.sublayers[first].norm);
  // [R, d] in the residual stream's type, and in the compute type.
  const auto residual = [&](SavedTensors& tensors) { return Reserve(tensors, d_model_, residual_storage_); };
  const auto product = [&](SavedTensors& tensors) { return Reserve(tensors, d_model_, storage_); };
  if (plan.Combines(stack_)) {
    HADAL_CHECK_EQ(plan.NextCut(first + 1), last);
    combination_.emplace(plan, first, capacity.rows(stack_));
    combination_saved_ = input_.Reserve(combination_->saved_bytes());
    combined_ = residual(kept_);
  }
  const size_t count = last - first;
  skipped_from_.assign(count, false);
  for (size_t j = 0; j <= count; ++j) {
    Joint joint = MakeJoint(plan, j);
    const bool is_output = j == count;
    if (j > 0 && plan.sublayers[first + j - 1].learned_gain >= 0) joint.branch = product(input_);
    const bool has_norm = joint.norm_scale >= 0;
    // The norm's input has a place in `saved`, except at joint 0, where it is x. A sum that is the segment's output is
    // written to `out`.
    const bool sum_is_output = is_output && joint.closing_shift < 0 && output_storage_ == residual_storage_;
    if (j > 0 && (has_norm || !sum_is_output)) {
      joint.sum.in_input = plan.sublayers[first].norm != NormPlacement::kNone;
      joint.sum.offset = residual(joint.sum.in_input ? input_ : kept_);
    }
    if (has_norm) {
      if (!is_output || NormedApart()) joint.normed = product(kept_);
      for (int64_t* at : {&joint.mean, &joint.rstd}) *at = Reserve(input_, 1);
    } else if (!is_output && !pre_norm_ && residual_storage_ != storage_) {
      joint.rounded = product(kept_);
    }
    joints_.push_back(joint);
  }
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

Segment::Tensors Segment::With(const SublayerContext& context, const PartTensors& tensors) const {
  Tensors t = SegmentFrame::With(context, tensors);
  if (combination_) t.x = ResidualAt(t.saved, combined_, t.rows);
  return t;
}

ConstAnyMatrix Segment::ResidualAfter(size_t index, const Tensors& t) const {
  if (index == 0) return t.x;
  const Joint& joint = joints_[index];
  return joint.output_is_normed ? ResidualAt(t.saved, joint.normed, t.rows) : KeptSum(index, t);
}

AnyMatrix Segment::KeptSum(size_t index, const Tensors& t) const {
  const SavedOffset& sum = joints_[index].sum;
  return ResidualAt(sum.in_input ? t.saved_input : t.saved, sum.offset, t.rows);
}

ConstAnyMatrix Segment::BranchInput(size_t index, const Tensors& t) const {
  const Joint& joint = joints_[index];
  if (pre_norm_) return ProductAt(t.saved, joint.normed, t.rows);
  return joint.rounded >= 0 ? ProductAt(t.saved, joint.rounded, t.rows) : ResidualAfter(index, t);
}

AnyMatrix Segment::SumOf(size_t index, const Tensors& t) const {
  const Joint& joint = joints_[index];
  const bool is_output = index == branches_.size() && !joint.output_is_normed && joint.closing_shift < 0 &&
                         output_storage_ == residual_storage_;
  return is_output ? t.y : KeptSum(index, t);
}

void Segment::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  const Tensors t = With(context, tensors);
  if (combination_) {
    combination_->Combine(context.stream, context.parameters, tensors.x, t.saved_input + combination_saved_,
                          ResidualAt(t.saved, combined_, t.rows));
  }
  if (pre_norm_ || joints_[0].rounded >= 0) ForwardJoint(context, 0, {}, t);
  for (size_t i = 0; i < branches_.size(); ++i) {
    const int32_t sublayer = SublayerAt(i);
    const ProfilerRange range(context.stream, "sublayer", sublayer);
    const int64_t kept = joints_[i + 1].branch;
    PartTensors of_branch = BranchTensors(context, i, t);
    of_branch.y = kept < 0 ? context.workspace.branch(t.rows) : ProductAt(t.saved_input, kept, t.rows);
    branches_[i].branch->Forward(context, of_branch);
    context.Observe({.tensor = DepthTensor::kBranch, .sublayer = sublayer, .values = of_branch.y});
    ForwardJoint(context, i + 1, of_branch.y, t);
    context.Progress();
  }
}

void Segment::ForwardJoint(const SublayerContext& context, size_t index, ConstAnyMatrix branch,
                           const Tensors& t) const {
  const Joint& joint = joints_[index];
  const bool is_output = index == branches_.size();
  const bool has_norm = joint.norm_scale >= 0;
  const int64_t rows = t.rows;
  ResidualNormForwardArgs args{.residual = t.x};
  if (index > 0) {
    args.residual = ResidualAfter(index - 1, t);
    const int32_t sublayer = SublayerAt(index - 1);
    const SublayerRecord& record = context.plan().sublayers[sublayer];
    args.branch = branch;
    SetBranch(context, index - 1, t, args);
    args.learned_branch_gain = context.parameters.WeightVector(record.learned_gain);
    args.residual_gain = record.residual_gain;
    args.learned_residual_gain = context.parameters.WeightVector(joint.omega);
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
    args.shift = context.parameters.WeightVector(context.plan().NormShift(joint.norm_scale));
    args.form = context.plan().norm_form();
    args.norm_gain = joint.norm_gain;
    args.normed = is_output && !NormedApart() ? t.y : ProductAt(t.saved, joint.normed, rows);
    args.mean = StatisticAt(joint.mean, t);
    args.rstd = StatisticAt(joint.rstd, t);
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

void Segment::ObserveForward(const SublayerContext& context, size_t index, const Tensors& t) const {
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
  const Tensors t = With(context, tensors);
  const size_t index = static_cast<size_t>(step) + 1;  // the joint that ends the sublayer
  const ProfilerRange range(context.stream, "sublayer", first_ + step);
  if (index == branches_.size()) BackwardClosing(context, t);
  BackwardJoint(context, index, NormedGradient(context, index, t), t);
  PartTensors of_branch = BranchTensors(context, step, t);
  if (!pre_norm_) of_branch.d_x = t.d_y;
  branches_[step].branch->BackwardInput(context, of_branch, /*accumulate=*/!pre_norm_);
  if (skipped_from_[step]) {  // d_y += the gradient through the skip
    ResidualNormForward(context.stream,
                        {.residual = t.d_y, .branch = context.workspace.layer_input_gradient(t.rows), .sum = t.d_y});
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

ConstAnyMatrix Segment::NormedGradient(const SublayerContext& context, size_t index, const Tensors& t) const {
  const AnyMatrix d_input = context.workspace.branch_input_gradient(t.rows);
  if (index < branches_.size() && pre_norm_) return d_input;  // of the branch that follows
  if (!joints_[index].output_is_normed) return {};
  if (index < branches_.size() || storage_ == residual_storage_) return t.d_y;
  Convert(context.stream, {.from = t.d_y, .to = d_input});
  return d_input;
}

void Segment::BackwardClosing(const SublayerContext& context, const Tensors& t) const {
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
                            const Tensors& t) const {
  const Joint& joint = joints_[index];
  const int64_t rows = t.rows;
  if (context.observer != nullptr) ObserveBackwardBefore(context, index, d_normed, t);
  ResidualNormBackwardArgs args{.d_normed = d_normed, .d_residual = t.d_y};
  if (!joint.output_is_normed) args.d_sum = t.d_y;
  if (index > 0) {
    const int32_t sublayer = SublayerAt(index - 1);
    const SublayerRecord& record = context.plan().sublayers[sublayer];
    args.residual_gain = record.residual_gain;
    if (joint.omega >= 0) {
      args.residual = ResidualAfter(index - 1, t);
      args.learned_residual_gain = context.parameters.WeightVector(joint.omega);
      args.d_learned_residual_gain = context.parameters.GradientVector(joint.omega);
    }
    SetBranch(context, index - 1, t, args);
    args.second_gain = record.second_gain;
    args.d_second = t.d_second;
    args.second_starts = !t.d_second.empty() && context.plan().begins_stack(sublayer);
    if (joint.skip_from >= 0) {
      args.d_skip = context.workspace.layer_input_gradient(rows);
      context.stream.Clear(args.d_skip.data, rows * d_model_ * int64_t{sizeof(float)});
      args.skip_gain = record.skip_gain;
    }
    if (record.learned_gain >= 0) {
      args.branch = ProductAt(t.saved_input, joint.branch, rows);
      args.learned_branch_gain = context.parameters.WeightVector(record.learned_gain);
      args.d_learned_branch_gain = context.parameters.GradientVector(record.learned_gain);
    }
  }
  if (joint.norm_scale >= 0) {
    args.sum = index == 0 ? t.x : ConstAnyMatrix(KeptSum(index, t));
    args.mean = StatisticAt(joint.mean, t);
    args.rstd = StatisticAt(joint.rstd, t);
    args.scale = context.parameters.WeightVector(joint.norm_scale);
    args.norm_gain = joint.norm_gain;
    args.form = context.plan().norm_form();
    args.d_scale = context.parameters.GradientVector(joint.norm_scale);
    args.d_shift = context.parameters.GradientVector(context.plan().NormShift(joint.norm_scale));
  }
  args.partials = context.workspace.norm_partials();
  args.batch = context.gradients;
  ResidualNormBackward(context.stream, args);
  if (context.observer != nullptr && index > 0) ObserveBackwardAfter(context, index, t);
}

void Segment::ObserveBackwardBefore(const SublayerContext& context, size_t index, ConstAnyMatrix d_normed,
                                    const Tensors& t) const {
  const int32_t closed = first_ + static_cast<int32_t>(index) - 1;
  if (!pre_norm_) {
    context.Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = closed, .values = t.d_y});
    if (joints_[index].norm_scale < 0) return;
    context.Observe({.tensor = DepthTensor::kNormOutputGradient, .sublayer = closed, .values = d_normed});
  } else if (index < branches_.size()) {
    context.Observe({.tensor = DepthTensor::kNormOutputGradient, .sublayer = closed + 1, .values = d_normed});
  }
}

void Segment::ObserveBackwardAfter(const SublayerContext& context, size_t index, const Tensors& t) const {
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

std::unique_ptr<Branch> MakeKind(const ModelPlan& plan, int32_t sublayer) {
  switch (plan.sublayers[sublayer].kind) {
    case SublayerKind::kSelfAttention:
    case SublayerKind::kCrossAttention:
      return MakeAttention(plan, sublayer);
    case SublayerKind::kFeedForward:
      return MakeFeedForward(plan, sublayer);
    default:
      break;
  }
  HADAL_CHECK(false && "embeddings and the head are not residual branches");
  return nullptr;
}

}  // namespace

std::unique_ptr<ChunkPart> MakeSegment(const ModelPlan& plan, int32_t first, int32_t last,
                                       const ActivationCapacity& capacity) {
  if (plan.Residuals(plan.sublayers[first].stack) > 1) {
    return MakeHyperSegment(plan, first, last, capacity);
  }
  if (plan.ReadsBlocks(plan.sublayers[first].stack)) return MakeBlockReadingSegment(plan, first, last, capacity);
  return std::make_unique<Segment>(plan, first, last, capacity);
}

std::unique_ptr<Branch> MakeBranch(const ModelPlan& plan, int32_t sublayer) {
  std::unique_ptr<Branch> branch = MakeKind(plan, sublayer);
  const bool normed = plan.ParameterOf(sublayer, ParameterRole::kInputNormScale) >= 0 ||
                      plan.ParameterOf(sublayer, ParameterRole::kOutputNormScale) >= 0;
  return normed ? MakeNormedBranch(plan, sublayer, std::move(branch)) : std::move(branch);
}

}  // namespace hadal

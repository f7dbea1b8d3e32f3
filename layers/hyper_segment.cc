// HyperSegment: consecutive residual sublayers of a stack with n > 1 residual streams (manifold-constrained
// hyper-connections: mHC, arXiv 2512.24880; mHC-lite, arXiv 2601.05732). What Segment (segment.cc) is for one stream: a
// part with one backward step per sublayer, the unit of recomputation.
//
//   before the stack      X = n copies of x_0
//   sublayer              u = H_pre·X;  f = b·dropout(F(k·LN(u)) + bias);  X' = H_res·X + H_postᵀ·f
//   behind the stack      y = LN(mean of the residuals)
// The maps H depend on X (kernels/hyper_connection.h has them and the sources). Copies and mean as in Megatron-LM.
// Ours: each stack of an encoder-decoder has its own residuals, and cross-attention is a sublayer with maps like the
// others; one dropout mask for f, before H_postᵀ.
//
// Tensors: x and y are [n·R, d]: the residuals of a row side by side. Where the stack begins, x is [R, d]; where it
// ends, y.
// Backward is in place: d_y and d_x begin at one address with room for n·R rows. A decoder reads encoder_output.
// Memory traffic of a sublayer beside its branch, in rows of d, with n = 4: forward 18 for the residuals
// (kernels/hyper_connection.h), 2 for the norm, 3 for f; backward 39, 3 and 3. Each live micro-batch keeps n + 3 rows a
// sublayer beside the branch's tensors (X, u, LN(u), f), with recomputation n a segment.
// Storage: residuals, u, f, maps and their gradients are fp32, as the maps' weights; LN(u), the branch and y where the
// stack ends as products (ModelPlan::compute_storage).
// Pending: the gradient of the branch's output [R, d], that of the maps' product, then the branch's own.
// Numerics: the division of a model into segments does not change any bit.
// Thread safety: const after construction; one micro-batch at a time per workspace.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/convert.h"
#include "kernels/hyper_connection.h"
#include "kernels/linear.h"
#include "kernels/residual_norm.h"
#include "layers/branch_parts.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"
#include "runtime/check.h"
#include "runtime/profiler.h"

namespace hadal {
namespace {

class HyperSegment final : public ChunkPart {
 public:
  // Sublayers [first, last) of the plan.  REQUIRES: first < last; residual sublayers of a stack with several streams.
  HyperSegment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity);

  int64_t saved_bytes() const override { return kept_.bytes() + input_.bytes(); }
  int64_t saved_input_bytes() const override { return input_.bytes(); }
  int32_t steps() const override { return static_cast<int32_t>(sublayers_.size()); }
  int64_t pending_bytes(int32_t step) const override {
    return pending_.bytes() + sublayers_[step].branch->PendingBytes(capacity_);
  }
  // Calls the context's progress callback after each sublayer.
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;
  void BackwardWeight(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;

 private:
  // Byte offsets: of `residuals`, `normed` and branch_saved.kept in `saved`, of all others in saved_input.
  struct Sublayer {
    std::unique_ptr<Branch> branch;
    int32_t weight = -1;  // parameter of the maps; their gates and bias follow
    PlainNorm norm;
    int64_t residuals = -1;  // X; −1: the segment's input
    int64_t normed = 0, projected = 0, maps = 0, inverse_rms = 0, read = 0, mean = 0, rstd = 0, result = 0;
    SavedBytes branch_saved;
  };
  // saved_input is not null.
  struct Tensors : PartTensors {
    int64_t rows = 0;  // R
  };
  Tensors With(const SublayerContext& context, const PartTensors& tensors) const;
  // Stored as products are.
  AnyMatrix ProductAt(std::byte* saved, int64_t offset, int64_t rows) const {
    return {saved + offset, rows, d_model_, storage_};
  }
  Matrix At(std::byte* saved, int64_t offset, int64_t rows, int64_t columns) const {
    return {reinterpret_cast<float*>(saved + offset), rows, columns};
  }
  Vector VectorAt(std::byte* saved, int64_t offset, int64_t rows) const {
    return {reinterpret_cast<float*>(saved + offset), rows};
  }
  // The residuals in front of sublayer `index`.
  ConstMatrix ResidualsAt(size_t index, const Tensors& t) const;
  // Where sublayer `index` writes its streams.
  Matrix ResidualsBehind(size_t index, const Tensors& t) const;
  // The gradient of the residuals, in d_y's memory.
  Matrix ResidualsGradient(const Tensors& t) const { return {t.d_y.floats().data, t.rows, residuals_ * d_model_}; }
  AnyMatrix BranchGradient(const Tensors& t) const { return ProductAt(t.pending, 0, t.rows); }
  // The gradient of the maps, and that of their product: the same memory, but with permutations.
  Matrix MapsGradient(const Tensors& t) const { return MapsGradients(t).Columns(0, maps_); }
  Matrix LogitsGradient(const Tensors& t) const {
    const Matrix both = MapsGradients(t);
    return both.Columns(both.columns - logits_, logits_);
  }
  Matrix MapsGradients(const Tensors& t) const { return At(t.pending, maps_pending_, t.rows, MapsGradientColumns()); }
  int64_t MapsGradientColumns() const { return mixing_ == HyperMixing::kSinkhorn ? maps_ : maps_ + logits_; }
  PartTensors BranchTensors(const SublayerContext& context, size_t index, const Tensors& t) const;
  void ForwardSublayer(const SublayerContext& context, size_t index, const Tensors& t) const;
  void ForwardEnd(const SublayerContext& context, const Tensors& t) const;
  void BackwardEnd(const SublayerContext& context, const Tensors& t) const;
  // f of sublayer `index`, and from its gradient that of the branch's output.
  void ForwardResult(const SublayerContext& context, size_t index, const Tensors& t, ConstAnyMatrix branch) const;
  void BackwardResult(const SublayerContext& context, size_t index, const Tensors& t, Matrix d_result) const;

  int32_t first_;
  ActivationCapacity capacity_;
  Stack stack_;
  Storage storage_;
  int64_t d_model_, residuals_;
  HyperMixing mixing_;
  int64_t maps_, logits_;
  double dropout_;
  bool begins_, ends_;  // whether the stack does
  PlainNorm closing_norm_;
  int64_t last_residuals_ = 0, mean_of_residuals_ = 0, closing_mean_ = 0,
          closing_rstd_ = 0;  // in saved_input, if ends_
  std::vector<Sublayer> sublayers_;
  SavedTensors<std::byte> kept_{nullptr}, input_{nullptr}, pending_{nullptr};  // compute sizes only
  int64_t maps_pending_ = 0;
};

HyperSegment::HyperSegment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity)
    : first_(first),
      capacity_(capacity),
      stack_(plan.sublayers[first].stack),
      storage_(plan.compute_storage),
      d_model_(plan.options.d_model),
      residuals_(plan.Residuals(stack_)),
      mixing_(plan.Method(stack_).residual_mixing),
      maps_(HyperMaps(residuals_)),
      logits_(HyperLogits(mixing_, residuals_)),
      dropout_(plan.options.dropout),
      begins_(plan.begins_stack(first)),
      ends_(plan.ends_stack(last)) {
  HADAL_CHECK_LT(first, last);
  HADAL_CHECK_GT(residuals_, 1);
  const int64_t rows = capacity.rows(stack_);
  const auto reserve_bytes = [](SavedTensors<std::byte>& tensors, int64_t bytes) {
    const int64_t offset = tensors.bytes();
    tensors.TakeBytes(bytes);
    return offset;
  };
  const auto reserve = [&](SavedTensors<std::byte>& tensors, int64_t columns, Storage storage = Storage::kFloat32) {
    return reserve_bytes(tensors, rows * columns * BytesOf(storage));
  };
  for (int32_t s = first; s < last; ++s) {
    Sublayer& sublayer = sublayers_.emplace_back();
    sublayer.branch = MakeBranch(plan, s);
    sublayer.weight = plan.ParameterOf(s, ParameterRole::kHyperMapWeight);
    sublayer.norm = PlainNorm(plan.ParameterOf(s, ParameterRole::kNormScale), plan.sublayers[s].norm_gain);
    if (s > first || begins_) sublayer.residuals = reserve(kept_, residuals_ * d_model_);
    sublayer.normed = reserve(kept_, d_model_, storage_);
    sublayer.projected = reserve(input_, logits_);
    sublayer.maps = reserve(input_, maps_);
    for (int64_t* at : {&sublayer.inverse_rms, &sublayer.mean, &sublayer.rstd}) *at = reserve(input_, 1);
    for (int64_t* at : {&sublayer.read, &sublayer.result}) *at = reserve(input_, d_model_);
    const SavedBytes bytes = sublayer.branch->BytesToSave(capacity);
    sublayer.branch_saved = {.kept = reserve_bytes(kept_, bytes.kept), .input = reserve_bytes(input_, bytes.input)};
  }
  reserve(pending_, d_model_, storage_);
  maps_pending_ = reserve(pending_, MapsGradientColumns());
  if (!ends_) return;
  closing_norm_ = PlainNorm(plan, last - 1, ParameterRole::kClosingNormScale);
  last_residuals_ = reserve(input_, residuals_ * d_model_);
  mean_of_residuals_ = reserve(input_, d_model_);
  closing_mean_ = reserve(input_, 1);
  closing_rstd_ = reserve(input_, 1);
}

HyperSegment::Tensors HyperSegment::With(const SublayerContext& context, const PartTensors& tensors) const {
  Tensors t{tensors, context.rows(stack_)};
  if (t.saved_input == nullptr) t.saved_input = t.saved + kept_.bytes();
  return t;
}

ConstMatrix HyperSegment::ResidualsAt(size_t index, const Tensors& t) const {
  const int64_t columns = residuals_ * d_model_;
  if (sublayers_[index].residuals < 0) return {t.x.floats().data, t.rows, columns};
  return At(t.saved, sublayers_[index].residuals, t.rows, columns);
}

Matrix HyperSegment::ResidualsBehind(size_t index, const Tensors& t) const {
  const int64_t columns = residuals_ * d_model_;
  if (index + 1 < sublayers_.size()) return At(t.saved, sublayers_[index + 1].residuals, t.rows, columns);
  return ends_ ? At(t.saved_input, last_residuals_, t.rows, columns) : Matrix(t.y.floats().data, t.rows, columns);
}

void HyperSegment::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  const Tensors t = With(context, tensors);
  if (begins_) {
    CopyToResiduals(context.stream,
                    {.x = t.x.floats(), .y = At(t.saved, sublayers_[0].residuals, t.rows, residuals_ * d_model_)});
  }
  for (size_t i = 0; i < sublayers_.size(); ++i) {
    const ProfilerRange range(context.stream, "sublayer", first_ + static_cast<int32_t>(i));
    ForwardSublayer(context, i, t);
    context.Progress();
  }
  if (ends_) ForwardEnd(context, t);
}

void HyperSegment::ForwardSublayer(const SublayerContext& context, size_t index, const Tensors& t) const {
  const Sublayer& s = sublayers_[index];
  const int32_t sublayer = first_ + static_cast<int32_t>(index);
  const ParameterStore& parameters = context.parameters;
  const ConstMatrix x = ResidualsAt(index, t);
  const Matrix projected = At(t.saved_input, s.projected, t.rows, logits_),
               maps = At(t.saved_input, s.maps, t.rows, maps_);
  const Matrix read = At(t.saved_input, s.read, t.rows, d_model_);
  LinearForward(context.stream, {.x = x, .weight = parameters.ProductWeight(s.weight), .y = projected});
  HyperReadForward(context.stream, {.x = x,
                                    .mixing = mixing_,
                                    .projected = projected,
                                    .gates = parameters.WeightVector(s.weight + 1),
                                    .bias = parameters.WeightVector(s.weight + 2),
                                    .maps = maps,
                                    .rstd = VectorAt(t.saved_input, s.inverse_rms, t.rows),
                                    .u = read});
  context.Observe({.tensor = DepthTensor::kNormInput, .sublayer = sublayer, .values = read});
  const AnyMatrix normed = ProductAt(t.saved, s.normed, t.rows);
  s.norm.Forward(context.stream, parameters, read, normed, VectorAt(t.saved_input, s.mean, t.rows),
                 VectorAt(t.saved_input, s.rstd, t.rows));
  PartTensors of_branch{.x = normed, .encoder_output = t.encoder_output, .y = context.workspace.branch(t.rows)};
  of_branch.saved = t.saved + s.branch_saved.kept;
  of_branch.saved_input = t.saved_input + s.branch_saved.input;
  s.branch->Forward(context, of_branch);
  context.Observe({.tensor = DepthTensor::kBranch, .sublayer = sublayer, .values = of_branch.y});
  ForwardResult(context, index, t, of_branch.y);
  const Matrix y = ResidualsBehind(index, t);
  HyperWriteForward(context.stream, {.x = x, .maps = maps, .f = At(t.saved_input, s.result, t.rows, d_model_), .y = y});
  context.Observe({.tensor = DepthTensor::kOutput, .sublayer = sublayer, .values = y, .before = x});
}

// The residual connection's kernel without its residual: 0·u + b·dropout(F + bias).
void HyperSegment::ForwardResult(const SublayerContext& context, size_t index, const Tensors& t,
                                 ConstAnyMatrix branch) const {
  const Sublayer& s = sublayers_[index];
  const int32_t sublayer = first_ + static_cast<int32_t>(index);
  ResidualNormForwardArgs args{.residual = At(t.saved_input, s.read, t.rows, d_model_), .branch = branch};
  args.bias = context.parameters.WeightVector(s.branch->output_bias());
  args.residual_gain = 0;
  args.branch_gain = BranchGain(context.plan().sublayers[sublayer], context.scalars.growth_update());
  args.device_branch_gain = context.DeviceBranchGain(sublayer);
  args.dropout = context.MakeDropout(dropout_, sublayer, RandomSite::kResidual);
  args.sum = At(t.saved_input, s.result, t.rows, d_model_);
  ResidualNormForward(context.stream, args);
}

void HyperSegment::ForwardEnd(const SublayerContext& context, const Tensors& t) const {
  const Matrix mean = At(t.saved_input, mean_of_residuals_, t.rows, d_model_);
  SumResiduals(context.stream, {.x = At(t.saved_input, last_residuals_, t.rows, residuals_ * d_model_),
                                .gain = 1.0f / static_cast<float>(residuals_),
                                .y = mean});
  closing_norm_.Forward(context.stream, context.parameters, mean, t.y, VectorAt(t.saved_input, closing_mean_, t.rows),
                        VectorAt(t.saved_input, closing_rstd_, t.rows));
}

PartTensors HyperSegment::BranchTensors(const SublayerContext& context, size_t index, const Tensors& t) const {
  const Sublayer& s = sublayers_[index];
  return {.x = ProductAt(t.saved, s.normed, t.rows),
          .encoder_output = t.encoder_output,
          .saved = t.saved + s.branch_saved.kept,
          .saved_input = t.saved_input + s.branch_saved.input,
          .d_y = BranchGradient(t),
          .d_x = context.workspace.branch_input_gradient(t.rows),
          .d_encoder_output = t.d_encoder_output,
          .pending = t.pending + pending_.bytes()};
}

void HyperSegment::BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const {
  const Tensors t = With(context, tensors);
  const Sublayer& s = sublayers_[step];
  const int32_t sublayer = first_ + step;
  const ProfilerRange range(context.stream, "sublayer", sublayer);
  const ParameterStore& parameters = context.parameters;
  if (ends_ && step + 1 == steps()) BackwardEnd(context, t);
  const Matrix d_residuals = ResidualsGradient(t), d_maps = MapsGradient(t), d_projected = LogitsGradient(t);
  context.Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = sublayer, .values = d_residuals});
  const ConstMatrix x = ResidualsAt(step, t), maps = At(t.saved_input, s.maps, t.rows, maps_);
  const Matrix d_result = context.workspace.layer_input_gradient(t.rows), d_read = d_result;  // one after the other
  HyperWriteBackward(context.stream, {.dy = d_residuals,
                                      .x = x,
                                      .maps = maps,
                                      .f = At(t.saved_input, s.result, t.rows, d_model_),
                                      .dx = d_residuals,
                                      .df = d_result,
                                      .d_maps = d_maps});
  BackwardResult(context, step, t, d_result);
  context.Observe({.tensor = DepthTensor::kBranchGradient, .sublayer = sublayer, .values = BranchGradient(t)});
  s.branch->BackwardInput(context, BranchTensors(context, step, t), /*accumulate=*/false);
  const AnyMatrix d_normed = context.workspace.branch_input_gradient(t.rows);
  context.Observe({.tensor = DepthTensor::kNormOutputGradient, .sublayer = sublayer, .values = d_normed});
  s.norm.Backward(context, At(t.saved_input, s.read, t.rows, d_model_), VectorAt(t.saved_input, s.mean, t.rows),
                  VectorAt(t.saved_input, s.rstd, t.rows), d_normed, d_read);
  context.Observe({.tensor = DepthTensor::kNormInputGradient, .sublayer = sublayer, .values = d_read});
  HyperReadBackward(context.stream, {.du = d_read,
                                     .x = x,
                                     .mixing = mixing_,
                                     .projected = At(t.saved_input, s.projected, t.rows, logits_),
                                     .maps = maps,
                                     .rstd = VectorAt(t.saved_input, s.inverse_rms, t.rows),
                                     .gates = parameters.WeightVector(s.weight + 1),
                                     .bias = parameters.WeightVector(s.weight + 2),
                                     .d_maps = d_maps,
                                     .d_projected = d_projected,
                                     .dx = d_residuals,
                                     .d_gates = parameters.GradientVector(s.weight + 1),
                                     .d_bias = parameters.GradientVector(s.weight + 2),
                                     .partials = context.workspace.norm_partials()});
  LinearBackwardInput(
      context.stream,
      {.dy = d_projected, .weight = parameters.ProductWeight(s.weight), .accumulate = true, .dx = d_residuals});
  if (!begins_ || step > 0) return;
  // d_x is the beginning of d_residuals' memory, so the sum is made beside it and then copied (to one stream).
  SumResiduals(context.stream, {.x = d_residuals, .y = d_read});
  CopyToResiduals(context.stream, {.x = d_read, .y = t.d_x.floats()});
}

void HyperSegment::BackwardResult(const SublayerContext& context, size_t index, const Tensors& t,
                                  Matrix d_result) const {
  const int32_t sublayer = first_ + static_cast<int32_t>(index);
  ResidualNormBackwardArgs args{.d_sum = d_result, .d_residual = d_result};  // the latter becomes 0
  args.residual_gain = 0;
  args.branch_gain = BranchGain(context.plan().sublayers[sublayer], context.scalars.growth_update());
  args.device_branch_gain = context.DeviceBranchGain(sublayer);
  args.dropout = context.MakeDropout(dropout_, sublayer, RandomSite::kResidual);
  args.d_branch = BranchGradient(t);
  const int32_t bias = sublayers_[index].branch->output_bias();
  args.bias = context.parameters.WeightVector(bias);
  args.d_bias = context.parameters.GradientVector(bias);
  args.partials = context.workspace.norm_partials();
  args.batch = context.gradients;
  ResidualNormBackward(context.stream, args);
}

void HyperSegment::BackwardEnd(const SublayerContext& context, const Tensors& t) const {
  const Matrix d_mean = context.workspace.layer_input_gradient(t.rows);
  AnyMatrix d_normed = Matrix(t.d_y.floats().data, t.rows, d_model_);
  if (storage_ != d_normed.storage) {
    const ConvertArgs rounded = {.from = d_normed, .to = context.workspace.branch_input_gradient(t.rows)};
    Convert(context.stream, rounded);
    d_normed = rounded.to;
  }
  closing_norm_.Backward(context, At(t.saved_input, mean_of_residuals_, t.rows, d_model_),
                         VectorAt(t.saved_input, closing_mean_, t.rows), VectorAt(t.saved_input, closing_rstd_, t.rows),
                         d_normed, d_mean);
  CopyToResiduals(context.stream,
                  {.x = d_mean, .gain = 1.0f / static_cast<float>(residuals_), .y = ResidualsGradient(t)});
}

void HyperSegment::BackwardWeight(const SublayerContext& context, const PartTensors& tensors, int32_t step) const {
  const ProfilerRange range(context.stream, "sublayer", first_ + step);
  const Tensors t = With(context, tensors);
  const Sublayer& s = sublayers_[step];
  s.branch->BackwardWeight(context, BranchTensors(context, step, t));
  LinearBackwardWeight(context.stream, {.dy = LogitsGradient(t),
                                        .x = ResidualsAt(step, t),
                                        .d_weight = context.parameters.Gradient(s.weight),
                                        .batch = context.gradients});
  context.Progress();
}

}  // namespace

std::unique_ptr<ChunkPart> MakeHyperSegment(const ModelPlan& plan, int32_t first, int32_t last,
                                            const ActivationCapacity& capacity) {
  return std::make_unique<HyperSegment>(plan, first, last, capacity);
}

}  // namespace hadal

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
// Pending, beside segment_frame.h's: the gradient of the maps' product. Numerics, threads: segment_frame.h.
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/convert.h"
#include "kernels/hyper_connection.h"
#include "kernels/linear.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"
#include "layers/segment_frame.h"
#include "runtime/check.h"
#include "runtime/profiler.h"

namespace hadal {
namespace {

class HyperSegment final : public ReadingSegment {
 public:
  // Sublayers [first, last) of the plan.  REQUIRES: first < last; residual sublayers of a stack with several streams.
  HyperSegment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity);

  // Calls the context's progress callback after each sublayer.
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;

 private:
  // Byte offsets: of `residuals` in `saved`, of all others in saved_input.
  struct Sublayer {
    int32_t weight = -1;     // parameter of the maps; their gates and bias follow
    int64_t residuals = -1;  // X; −1: the segment's input
    int64_t projected = 0, maps = 0, inverse_rms = 0, read = 0, result = 0;
  };
  // The saved tensors of a sublayer.
  struct Saved {
    ConstMatrix x;           // the residuals in front of it
    Matrix projected, maps;  // [R, logits], [R, maps]
    Vector inverse_rms;      // [R]
    Matrix u, f;             // [R, d]
  };
  Saved SavedOf(size_t index, const Tensors& t) const;
  // The residuals in front of sublayer `index`, all streams of a row side by side; behind the last one the segment's.
  Matrix ResidualsAt(size_t index, const Tensors& t) const;
  Matrix Streams(const AnyMatrix& m, const Tensors& t) const {
    return {m.floats().data, t.rows, residuals_ * d_model_};
  }
  // The gradient of the maps, and that of their product: the same memory, but with permutations.
  Matrix MapsGradient(const Tensors& t) const { return MapsGradients(t).Columns(0, maps_); }
  Matrix LogitsGradient(const Tensors& t) const {
    const Matrix both = MapsGradients(t);
    return both.Columns(both.columns - logits_, logits_);
  }
  Matrix MapsGradients(const Tensors& t) const {
    return FloatsAt(t.pending, maps_pending_, t.rows, MapsGradientColumns());
  }
  int64_t MapsGradientColumns() const { return mixing_ == HyperMixing::kSinkhorn ? maps_ : maps_ + logits_; }
  void ForwardSublayer(const SublayerContext& context, size_t index, const Tensors& t) const;
  void ForwardEnd(const SublayerContext& context, const Tensors& t) const;
  void BackwardEnd(const SublayerContext& context, const Tensors& t) const;
  void BackwardWeightBeside(const SublayerContext& context, const Tensors& t, int32_t step) const override;

  int64_t residuals_;
  HyperMixing mixing_;
  int64_t maps_, logits_;
  bool begins_, ends_;  // whether the stack does
  PlainNorm closing_norm_;
  int64_t last_residuals_ = 0, mean_of_residuals_ = 0, closing_statistics_ = 0;  // in saved_input, if ends_
  std::vector<Sublayer> sublayers_;
  int64_t maps_pending_ = 0;
};

HyperSegment::HyperSegment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity)
    : ReadingSegment(plan, first, last, capacity),
      residuals_(plan.Residuals(stack_)),
      mixing_(plan.Method(stack_).residual_mixing),
      maps_(HyperMaps(residuals_)),
      logits_(HyperLogits(mixing_, residuals_)),
      begins_(plan.begins_stack(first)),
      ends_(plan.ends_stack(last)) {
  HADAL_CHECK_GT(residuals_, 1);
  for (int32_t s = first; s < last; ++s) {
    Sublayer& sublayer = sublayers_.emplace_back();
    sublayer.weight = plan.ParameterOf(s, ParameterRole::kHyperMapWeight);
    if (s > first || begins_) sublayer.residuals = Reserve(kept_, residuals_ * d_model_);
    sublayer.projected = Reserve(input_, logits_);
    sublayer.maps = Reserve(input_, maps_);
    sublayer.inverse_rms = Reserve(input_, 1);
    for (int64_t* at : {&sublayer.read, &sublayer.result}) *at = Reserve(input_, d_model_);
  }
  maps_pending_ = Reserve(pending_, MapsGradientColumns());
  if (!ends_) return;
  closing_norm_ = PlainNorm(plan, last - 1, ParameterRole::kClosingNormScale);
  last_residuals_ = Reserve(input_, residuals_ * d_model_);
  mean_of_residuals_ = Reserve(input_, d_model_);
  closing_statistics_ = Reserve(input_, 2);
}

HyperSegment::Saved HyperSegment::SavedOf(size_t index, const Tensors& t) const {
  const Sublayer& s = sublayers_[index];
  return {.x = s.residuals < 0 ? ConstMatrix(t.x.floats().data, t.rows, residuals_ * d_model_) : ResidualsAt(index, t),
          .projected = FloatsAt(t.saved_input, s.projected, t.rows, logits_),
          .maps = FloatsAt(t.saved_input, s.maps, t.rows, maps_),
          .inverse_rms = {FloatsAt(t.saved_input, s.inverse_rms, t.rows, 1).data, t.rows},
          .u = FloatsAt(t.saved_input, s.read, t.rows, d_model_),
          .f = FloatsAt(t.saved_input, s.result, t.rows, d_model_)};
}

Matrix HyperSegment::ResidualsAt(size_t index, const Tensors& t) const {
  const int64_t columns = residuals_ * d_model_;
  if (index < sublayers_.size()) return FloatsAt(t.saved, sublayers_[index].residuals, t.rows, columns);
  return ends_ ? FloatsAt(t.saved_input, last_residuals_, t.rows, columns) : Streams(t.y, t);
}

void HyperSegment::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  const Tensors t = With(context, tensors);
  if (begins_) CopyToResiduals(context.stream, {.x = t.x.floats(), .y = ResidualsAt(0, t)});
  for (size_t i = 0; i < sublayers_.size(); ++i) {
    const ProfilerRange range(context.stream, "sublayer", SublayerAt(i));
    ForwardSublayer(context, i, t);
    context.Progress();
  }
  if (ends_) ForwardEnd(context, t);
}

void HyperSegment::ForwardSublayer(const SublayerContext& context, size_t index, const Tensors& t) const {
  const Saved s = SavedOf(index, t);
  const int32_t weight = sublayers_[index].weight;
  const ParameterStore& parameters = context.parameters;
  LinearForward(context.stream, {.x = s.x, .weight = parameters.ProductWeight(weight), .y = s.projected});
  HyperReadForward(context.stream, {.x = s.x,
                                    .mixing = mixing_,
                                    .projected = s.projected,
                                    .gates = parameters.WeightVector(weight + 1),
                                    .bias = parameters.WeightVector(weight + 2),
                                    .maps = s.maps,
                                    .rstd = s.inverse_rms,
                                    .u = s.u});
  ForwardBranch(context, index, t, s.u, /*residual=*/{}, s.f);
  const Matrix y = ResidualsAt(index + 1, t);
  HyperWriteForward(context.stream, {.x = s.x, .maps = s.maps, .f = s.f, .y = y});
  context.Observe({.tensor = DepthTensor::kOutput, .sublayer = SublayerAt(index), .values = y, .before = s.x});
}

void HyperSegment::ForwardEnd(const SublayerContext& context, const Tensors& t) const {
  const Matrix mean = FloatsAt(t.saved_input, mean_of_residuals_, t.rows, d_model_);
  SumResiduals(context.stream,
               {.x = ResidualsAt(sublayers_.size(), t), .gain = 1.0f / static_cast<float>(residuals_), .y = mean});
  closing_norm_.Forward(context.stream, context.parameters, mean, t.y,
                        FloatsAt(t.saved_input, closing_statistics_, t.rows, 2).data);
}

void HyperSegment::BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const {
  const Tensors t = With(context, tensors);
  const Saved s = SavedOf(step, t);
  const int32_t sublayer = first_ + step, weight = sublayers_[step].weight;
  const ProfilerRange range(context.stream, "sublayer", sublayer);
  const ParameterStore& parameters = context.parameters;
  if (ends_ && step + 1 == steps()) BackwardEnd(context, t);
  const Matrix d_residuals = Streams(t.d_y, t), d_maps = MapsGradient(t), d_projected = LogitsGradient(t);
  context.Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = sublayer, .values = d_residuals});
  const Matrix df = context.workspace.layer_input_gradient(t.rows), du = df;  // one after the other
  HyperWriteBackward(
      context.stream,
      {.dy = d_residuals, .x = s.x, .maps = s.maps, .f = s.f, .dx = d_residuals, .df = df, .d_maps = d_maps});
  BackwardBranch(context, step, t, s.u, /*residual_gain=*/0, df, du);
  HyperReadBackward(context.stream, {.du = du,
                                     .x = s.x,
                                     .mixing = mixing_,
                                     .projected = s.projected,
                                     .maps = s.maps,
                                     .rstd = s.inverse_rms,
                                     .gates = parameters.WeightVector(weight + 1),
                                     .bias = parameters.WeightVector(weight + 2),
                                     .d_maps = d_maps,
                                     .d_projected = d_projected,
                                     .dx = d_residuals,
                                     .d_gates = parameters.GradientVector(weight + 1),
                                     .d_bias = parameters.GradientVector(weight + 2),
                                     .partials = context.workspace.norm_partials()});
  LinearBackwardInput(
      context.stream,
      {.dy = d_projected, .weight = parameters.ProductWeight(weight), .accumulate = true, .dx = d_residuals});
  if (!begins_ || step > 0) return;
  // d_x is the beginning of d_residuals' memory, so the sum is made beside it and then copied (to one stream).
  SumResiduals(context.stream, {.x = d_residuals, .y = du});
  CopyToResiduals(context.stream, {.x = du, .y = t.d_x.floats()});
}

void HyperSegment::BackwardEnd(const SublayerContext& context, const Tensors& t) const {
  const Matrix d_mean = context.workspace.layer_input_gradient(t.rows);
  AnyMatrix d_normed = Matrix(t.d_y.floats().data, t.rows, d_model_);
  if (storage_ != d_normed.storage) {
    const ConvertArgs rounded = {.from = d_normed, .to = context.workspace.branch_input_gradient(t.rows)};
    Convert(context.stream, rounded);
    d_normed = rounded.to;
  }
  closing_norm_.Backward(context, FloatsAt(t.saved_input, mean_of_residuals_, t.rows, d_model_),
                         FloatsAt(t.saved_input, closing_statistics_, t.rows, 2).data, d_normed, d_mean);
  CopyToResiduals(context.stream, {.x = d_mean, .gain = 1.0f / static_cast<float>(residuals_), .y = Streams(t.d_y, t)});
}

void HyperSegment::BackwardWeightBeside(const SublayerContext& context, const Tensors& t, int32_t step) const {
  LinearBackwardWeight(context.stream, {.dy = LogitsGradient(t),
                                        .x = SavedOf(step, t).x,
                                        .d_weight = context.parameters.Gradient(sublayers_[step].weight),
                                        .batch = context.gradients});
}

}  // namespace

std::unique_ptr<ChunkPart> MakeHyperSegment(const ModelPlan& plan, int32_t first, int32_t last,
                                            const ActivationCapacity& capacity) {
  return std::make_unique<HyperSegment>(plan, first, last, capacity);
}

}  // namespace hadal

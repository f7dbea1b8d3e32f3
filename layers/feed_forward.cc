// Feed-forward: y = inner(dropout(act((x − s_1)·W_1ᵀ + b_1 − s_2)))·W_2ᵀ; gated (Block::gated) with
// act(x·W_1ᵀ + b_1) ⊙ (x·W_3ᵀ + b_3) in place of act(…), one product for W_1 and W_3. The residual connection adds b_2;
// where a norm follows (branch_parts.cc), the product does.
//   inner           a LayerNorm over d_ff (Sub-LN, NormFormer), a shift by s_3 (R-Fixup), or nothing
//   s_1, s_2, s_3   R-Fixup's scalars (Zhang, Dauphin and Ma 2019; R-Fixup has no biases); ReLU only
// Source: Vaswani et al. 2017 eq. 2; gates: Shazeer 2020 (arXiv 2002.05202). Numerics, order of accumulation, threads:
// chunk_part.h, kernels/linear.h. An ungated ReLU is part of the product's kernel.
// Saved: the hidden layer after activation and dropout [R, d_ff]; the zeros of an ungated ReLU are the backward's mask.
// Then, each only where it exists: the output of `inner` [R, d_ff], the shifted input [R, d]. Only for the input
// half, where they exist: the statistics of the inner norm [2R], the bias b_1 − s_2 [d_ff], a bit mask of the ReLU,
// the hidden layer before an `inner`, and without an ungated ReLU z, what the activation reads: [R, d_ff], gated
// [R, 2·d_ff]. Pending: the gradient of the first product's output, in z's shape; the gradient of the hidden layer lies
// in its last d_ff columns first.
// The bit mask (kernels/linear.h, ReluMaskArgs) exists if products are bf16, only the ReLU is between the two products
// (no activation dropout, norm or shift), and ModelPlan::relu_masks says that the device's library can write it for
// some size of micro-batch; UsesMask checks the current size. fp32 has no mask: the product dominates, so less
// memory traffic would not help. CPUs have none.
#include "kernels/activation.h"
#include "kernels/linear.h"
#include "kernels/shift_scale.h"
#include "layers/branch_parts.h"
#include "layers/chunk_part.h"

namespace hadal {
namespace {

class FeedForward final : public Branch {
 public:
  FeedForward(const ModelPlan& plan, int32_t sublayer);

  SavedBytes BytesToSave(const ActivationCapacity& capacity) const override {
    return Views(nullptr, nullptr, capacity.rows(stack_)).bytes;
  }
  int64_t PendingBytes(const ActivationCapacity& capacity) const override {
    return PendingHidden(nullptr, capacity.rows(stack_)).bytes();
  }
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, bool accumulate) const override;
  void BackwardWeight(const SublayerContext& context, const PartTensors& tensors) const override;
  int32_t output_bias() const override { return added_bias_ >= 0 ? -1 : contraction_bias_; }

 private:
  struct Saved {
    AnyMatrix hidden, inner, shifted, bias, z;  // all but `hidden` are empty where they do not exist
    float* statistics = nullptr;
    std::byte* mask = nullptr;
    SavedBytes bytes;

    // What W_2 reads.
    AnyMatrix Inner() const { return inner.empty() ? hidden : inner; }
  };
  Saved Views(std::byte* saved, std::byte* saved_input, int64_t rows) const;
  // The gradient of the first product's output.
  AnyMatrix PendingHidden(std::byte* pending, int64_t rows) const {
    return {pending, rows, products_ * d_ff_, storage_};
  }
  // Whether the products of `rows` rows write and read the mask.
  bool UsesMask(const SublayerContext& context, int64_t rows) const;
  // Whether b_1's gradient is made beside the ReLU's, in BackwardInput: on a device that reads dx for the ReLU anyway.
  // Elsewhere it is made with W_1's.
  bool AddsBiasWithRelu(const SublayerContext& context, int64_t rows) const;
  // On entry the last d_ff columns of d_z are the gradient of what W_2 reads, on return d_z is that of the first
  // product's output.
  void BackwardHidden(const SublayerContext& context, const Saved& s, AnyMatrix d_z) const;

  int32_t sublayer_;
  Stack stack_;
  int32_t hidden_weight_, hidden_bias_, contraction_weight_, contraction_bias_;  // parameters
  int32_t added_bias_;  // b_2, where this branch adds it; -1: it does not
  InputShift input_shift_, contraction_shift_;
  int32_t hidden_shift_;  // parameter
  PlainNorm hidden_norm_;
  Storage storage_;
  int64_t d_model_, d_ff_;
  Activation activation_;
  bool gated_, fuses_activation_;
  int32_t products_;  // of the input: W_1, and W_3 if gated
  double dropout_;
  bool keeps_mask_;
};

FeedForward::FeedForward(const ModelPlan& plan, int32_t sublayer)
    : sublayer_(sublayer),
      stack_(plan.sublayers[sublayer].stack),
      hidden_weight_(plan.ParameterOf(sublayer, ParameterRole::kHiddenWeight)),
      hidden_bias_(plan.ParameterOf(sublayer, ParameterRole::kHiddenBias)),
      contraction_weight_(plan.ParameterOf(sublayer, ParameterRole::kContractionWeight)),
      contraction_bias_(plan.ParameterOf(sublayer, ParameterRole::kContractionBias)),
      added_bias_(plan.ParameterOf(sublayer, ParameterRole::kOutputNormScale) < 0 ? -1 : contraction_bias_),
      input_shift_(plan, sublayer, ParameterRole::kInputShift),
      contraction_shift_(plan, sublayer, ParameterRole::kContractionShift),
      hidden_shift_(plan.ParameterOf(sublayer, ParameterRole::kHiddenShift)),
      hidden_norm_(plan, sublayer, ParameterRole::kHiddenNormScale),
      storage_(plan.compute_storage),
      d_model_(plan.options.d_model),
      d_ff_(plan.options.d_ff),
      activation_(plan.options.block.activation),
      gated_(plan.options.block.gated),
      fuses_activation_(plan.options.fuses_activation()),
      products_(gated_ ? 2 : 1),
      dropout_(plan.options.activation_dropout),
      keeps_mask_(plan.relu_masks && storage_ == Storage::kBFloat16 && dropout_ == 0 && !hidden_norm_.present() &&
                  hidden_shift_ < 0 && !contraction_shift_.present() && fuses_activation_) {
  HADAL_CHECK(!hidden_norm_.present() || !contraction_shift_.present());
}

FeedForward::Saved FeedForward::Views(std::byte* saved, std::byte* saved_input, int64_t rows) const {
  SavedTensors kept(saved);
  Saved s;
  const bool has_inner = hidden_norm_.present() || contraction_shift_.present();
  if (has_inner) s.inner = kept.Take(storage_, rows, d_ff_);
  if (!has_inner) s.hidden = kept.Take(storage_, rows, d_ff_);
  if (input_shift_.present()) s.shifted = kept.Take(storage_, rows, d_model_);
  SavedTensors input = kept.Behind(saved_input);
  if (has_inner) s.hidden = input.Take(storage_, rows, d_ff_);
  if (hidden_norm_.present()) s.statistics = input.TakeFloats(rows, 2).data;
  if (!fuses_activation_) s.z = input.Take(storage_, rows, products_ * d_ff_);
  if (hidden_shift_ >= 0) s.bias = input.Take(storage_, 1, d_ff_);
  if (keeps_mask_) s.mask = input.TakeBytes(ReluMaskBytes(rows, d_ff_));
  s.bytes = {.kept = kept.bytes(), .input = input.bytes()};
  return s;
}

bool FeedForward::UsesMask(const SublayerContext& context, int64_t rows) const {
  if (!keeps_mask_ || !context.scalars.training) return false;
  const ParameterStore& parameters = context.parameters;
  return HasReluMask(context.stream, {.rows = rows,
                                      .hidden_weight = parameters.ProductWeight(hidden_weight_),
                                      .hidden_bias = hidden_bias_ >= 0,
                                      .contraction_weight = parameters.ProductWeight(contraction_weight_)});
}

bool FeedForward::AddsBiasWithRelu(const SublayerContext& context, int64_t rows) const {
  return context.stream.device() != nullptr && hidden_bias_ >= 0 && !hidden_norm_.present() && hidden_shift_ < 0 &&
         fuses_activation_ && !UsesMask(context, rows);
}

void FeedForward::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  const ParameterStore& parameters = context.parameters;
  const Saved s = Views(tensors.saved, tensors.saved_input, tensors.x.rows);
  LinearForwardArgs expansion{.x = input_shift_.Forward(context, tensors.x, s.shifted),
                              .weight = parameters.ProductWeight(hidden_weight_, products_),
                              .bias = parameters.ProductBias(hidden_bias_, products_),
                              .y = s.z};
  const Dropout dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kActivation);
  if (fuses_activation_) {
    expansion.relu = true;
    expansion.dropout = dropout;
    expansion.relu_mask = UsesMask(context, tensors.x.rows) ? s.mask : nullptr;
    expansion.y = s.hidden;
  }
  if (hidden_shift_ >= 0) {
    expansion.bias = MakeHiddenBias(context.stream, parameters, hidden_bias_, hidden_shift_, s.bias);
  }
  LinearForward(context.stream, expansion);
  if (!fuses_activation_) {
    ActivationForward(context.stream,
                      {.activation = activation_, .gated = gated_, .z = s.z, .dropout = dropout, .y = s.hidden});
  }
  context.Observe({.tensor = DepthTensor::kHidden, .sublayer = sublayer_, .values = s.hidden});
  if (hidden_norm_.present()) hidden_norm_.Forward(context, s.hidden, s.inner, s.statistics);
  contraction_shift_.Forward(context, s.hidden, s.inner);
  LinearForward(context.stream, {.x = s.Inner(),
                                 .weight = parameters.ProductWeight(contraction_weight_),
                                 .bias = parameters.ProductBias(added_bias_),
                                 .y = tensors.y});
}

void FeedForward::BackwardHidden(const SublayerContext& context, const Saved& s, AnyMatrix d_z) const {
  const Dropout dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kActivation);
  const AnyMatrix d_hidden = d_z.Columns((products_ - 1) * d_ff_, d_ff_);
  if (hidden_norm_.present()) hidden_norm_.Backward(context, s.hidden, s.statistics, d_hidden, d_hidden);
  if (!fuses_activation_) {
    ActivationBackward(
        context.stream,
        {.activation = activation_, .gated = gated_, .z = s.z, .dropout = dropout, .dy = d_hidden, .dz = d_z});
    return;
  }
  ReluBackward(context.stream,
               {.relu_output = s.hidden, .mask_scale = dropout.active() ? dropout.scale() : 1.0f, .dx = d_hidden});
  if (hidden_shift_ < 0) return;
  ShiftScaleBackward(context.stream, {.dy = d_hidden,
                                      .shift = context.parameters.WeightVector(hidden_shift_),
                                      .dx = d_hidden,
                                      .d_shift = context.parameters.GradientVector(hidden_shift_),
                                      .partials = context.workspace.norm_partials()});
}

void FeedForward::BackwardInput(const SublayerContext& context, const PartTensors& tensors, bool accumulate) const {
  const ParameterStore& parameters = context.parameters;
  const int64_t rows = tensors.d_y.rows;
  const Saved s = Views(tensors.saved, tensors.saved_input, rows);
  const AnyMatrix d_z = PendingHidden(tensors.pending, rows), d_hidden = d_z.Columns((products_ - 1) * d_ff_, d_ff_);
  LinearBackwardInputArgs contraction{.dy = tensors.d_y,
                                      .weight = parameters.ProductWeight(contraction_weight_),
                                      .batch = context.gradients,
                                      .dx = d_hidden};
  if (hidden_norm_.present() || hidden_shift_ >= 0 || !fuses_activation_) {
    contraction_shift_.BackwardInput(context, contraction);
    BackwardHidden(context, s, d_z);
  } else {
    const Dropout dropout = context.MakeDropout(dropout_, sublayer_, RandomSite::kActivation);
    if (UsesMask(context, rows)) {
      contraction.relu_mask = s.mask;
    } else {
      contraction.relu_output = s.hidden;
      contraction.mask_scale = dropout.active() ? dropout.scale() : 1.0f;
    }
    if (AddsBiasWithRelu(context, rows)) contraction.relu_bias_gradient = parameters.GradientVector(hidden_bias_);
    LinearBackwardInput(context.stream, contraction);
  }
  input_shift_.BackwardInput(context, {.dy = d_z,
                                       .weight = parameters.ProductWeight(hidden_weight_, products_),
                                       .accumulate = accumulate,
                                       .dx = tensors.d_x});
}

void FeedForward::BackwardWeight(const SublayerContext& context, const PartTensors& tensors) const {
  const ParameterStore& parameters = context.parameters;
  const int64_t rows = tensors.d_y.rows;
  const Saved s = Views(tensors.saved, tensors.saved_input, rows);
  LinearBackwardWeight(context.stream, {.dy = tensors.d_y,
                                        .x = s.Inner(),
                                        .d_weight = parameters.Gradient(contraction_weight_),
                                        .d_bias = parameters.GradientVector(added_bias_),
                                        .batch = context.gradients});
  LinearBackwardWeightArgs expansion{.dy = PendingHidden(tensors.pending, rows),
                                     .x = input_shift_.Read(tensors.x, s.shifted),
                                     .d_weight = parameters.FusedGradient(hidden_weight_, products_),
                                     .batch = context.gradients};
  if (!AddsBiasWithRelu(context, rows)) expansion.d_bias = parameters.FusedGradientVector(hidden_bias_, products_);
  LinearBackwardWeight(context.stream, expansion);
}

}  // namespace

std::unique_ptr<Branch> MakeFeedForward(const ModelPlan& plan, int32_t sublayer) {
  return std::make_unique<FeedForward>(plan, sublayer);
}

}  // namespace hadal

#include "layers/output_head.h"

#include <algorithm>

#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "runtime/check.h"

namespace hadal {

OutputHead::OutputHead(const ModelPlan& plan, const ActivationCapacity& capacity, Purpose purpose)
    : sublayer_(plan.output_head()),
      table_(plan.sublayers[sublayer_].table),
      label_smoothing_(plan.options.label_smoothing),
      z_loss_(plan.options.z_loss),
      logit_bias_(plan.ParameterOf(sublayer_, ParameterRole::kLogitBias)),
      gradient_storage_(plan.residual_storage(plan.sublayers[sublayer_].stack)),
      saved_bytes_(purpose == Purpose::kTraining
                       ? capacity.target_rows * plan.options.d_model * BytesOf(gradient_storage_)
                       : 0) {}

void OutputHead::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  const ConstAnyMatrix x = tensors.x;
  context.Observe({.tensor = DepthTensor::kModelOutput, .sublayer = sublayer_, .values = x});
  ForwardRows(context, x, {tensors.saved, x.rows, x.columns, gradient_storage_});
}

void OutputHead::ForwardRows(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix d_x) const {
  const DeviceBatch* const device_batch = context.device_batch;
  const ConstAnyMatrix table = context.parameters.ProductWeight(table_);
  const int64_t most_rows = context.workspace.logit_rows();
  for (int64_t first = 0; first < x.rows; first += most_rows) {
    const int64_t rows = std::min(most_rows, x.rows - first);
    const ConstAnyMatrix block = x.Rows(first, rows);
    const AnyMatrix logits = context.workspace.logits(rows);
    const Vector loss(context.workspace.row_loss(x.rows).data + first, rows);
    const Vector nll(context.workspace.row_nll(x.rows).data + first, rows);
    const Vector hits = context.workspace.row_hits(x.rows);
    LinearForward(context.stream,
                  {.x = block, .weight = table, .bias = context.parameters.ProductBias(logit_bias_), .y = logits});
    CrossEntropy(context.stream,
                 {.logits = logits,
                  .targets = {context.batch.target.data() + first, rows},
                  .label_smoothing = static_cast<float>(label_smoothing_),
                  .z_loss = static_cast<float>(z_loss_),
                  .gradient_scale = context.scalars.training ? context.scalars.gradient_scale : 0,
                  .device_targets = device_batch == nullptr ? nullptr : device_batch->targets + first,
                  .device_gradient_scale = device_batch == nullptr ? nullptr : device_batch->gradient_scale,
                  .loss = loss,
                  .nll = nll,
                  .hits = hits.empty() ? hits : Vector(hits.data + first, rows)});
    if (!context.scalars.training) continue;
    LinearBackwardInput(context.stream, {.dy = logits, .weight = table, .dx = d_x.Rows(first, rows)});
    LinearBackwardWeight(context.stream, {.dy = logits,
                                          .x = block,
                                          .d_weight = context.parameters.TableGradient(sublayer_),
                                          .d_bias = context.parameters.GradientVector(logit_bias_)});
  }
}

void OutputHead::BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t) const {
  HADAL_CHECK(tensors.d_x.storage == gradient_storage_);
  context.stream.Copy(tensors.d_x.data, tensors.saved, tensors.d_x.bytes());
}

void OutputHead::FetchLosses(const SublayerContext& context) const {
  const int64_t count = context.rows(Stack::kDecoder);
  const Vector rows = context.workspace.host_rows(count);  // loss, then nll
  context.stream.EnqueueToHost(rows.data, context.workspace.row_loss(count).data, rows.size * int64_t{sizeof(float)});
}

LossSums OutputHead::Losses(const SublayerContext& context, Vector row_nll) const {
  LossSums sums;
  const int64_t count = context.rows(Stack::kDecoder);
  const Vector rows = context.workspace.host_rows(count);
  sums.tokens = context.sentence_rows(Stack::kDecoder);
  for (int64_t i = 0; i < sums.tokens; ++i) {
    sums.loss += rows[i];
    sums.nll += rows[count + i];
    if (rows.size > 2 * count) sums.hits += rows[2 * count + i] > 0 ? 1 : 0;
    if (!row_nll.empty()) row_nll[i] = rows[count + i];
  }
  return sums;
}

namespace {

// The masked rows, of which the source is the table.
ConstTokens MaskedRows(const SublayerContext& context) {
  return {context.batch.target_input.data(), context.batch.target_rows()};
}

DeviceTokens DeviceRows(const SublayerContext& context) {
  return context.device_batch == nullptr ? DeviceTokens() : context.device_batch->target;
}

}  // namespace

MaskedHead::MaskedHead(const ModelPlan& plan, const ActivationCapacity& capacity, Purpose purpose, ArenaLayout& layout)
    : OutputHead(plan, capacity, purpose),
      weight_(plan.ParameterOf(sublayer_, ParameterRole::kHeadWeight)),
      bias_(plan.ParameterOf(sublayer_, ParameterRole::kHeadBias)),
      norm_(plan, sublayer_, ParameterRole::kHeadNormScale),
      activation_(plan.options.block.activation),
      storage_(plan.compute_storage),
      width_(plan.options.d_model),
      saved_bytes_(purpose == Purpose::kTraining ? capacity.source_rows * width_ * BytesOf(Storage::kFloat32) : 0) {
  const int64_t bytes = capacity.target_rows * width_ * BytesOf(storage_);
  for (ArenaBuffer<std::byte>* const buffer : {&gathered_, &product_, &activated_}) {
    *buffer = layout.ReserveBytes("workspace", bytes);
  }
  statistics_ = layout.Reserve<float>("workspace", 2 * capacity.target_rows);
}

void MaskedHead::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  context.Observe({.tensor = DepthTensor::kModelOutput, .sublayer = sublayer_, .values = tensors.x});
  const Matrix d_x(reinterpret_cast<float*>(tensors.saved), tensors.x.rows, width_);
  const bool training = context.scalars.training;
  if (training) context.stream.Clear(d_x.data, d_x.rows * width_ * BytesOf(Storage::kFloat32));
  const int64_t rows = context.batch.target_rows();
  if (rows == 0) return;
  const AnyMatrix u = Rows(gathered_, rows), z = Rows(product_, rows), a = Rows(activated_, rows);
  EmbeddingForward(context.stream, {.tokens = MaskedRows(context),
                                    .offsets = context.offsets(Stack::kDecoder),
                                    .table = tensors.x,
                                    .device_tokens = DeviceRows(context),
                                    .x = u});
  LinearForward(context.stream, {.x = u,
                                 .weight = context.parameters.ProductWeight(weight_),
                                 .bias = context.parameters.ProductBias(bias_),
                                 .y = z});
  ActivationForward(context.stream, {.activation = activation_, .z = z, .y = a});
  const AnyMatrix v = context.workspace.branch(rows);
  norm_.Forward(context, a, v, statistics_);
  const AnyMatrix d_v = training ? context.workspace.branch_input_gradient(rows) : AnyMatrix();
  ForwardRows(context, v, d_v);
  if (training) Backward(context, d_v, d_x);
}

void MaskedHead::Backward(const SublayerContext& context, AnyMatrix d_v, Matrix d_x) const {
  const ParameterStore& parameters = context.parameters;
  const int64_t rows = d_v.rows;
  const AnyMatrix u = Rows(gathered_, rows), z = Rows(product_, rows);
  norm_.Backward(context, Rows(activated_, rows), statistics_, d_v, d_v);
  ActivationBackward(context.stream, {.activation = activation_, .z = z, .dy = d_v, .dz = d_v});
  LinearBackwardWeight(
      context.stream,
      {.dy = d_v, .x = u, .d_weight = parameters.Gradient(weight_), .d_bias = parameters.GradientVector(bias_)});
  LinearBackwardInput(context.stream, {.dy = d_v, .weight = parameters.ProductWeight(weight_), .dx = u});
  EmbeddingBackward(context.stream,
                    {.tokens = MaskedRows(context), .dx = u, .device_tokens = DeviceRows(context), .d_table = d_x});
}

void MaskedHead::BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t) const {
  if (tensors.d_x.storage == Storage::kFloat32) {
    return context.stream.Copy(tensors.d_x.data, tensors.saved, tensors.d_x.bytes());
  }
  const ConstMatrix d_x(reinterpret_cast<const float*>(tensors.saved), tensors.d_x.rows, width_);
  Convert(context.stream, {.from = d_x, .to = tensors.d_x});
}

}  // namespace hadal

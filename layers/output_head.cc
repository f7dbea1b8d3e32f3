#include "layers/output_head.h"

#include <algorithm>

#include "kernels/cross_entropy.h"
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

}  // namespace hadal

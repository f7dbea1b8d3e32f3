#include "layers/sublayer_context.h"

#include <algorithm>

#include "kernels/attention.h"
#include "kernels/residual_norm.h"
#include "kernels/weighted_sum.h"

namespace hadal {

Workspace::Workspace(const ModelPlan& plan, const ActivationCapacity& capacity, const Stream& stream, bool training,
                     ArenaLayout& layout)
    : width_(plan.options.d_model), vocabulary_(plan.options.target_vocabulary) {
  const std::string category = "workspace";
  const int64_t rows = std::max(capacity.source_rows, capacity.target_rows);
  const int64_t d = plan.options.d_model;
  branch_slice_ = layout.Reserve<float>(category, rows * d);
  attention_floats_ = AttentionScratch(stream, capacity.max_length, d / plan.options.heads);
  attention_slice_ = layout.Reserve<float>(category, attention_floats_);
  logits_slice_ = layout.Reserve<float>(category, kLogitRows * vocabulary_);
  row_slice_ = layout.Reserve<float>(category, 2 * kLogitRows);
  if (!training) return;
  branch_input_slice_ = layout.Reserve<float>(category, rows * d);
  context_slice_ = layout.Reserve<float>(category, rows * d);
  query_slice_ = layout.Reserve<float>(category, rows * d);
  inner_slice_ = layout.Reserve<float>(category, rows * std::max<int64_t>(3 * d, plan.options.d_ff));
  const StackMethod &encoder = plan.options.encoder, &decoder = plan.options.decoder;
  if (encoder.attention_output_norm || decoder.attention_output_norm) {
    projected_slice_ = layout.Reserve<float>(category, rows * d);
  }
  if (encoder.skip_gain != 0 || decoder.skip_gain != 0) layer_input_slice_ = layout.Reserve<float>(category, rows * d);
  const bool hidden_norm = encoder.ffn_inner_norm || decoder.ffn_inner_norm;
  partial_floats_ = ResidualNormPartials(rows, hidden_norm ? std::max<int64_t>(d, plan.options.d_ff) : d);
  if (encoder.combine_layers || decoder.combine_layers) {
    const int64_t entries = std::max(plan.options.encoder_layers, plan.options.decoder_layers) + 1;
    partial_floats_ = std::max(partial_floats_, WeightedSumPartials(rows, entries));
  }
  partial_slice_ = layout.Reserve<float>(category, partial_floats_);
}

void Workspace::Bind(const Arena& arena) {
  branch_ = arena.Get<float>(branch_slice_);
  branch_input_ = arena.Get<float>(branch_input_slice_);
  context_ = arena.Get<float>(context_slice_);
  inner_ = arena.Get<float>(inner_slice_);
  query_ = arena.Get<float>(query_slice_);
  layer_input_ = arena.Get<float>(layer_input_slice_);
  projected_ = arena.Get<float>(projected_slice_);
  attention_ = arena.Get<float>(attention_slice_);
  partials_ = arena.Get<float>(partial_slice_);
  logits_ = arena.Get<float>(logits_slice_);
  row_loss_ = arena.Get<float>(row_slice_);
  row_nll_ = row_loss_ + kLogitRows;
}

}  // namespace hadal

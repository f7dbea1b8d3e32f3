#include "layers/border.h"

#include "runtime/check.h"

namespace hadal {

int64_t EdgeBytes(const Edge& edge, bool gradients, const ActivationCapacity& capacity, int64_t width) {
  return edge.entries_of(gradients) * capacity.rows(edge.rows) * width * BytesOf(edge.storage_of(gradients));
}

int64_t KnownEntries(const ModelPlan& plan, int32_t behind, int32_t position) {
  const SublayerRecord& next = plan.sublayers[position];
  if (next.layer < 0 || !plan.KeepsHistory(next.stack)) return 0;
  const int32_t embedding = next.stack == Stack::kEncoder ? plan.source_embedding() : plan.target_embedding();
  return behind <= embedding ? 0 : plan.HistoryBefore(behind);
}

std::vector<Edge> BorderEdges(const ModelPlan& plan, int32_t position) {
  HADAL_CHECK_GT(position, 0);
  HADAL_CHECK_LT(position, static_cast<int32_t>(plan.sublayers.size()));
  const SublayerRecord& next = plan.sublayers[position];
  const bool history = next.layer >= 0 && plan.KeepsHistory(next.stack);
  const int64_t entries = history ? plan.HistoryBefore(position) : plan.ResidualsBefore(position);
  const Storage compute = plan.compute_storage;
  const auto stream = [&](Stack stack) {
    const Storage storage = plan.residual_storage(stack);
    const Storage gradient = history ? Storage::kFloat32 : storage;  // several layers add to a history's gradient
    return Edge{.kind = EdgeKind::kResidual,
                .rows = stack,
                .entries = entries,
                .values = plan.ends_stack(position) ? compute : storage,
                .gradient = gradient};
  };
  std::vector<Edge> edges;
  const auto add_residuals = [&](Stack stack) {
    edges.push_back(stream(stack));
    if (next.layer < 0 || plan.begins_stack(position)) return;
    const bool open = plan.ReadsBlocks(stack) && plan.OpenSublayers(position) > 0;
    if (!open && !plan.HasSecondStream(stack)) return;
    edges.push_back({.kind = EdgeKind::kSecondStream, .rows = stack});
  };
  if (position < plan.encoder_end() || !plan.options.has_decoder()) {
    add_residuals(Stack::kEncoder);
    return edges;
  }
  if (position == plan.target_embedding()) {
    return {{.kind = EdgeKind::kResidual, .entries = entries, .values = compute}};
  }
  add_residuals(Stack::kDecoder);
  for (int32_t s = position; s < plan.output_head(); ++s) {
    if (plan.sublayers[s].kind != SublayerKind::kCrossAttention) continue;
    edges.push_back({.kind = EdgeKind::kEncoderOutput, .values = compute});
    break;
  }
  return edges;
}

}  // namespace hadal

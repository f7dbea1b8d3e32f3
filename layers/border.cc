#include "layers/border.h"

#include "runtime/check.h"

namespace hadal {

int64_t EdgeBytes(const Edge& edge, Storage storage, const ActivationCapacity& capacity, int64_t width) {
  return edge.entries * capacity.rows(edge.rows) * width * BytesOf(storage);
}

std::vector<Edge> BorderEdges(const ModelPlan& plan, int32_t position) {
  HADAL_CHECK_GT(position, 0);
  HADAL_CHECK_LT(position, static_cast<int32_t>(plan.sublayers.size()));
  const SublayerRecord& next = plan.sublayers[position];
  const bool history = next.layer >= 0 && plan.Combines(next.stack);
  const int64_t entries = history ? next.layer + 1 : plan.ResidualsBefore(position);
  const Storage compute = plan.compute_storage;
  const auto stream = [&](Stack stack) {
    const Storage storage = plan.residual_storage(stack);
    const Storage gradient = history ? Storage::kFloat32 : storage;  // several layers add to a history's gradient
    return Edge{EdgeKind::kResidual, stack, entries, plan.ends_stack(position) ? compute : storage, gradient};
  };
  std::vector<Edge> edges;
  const auto add_residuals = [&](Stack stack) {
    edges.push_back(stream(stack));
    if (next.layer < 0 || plan.begins_stack(position) || !plan.HasSecondStream(stack)) return;
    edges.push_back({EdgeKind::kSecondStream, stack, 1, Storage::kFloat32, Storage::kFloat32});
  };
  if (position < plan.encoder_end() || !plan.options.has_decoder()) {
    add_residuals(Stack::kEncoder);
    return edges;
  }
  if (position == plan.target_embedding()) {
    return {{EdgeKind::kResidual, Stack::kEncoder, entries, compute, Storage::kFloat32}};
  }
  add_residuals(Stack::kDecoder);
  for (int32_t s = position; s < plan.output_head(); ++s) {
    if (plan.sublayers[s].kind != SublayerKind::kCrossAttention) continue;
    edges.push_back({EdgeKind::kEncoderOutput, Stack::kEncoder, 1, compute, Storage::kFloat32});
    break;
  }
  return edges;
}

}  // namespace hadal

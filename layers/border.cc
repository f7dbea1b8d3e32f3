#include "layers/border.h"

#include "runtime/check.h"

namespace hadal {

int64_t EdgeBytes(const Edge& edge, const ActivationCapacity& capacity, int64_t width) {
  return edge.entries * capacity.rows(edge.rows) * width * static_cast<int64_t>(sizeof(float));
}

std::vector<Edge> BorderEdges(const ModelPlan& plan, int32_t position) {
  HADAL_CHECK_GT(position, 0);
  HADAL_CHECK_LT(position, static_cast<int32_t>(plan.sublayers.size()));
  const SublayerRecord& next = plan.sublayers[position];
  const int64_t entries = next.layer >= 0 && plan.Combines(next.stack) ? next.layer + 1 : 1;
  if (position <= plan.target_embedding()) return {{EdgeKind::kStream, Stack::kEncoder, entries}};
  std::vector<Edge> edges = {{EdgeKind::kStream, Stack::kDecoder, entries}};
  for (int32_t s = position; s < plan.output_head(); ++s) {
    if (plan.sublayers[s].kind != SublayerKind::kCrossAttention) continue;
    edges.push_back({EdgeKind::kMemory, Stack::kEncoder});
    break;
  }
  return edges;
}

}  // namespace hadal

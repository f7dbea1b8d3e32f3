#include "layers/border.h"

#include "runtime/check.h"

namespace hadal {

std::vector<Edge> BorderEdges(const ModelPlan& plan, int32_t position) {
  HADAL_CHECK_GT(position, 0);
  HADAL_CHECK_LT(position, static_cast<int32_t>(plan.sublayers.size()));
  if (position <= plan.target_embedding()) return {{EdgeKind::kStream, Stack::kEncoder}};
  std::vector<Edge> edges = {{EdgeKind::kStream, Stack::kDecoder}};
  for (int32_t s = position; s < plan.output_head(); ++s) {
    if (plan.sublayers[s].kind != SublayerKind::kCrossAttention) continue;
    edges.push_back({EdgeKind::kMemory, Stack::kEncoder});
    break;
  }
  return edges;
}

}  // namespace hadal

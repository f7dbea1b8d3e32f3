// What crosses a cut of the model's list: an ordered list of edges, declared by the plan.
//
//   cut inside the encoder            stream [source rows, d]
//   between the stacks                stream [source rows, d] = the encoder's memory
//   cut inside the decoder            stream [target rows, d], and memory [source rows, d] while a cross-attention
//   still follows
// A model without an encoder has one edge everywhere: stream [target rows, d].
// Forward carries the tensors, backward their gradients, both fp32. The memory is relayed hop by hop; its gradient is
// added to in descending sublayer order on the way back.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/model_plan.h"

namespace hadal {

enum class EdgeKind : int32_t { kStream, kMemory };

struct Edge {
  EdgeKind kind = EdgeKind::kStream;
  Stack rows = Stack::kEncoder;  // counted in source or in target rows
};

// The edges of the cut before sublayer `position`.  REQUIRES: 0 < position < sublayers. At most two.
std::vector<Edge> BorderEdges(const ModelPlan& plan, int32_t position);

}  // namespace hadal

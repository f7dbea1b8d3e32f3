// What crosses a cut of the model's list: an ordered list of edges, declared by the plan.
//
//   cut inside the encoder            stream [source rows, d]
//   between the stacks                stream [source rows, d] = the encoder's memory
//   cut inside the decoder            stream [target rows, d], and memory [source rows, d] while a cross-attention
//   still follows
// A model without an encoder has one edge everywhere: stream [target rows, d].
// In a stack that combines its layers' outputs (layer_combination.h) the stream is all of them so far: in front of layer l, counted
// from 0, it has l + 1 entries on top of each other, [(l + 1)·rows, d].
// Forward carries the tensors, backward their gradients, each as it is stored: the stream as ModelPlan::stream_storage says, what products
// read (the memory, the head's input) as compute_storage. The memory is relayed hop by hop; its gradient, which several readers add to, is
// fp32 in any case, and is added to in descending sublayer order on the way back.
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/model_plan.h"
#include "layers/sublayer_context.h"

namespace hadal {

enum class EdgeKind : int32_t { kStream, kMemory };

struct Edge {
  EdgeKind kind = EdgeKind::kStream;
  Stack rows = Stack::kEncoder;  // counted in source or in target rows
  int64_t entries = 1;           // tensors of that many rows on top of each other
  Storage values = Storage::kFloat32;
  Storage gradient = Storage::kFloat32;
};

// Of its values, or of its gradient, at full capacity.
int64_t EdgeBytes(const Edge& edge, Storage storage, const ActivationCapacity& capacity, int64_t width);

// The edges of the cut before sublayer `position`.  REQUIRES: 0 < position < sublayers. At most two.
std::vector<Edge> BorderEdges(const ModelPlan& plan, int32_t position);

}  // namespace hadal

// What crosses a cut of the model's list: an ordered list of edges, declared by the plan.
//
//   cut inside the encoder            residual [source rows, d]
//   between the stacks                residual [source rows, d] = the encoder's output
//   cut inside the decoder            residual [target rows, d], and the encoder's output [source rows, d] while a
//                                     cross-attention still follows
// A model without an encoder has one edge everywhere: residual [target rows, d].
// In a stack that combines its layers' outputs (layer_combination.h) the residual stream is the stack's history: before
// layer l, counted from 0, it has l + 1 entries on top of each other, [(l + 1)·rows, d].
// Forward carries the tensors, backward their gradients, each in the type in which it is stored. The residual stream is
// stored as ModelPlan::residual_storage says. What products read (the encoder's output, the head's input) is stored as
// compute_storage. The encoder's output is relayed from stage to stage. Several readers add to its gradient, so that is
// always fp32; on the way back they add in descending sublayer order.
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/model_plan.h"
#include "layers/sublayer_context.h"

namespace hadal {

enum class EdgeKind : int32_t { kResidual, kEncoderOutput };

struct Edge {
  EdgeKind kind = EdgeKind::kResidual;
  Stack rows = Stack::kEncoder;  // whether rows are counted on the source or on the target side
  int64_t entries = 1;           // tensors of `rows` rows on top of each other
  Storage values = Storage::kFloat32;
  Storage gradient = Storage::kFloat32;
};

// Bytes of the edge's values, or of its gradient, at full capacity; `storage`: how they are stored.
int64_t EdgeBytes(const Edge& edge, Storage storage, const ActivationCapacity& capacity, int64_t width);

// The edges of the cut before sublayer `position`.  REQUIRES: 0 < position < sublayers. At most two.
std::vector<Edge> BorderEdges(const ModelPlan& plan, int32_t position);

}  // namespace hadal

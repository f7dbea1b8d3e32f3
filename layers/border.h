// The tensors that pass from one chunk (pipeline/stage/chunk.h) to the next at a cut of the model's list of sublayers:
// an ordered list of edges, computed from the plan.
//
//   cut inside the encoder            residual [source rows, d]
//   between the stacks                residual [source rows, d] = the encoder's output
//   cut inside the decoder            residual [target rows, d], and the encoder's output [source rows, d] while a
//                                     cross-attention still follows
// A model of one stack has one edge everywhere: residual [target rows, d], of an encoder [source rows, d]. Exceptions:
// In a stack with a second residual stream (second_stream.h), that stream is the second edge of every cut after the
// stack's first sublayer.
// In a stack with n residual streams (hyper_segment.cc), the residual edge of a cut after its first sublayer
// has all of them, [n·rows, d].
// In a stack that combines its layers' outputs (layer_combination.h), the residual edge is the stack's history: at a
// cut before or inside layer l (from 0) it is l + 1 matrices stacked by rows, [(l + 1)·rows, d].
// Forward sends the tensors, backward their gradients, each in its stored type: ModelPlan::residual_storage for the
// residual stream, compute_storage for inputs of matrix products (the encoder's output, the head's input), fp32 for a
// second stream. Every decoder stage forwards the encoder's output to the next. Its gradient is always fp32, because
// several readers add to it, in descending sublayer order.
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/chunk_part.h"
#include "layers/model_plan.h"

namespace hadal {

enum class EdgeKind : int32_t { kResidual, kEncoderOutput, kSecondStream };

struct Edge {
  EdgeKind kind = EdgeKind::kResidual;
  Stack rows = Stack::kEncoder;          // whether rows are counted on the source or on the target side
  int64_t entries = 1;                   // number of matrices [rows, d], stacked by rows
  Storage values = Storage::kFloat32;    // the type of the tensor
  Storage gradient = Storage::kFloat32;  // the type of its gradient
};

// Bytes of the edge at full capacity. `storage`: edge.values, or edge.gradient. `width`: d.
int64_t EdgeBytes(const Edge& edge, Storage storage, const ActivationCapacity& capacity, int64_t width);

// The edges of the cut before sublayer `position`.  REQUIRES: 0 < position < sublayers. At most three; the residual is
// the first.
std::vector<Edge> BorderEdges(const ModelPlan& plan, int32_t position);

}  // namespace hadal

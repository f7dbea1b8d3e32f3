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
// In a stack that reads blocks (block_reader.h), the residual edge is its history, too: the embedding and the sums of
// the blocks before the cut. Within a block, that block's sum so far is the second edge, kSecondStream.
// Forward sends the tensors, of a history only what the receiving rank lacks; backward their gradients, all of them.
// Each is sent in its stored type: ModelPlan::residual_storage for the residual stream, compute_storage for inputs of
// matrix products (the encoder's output, the head's input), fp32 for a second stream. Every decoder
// stage forwards the encoder's output to the next. Its gradient is always fp32, because several readers add to it, in
// descending sublayer order.
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
  Stack rows = Stack::kEncoder;        // whether rows are counted on the source or on the target side
  int64_t entries = 1;                 // number of matrices [rows, d], stacked by rows
  int64_t known = 0;                   // the first entries of a history that the receiver has: forward sends the others
  Storage values = Storage::kFloat32;  // the type of the tensor
  Storage gradient = Storage::kFloat32;  // the type of its gradient

  // Of a message with values, or with gradients.
  Storage storage_of(bool gradients) const { return gradients ? gradient : values; }
  int64_t entries_of(bool gradients) const { return gradients ? entries : entries - known; }
};

// Bytes of the edge's values, or gradient, in a message at full capacity. `width`: d.
int64_t EdgeBytes(const Edge& edge, bool gradients, const ActivationCapacity& capacity, int64_t width);

// The edges of the cut before sublayer `position`.  REQUIRES: 0 < position < sublayers. At most three; the residual is
// the first.
std::vector<Edge> BorderEdges(const ModelPlan& plan, int32_t position);

// How many entries of a history that crosses the cut before `position` a rank has from its chunk that ends before
// `behind` ≤ `position`; 0 if no history crosses or that chunk has not begun it.
int64_t KnownEntries(const ModelPlan& plan, int32_t behind, int32_t position);

}  // namespace hadal

// ChunkPart: the interface of a chunk's parts (pipeline/stage/chunk.h): front ends, segments, layer combinations and
// the loss head.
//
// A part owns no tensors: the chunk allocates them and passes views of one micro-batch's tensors.
// Backward consists of steps() steps, called from steps() − 1 down to 0; a segment has one for each sublayer. Each step
// has two halves: BackwardInput computes the gradient of the inputs; BackwardWeight adds to the gradients of the
// weights. BackwardWeight reads only x, encoder_output, saved, and `pending`, which BackwardInput of the same step
// writes; it may run at any later time while these are kept. Gradients of vectors and scalars that a kernel of
// BackwardInput sums anyway (norms, biases, gains) are computed there.
// Numerics: parameter gradients are summed in fp32 in call order, which is ascending in the micro-batch in every
// schedule.
// Thread safety: const; one micro-batch at a time per workspace. On a device, calls only launch kernels. No allocation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layers/sublayer_context.h"
#include "runtime/arena.h"
#include "runtime/tensor.h"

namespace hadal {

// Views of one micro-batch's tensors. Each part documents which of them it uses; the others may be empty.
// R: rows of the part's stack.
struct PartTensors {
  ConstAnyMatrix x;               // input: [R, d], or the stack's history [entries · R, d]
  ConstAnyMatrix encoder_output;  // [source rows, d]; only for cross-attention
  AnyMatrix y;                    // output [R, d] (=); may not alias x
  // The stack's second stream, fp32 (second_stream.h): d, which Forward updates in place, and its gradient, which is
  // the same behind every sublayer. Empty: there is none, or a recomputation leaves it alone.
  Matrix second;    // [R, d]
  Matrix d_second;  // [R, d]; written by SecondStreamEnd, read by segments
  // Written by Forward for backward: saved_bytes(). The last saved_input_bytes() of them, which BackwardWeight does not
  // read, may lie apart: in saved_input, unless that is null.
  std::byte *saved = nullptr, *saved_input = nullptr;
  // Backward only.
  AnyMatrix d_y;                 // [R, d]: the gradient of y, stored as the residual stream; overwritten
  AnyMatrix d_x;                 // gradient of x: d_y's own memory (in place), a history's (+=), or separate (=)
  Matrix d_encoder_output;       // (+=), fp32
  std::byte* pending = nullptr;  // from BackwardInput to BackwardWeight of the same step: pending_bytes(step)
};

class ChunkPart {
 public:
  virtual ~ChunkPart() = default;

  // Stores the addresses of memory that the part reserved in its constructor.
  virtual void Bind(const Arena& /*arena*/) {}
  // Sizes at full capacity.
  virtual int64_t saved_bytes() const { return 0; }
  virtual int64_t saved_input_bytes() const { return 0; }
  virtual int32_t steps() const { return 1; }
  virtual int64_t pending_bytes(int32_t /*step*/) const { return 0; }

  virtual void Forward(const SublayerContext& context, const PartTensors& tensors) const = 0;
  // REQUIRES: steps are called in descending order.
  virtual void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const = 0;
  virtual void BackwardWeight(const SublayerContext& /*context*/, const PartTensors& /*tensors*/,
                              int32_t /*step*/) const {}
};

}  // namespace hadal

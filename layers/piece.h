// A piece of a chunk (pipeline/stage/chunk.h): a front end, a segment, a layer combination or a loss head.
//
// A piece owns no tensors. The chunk decides where each tensor lies and passes views of one micro-batch's.
// Backward goes in steps, from steps() − 1 down to 0; a segment has one for each sublayer. A step has two halves:
// BackwardInput makes the gradient of what the piece reads, BackwardWeight adds to the gradients of weights. What the
// weight half reads is declared: x, encoder_output, saved, and `pending`, which BackwardInput of the same step writes.
// The weight half may run any time later, as long as these are kept. Gradients of vectors and scalars that a kernel of
// the input half sums anyway (norms, biases, gains) belong to the input half.
// Numerics: parameter gradients are added up in fp32, in the order of the calls: ascending micro-batches in every
// schedule.
// Thread safety: const; one micro-batch at a time a workspace. On a device calls only launch. Nothing allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layers/sublayer_context.h"
#include "runtime/arena.h"
#include "runtime/tensor.h"

namespace hadal {

// Views of one micro-batch's tensors. Each piece says which it reads and writes; the others may be empty.
// R: rows of the piece's stack.
struct PieceTensors {
  ConstAnyMatrix x;               // input: [R, d], or the stack's history [entries · R, d]
  ConstAnyMatrix encoder_output;  // [source rows, d]; only where there is cross-attention
  AnyMatrix y;                    // output [R, d] (=); may not alias x
  std::byte* saved = nullptr;     // what Forward keeps for backward: saved_bytes()
  // Backward only.
  AnyMatrix d_y;                 // [R, d]: the gradient of y, stored as the residual stream; overwritten
  AnyMatrix d_x;                 // the gradient of x: d_y's own memory (in place), or a history's (+=), or apart (=)
  Matrix d_encoder_output;       // (+=), fp32
  std::byte* pending = nullptr;  // what a step's BackwardInput leaves for its BackwardWeight: pending_bytes(step)
};

class Piece {
 public:
  virtual ~Piece() = default;

  // Fixes addresses of memory that the piece itself has reserved.
  virtual void Bind(const Arena& /*arena*/) {}
  // Sizes at full capacity.
  virtual int64_t saved_bytes() const { return 0; }
  virtual int32_t steps() const { return 1; }
  virtual int64_t pending_bytes(int32_t /*step*/) const { return 0; }

  virtual void Forward(const SublayerContext& context, const PieceTensors& tensors) const = 0;
  // REQUIRES: steps descend.
  virtual void BackwardInput(const SublayerContext& context, const PieceTensors& tensors, int32_t step) const = 0;
  virtual void BackwardWeight(const SublayerContext& /*context*/, const PieceTensors& /*tensors*/,
                              int32_t /*step*/) const {}
};

}  // namespace hadal

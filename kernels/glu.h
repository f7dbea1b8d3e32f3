// Gated linear unit (Dauphin et al. 2017, arXiv 1612.08083) and its gradient, as torch.nn.functional.glu:
//
//   forward    y = value ⊙ σ(gate)                            σ(t) = 1 / (1 + e^−t)
//   backward   d_value = dy ⊙ σ;   d_gate = dy ⊙ value ⊙ σ·(1 − σ)
// Shapes: all [R, W], possibly columns of wider matrices. Storage: value, gate and their gradients share one type, fp32
// or on a device bf16; y and dy may each be of that type or fp32.
// Numerics: each element is computed alone, so the number of threads changes no bit. REQUIRES: matching shapes (aborts
// otherwise). Blocking on the CPU, asynchronous on a device; allocates nothing.
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct GluForwardArgs {
  ConstAnyMatrix value, gate;
  AnyMatrix y;  // (=): written; may be `value`
};
void GluForward(const Stream& stream, const GluForwardArgs& args);

struct GluBackwardArgs {
  ConstAnyMatrix dy, value, gate;
  AnyMatrix d_value, d_gate;  // (=); each may be any of the inputs
};
void GluBackward(const Stream& stream, const GluBackwardArgs& args);

}  // namespace hadal

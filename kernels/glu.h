// Gated linear unit (Dauphin et al. 2017, arXiv 1612.08083) and its gradient, as torch.nn.functional.glu:
//
//   forward    y[r, c] = z[r, c] · σ(z[r, W + c])                          σ(t) = 1 / (1 + e^−t)
//   backward   dz[r, c] = dy[r, c] · σ;   dz[r, W + c] = dy[r, c] · z[r, c] · σ·(1 − σ)
// Shapes: z, dz [R, 2W]; y, dy [R, W]. Storage: dy is fp32; z is fp32, or on a device bf16, and y then fp32 or bf16.
// Numerics: each element is computed alone, so the number of threads changes no bit. REQUIRES: matching shapes (aborts
// otherwise). Blocking on the CPU, asynchronous on a device; allocates nothing.
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct GluForwardArgs {
  ConstAnyMatrix z;
  AnyMatrix y;  // (=): written
};
void GluForward(const Stream& stream, const GluForwardArgs& args);

struct GluBackwardArgs {
  ConstMatrix dy;
  AnyMatrix z;  // the forward's z; overwritten by dz
};
void GluBackward(const Stream& stream, const GluBackwardArgs& args);

}  // namespace hadal

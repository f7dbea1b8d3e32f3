// The activation of a feed-forward sublayer with its gate and dropout, in one pass over memory, and its gradient.
//
//   plain    y = f ⊙ act(z)                     z [R, W]
//   gated    y = f ⊙ act(z_1) ⊙ z_2             z = z_1 | z_2 [R, 2W], the activated half first (SwiGLU, GeGLU: Shazeer
//                                               2020, arXiv 2002.05202)
//   backward d z_1 = f ⊙ dy ⊙ z_2 ⊙ act'(z_1)   d z_2 = f ⊙ dy ⊙ act(z_1);   plain: without z_2
// f: the dropout factors (runtime/random.h); that of (row, column) is of element row·W + column. act is one of these,
// with σ(t) = 1/(1 + e^−t) and Φ the normal distribution function:
//   relu max(0, t), keeps a NaN    gelu t·Φ(t)    silu t·σ(t)    gelu_tanh t·σ(2u), u = sqrt(2/π)·(t + 0.044715 t³)
// (GELU: Hendrycks and Gimpel 2016, arXiv 1606.08415, as torch.nn.functional.gelu, exact and "tanh").
// Shapes: y, dy [R, W]; z, dz [R, W], gated [R, 2W]. Storage: all matrices have one type: fp32, or on a device bf16.
// Memory traffic in rows of W: plain 2 forward and 3 backward, gated 3 and 5.
// Numerics: fp32, each element alone, so the number of threads changes no bit. Φ is computed by kNormalTail.
// REQUIRES: matching shapes (aborts otherwise). Blocking on the CPU, asynchronous on a device; allocates nothing.
#pragma once

#include <cstdint>

#include "runtime/random.h"
#include "runtime/tensor.h"

namespace hadal {

class Stream;

enum class Activation : int32_t { kRelu, kGelu, kGeluTanh, kSilu };

// Φ(−t) = e^(−t²/2) · Σ_j kNormalTail[j]·k^(j + 1) for t ≥ 0, with k = 1 / (1 + kNormalTailScale·t). Our fit; its error
// is 4e-9.
inline constexpr float kNormalTailScale = 0.275771645f;  // 0.39 / sqrt(2)
inline constexpr float kNormalTail[] = {0.117662578f,  0.0456944073f, 0.324779201f,
                                        -0.317699522f, 0.443331805f,  -0.11376847f};

struct ActivationForwardArgs {
  Activation activation = Activation::kRelu;
  bool gated = false;  // whether the gated formulas above apply
  ConstAnyMatrix z;
  Dropout dropout;
  AnyMatrix y;  // (=): written
};
void ActivationForward(const Stream& stream, const ActivationForwardArgs& args);

struct ActivationBackwardArgs {
  Activation activation = Activation::kRelu;
  bool gated = false;
  ConstAnyMatrix z;
  Dropout dropout;
  ConstAnyMatrix dy;  // may be the last W columns of dz
  AnyMatrix dz;       // (=)
};
void ActivationBackward(const Stream& stream, const ActivationBackwardArgs& args);

// Gated linear unit (Dauphin et al. 2017, arXiv 1612.08083) and its gradient, as torch.nn.functional.glu:
//   forward    y = value ⊙ σ(gate)                            σ(t) = 1 / (1 + e^−t)
//   backward   d_value = dy ⊙ σ;   d_gate = dy ⊙ value ⊙ σ·(1 − σ)
// Shapes: all [R, W], possibly columns of wider matrices. Storage: value, gate and their gradients share one type, fp32
// or on a device bf16; y and dy may each be of that type or fp32.
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

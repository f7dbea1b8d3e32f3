// The element-wise parts of Muon, an optimizer for matrices: momentum before a matrix is orthogonalised
// (orthogonalize.h), and the step after it.
//
//   MuonMomentum  g' = gradient_scale·g;  m = μ·m + (1 − μ)·g';  u = (1 − μ)·g' + μ·m  with Nesterov, else m
//   MuonStep      p −= decay·p;  p −= step_size·o
// g: gradient, which u replaces; m: momentum, a mean as torch.optim.Muon's (other programs keep the sum, m / (1 − μ));
// p: parameter; o: orthogonalised u.
// Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; torch.optim.Muon of PyTorch 2.15.
// Shapes: n elements, any alignment. (=): written.
// Numerics: fp32 per element, each operation rounded (no fused multiply-add), so all backends give the same bits. The
// scalars are computed in double and rounded once. Elements are independent.
// REQUIRES: equal sizes; 0 ≤ μ < 1 (aborts otherwise). Blocking on the CPU, asynchronous on a device; allocates
// nothing.
#pragma once

#include "runtime/tensor.h"

namespace hadal {

class Stream;

struct MuonMomentumArgs {
  Vector gradient;      // [n] in: g, out: u
  Vector momentum;      // [n] (in place)
  double decay = 0.95;  // μ
  bool nesterov = true;
  double gradient_scale = 1;
};
void MuonMomentum(const Stream& stream, const MuonMomentumArgs& args);

struct MuonStepArgs {
  Vector parameter;            // [n] (in place)
  ConstVector direction;       // [n] o
  VectorOf<BFloat16> rounded;  // [n] (=) the new parameter in bf16, or empty. REQUIRES: empty on the CPU
  float decay = 0, step_size = 0;
};
void MuonStep(const Stream& stream, const MuonStepArgs& args);

// One element, for all backends.
struct MuonMomentumScalars {
  float gradient_scale, decay, one_minus_decay;
  bool nesterov;
};
inline MuonMomentumScalars MuonMomentumScalarsOf(const MuonMomentumArgs& args) {
  return {static_cast<float>(args.gradient_scale), static_cast<float>(args.decay), static_cast<float>(1 - args.decay),
          args.nesterov};
}

}  // namespace hadal

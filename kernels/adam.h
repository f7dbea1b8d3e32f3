// Adam with decoupled weight decay on one flat range, in one pass over memory (fairseq's Adam):
//
//   g' = gradient_scale·g;  m = b1·m + (1 − b1)·g';  v = b2·v + (1 − b2)·g'²
//   p −= lr·wd·p;  p −= lr·sqrt(1 − b2^t)/(1 − b1^t) · m / (sqrt(v) + eps)
// p: parameter; g: gradient; m, v: first and second moment; t: the number of the update; b1, b2: beta1, beta2;
// lr: learning rate; wd: weight decay; eps: epsilon.
//
// The cost is memory traffic: four arrays read, three written. Gradient clipping is part of the pass (gradient_scale =
// min(1, clip / norm)), so the gradient is never rewritten. On a device the same pass also writes the parameter rounded
// to bf16, the copy that products read.
// Source: Kingma & Ba 2015 section 2 (efficient form); Loshchilov & Hutter 2019 for the decay; fairseq optim/adam.py.
// Shapes: n elements, any alignment. (=): written.
// Numerics: fp32 per element. The scalars of a step (AdamScalars, among them b and 1 − b) are computed in double, and
// each is rounded once. Elements are independent, so the number of threads does not change any bit.
// REQUIRES: equal sizes; update ≥ 1; 0 ≤ b1, b2 < 1; eps ≥ 0 (aborts otherwise). Blocking on the CPU, asynchronous on a
// device; allocates nothing.
#pragma once

#include <cmath>

#include "runtime/math.h"
#include "runtime/tensor.h"

namespace hadal {

class Stream;

struct AdamArgs {
  Vector parameter;                    // [n] (in place)
  ConstVector gradient;                // [n]
  Vector first_moment, second_moment;  // [n] (in place)
  VectorOf<BFloat16> rounded;          // [n] (=) the new parameter in bf16, or empty. REQUIRES: empty on the CPU
  double learning_rate = 0;
  double beta1 = 0.9, beta2 = 0.98, epsilon = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;
  int64_t update = 1;  // t ≥ 1: the number of applied updates, not of steps
};
void AdamStep(const Stream& stream, const AdamArgs& args);

// The scalars of a step as the kernels read them: each is computed in double and rounded once.
struct AdamScalars {
  float gradient_scale = 1.0f;
  float beta1 = 0.0f, one_minus_beta1 = 1.0f, beta2 = 0.0f, one_minus_beta2 = 1.0f;
  float decay = 0.0f;      // lr·wd
  float step_size = 0.0f;  // lr·sqrt(1 − b2^t)/(1 − b1^t)
  float epsilon = 0.0f;
};
inline AdamScalars AdamScalarsOf(const AdamArgs& args) {
  const double t = static_cast<double>(args.update);
  const double correction1 = 1 - Pow(args.beta1, t), correction2 = 1 - Pow(args.beta2, t);
  return {.gradient_scale = static_cast<float>(args.gradient_scale),
          .beta1 = static_cast<float>(args.beta1),
          .one_minus_beta1 = static_cast<float>(1 - args.beta1),
          .beta2 = static_cast<float>(args.beta2),
          .one_minus_beta2 = static_cast<float>(1 - args.beta2),
          .decay = static_cast<float>(args.learning_rate * args.weight_decay),
          .step_size = static_cast<float>(args.learning_rate * std::sqrt(correction2) / correction1),
          .epsilon = static_cast<float>(args.epsilon)};
}

}  // namespace hadal

// Adam with decoupled weight decay over one flat range, in one trip (fairseq's Adam):
//
//   g' = gradient_scale·g;  m = b1·m + (1 − b1)·g';  v = b2·v + (1 − b2)·g'²
//   p −= lr·wd·p;  p −= lr·sqrt(1 − b2^t)/(1 − b1^t) · m / (sqrt(v) + eps)
// Source: Kingma & Ba 2015 section 2 (efficient form); Loshchilov & Hutter 2019 for the decay; fairseq optim/adam.py.
// gradient_scale folds clipping in: min(1, clip / norm). Elements are independent: no order to state. Blocking.
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct AdamArgs {
  Vector parameter;      // [n] (in place)
  ConstVector gradient;  // [n]
  Vector first_moment, second_moment;  // [n] (in place)
  double learning_rate = 0;
  double beta1 = 0.9, beta2 = 0.98, epsilon = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;
  int64_t update = 1;  // t ≥ 1
};
void AdamStep(const Stream& stream, const AdamArgs& args);

}  // namespace hadal

// One step of Adam on the CPU: elements are split over threads. kernels/adam.cc checks the arguments.
#pragma once

#include "kernels/adam.h"

namespace hadal::cpu {

// The scalars of a step, computed in double and rounded once.
struct AdamScalars {
  float gradient_scale;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float decay;      // lr·wd
  float step_size;  // lr·sqrt(1 − b2^t)/(1 − b1^t)
  float epsilon;
};

void AdamStep(const Stream& stream, const AdamArgs& args);

}  // namespace hadal::cpu

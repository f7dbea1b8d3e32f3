// Admin's profile (Liu et al. 2020; the recursion of its code): the initial values of the learned vectors ω on the
// residual stream.
//
//   ω of a stack's first sublayer = 1;   ω_{i+1} = sqrt(Var(r·ω_i·x_i) + Var(s_i − r·ω_i·x_i))
//
// where x_i is the residual stream before sublayer i and s_i its sum, in one micro-batch with dropout on and initial
// weights. The radicand is the variance that s_i would have if residual and branch were independent. A segment whose
// context has a profile sets each ω just before its use.
// Shapes: x, s [R, d]; all packed rows are real tokens and count.
// Numerics: variances over all elements in double, in row order, on one thread: a function of the bits of x and s
// alone.
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct ResidualProfile {
  double omega = 1;  // of the current stack's next sublayer; sent between stages with the activation

  struct Entry {
    int32_t parameter = 0;
    double omega = 0;
  };
  std::vector<Entry> found;  // in the order of the sublayers that ran here

  // Sets ω of plan.sublayers[sublayer], after its branch has run. REQUIRES: the parameter ω is on this rank.
  void Begin(const Stream& stream, const ParameterStore& parameters, int32_t sublayer);
  // Measures the variances of the sublayer of the last Begin.
  void End(const Stream& stream, const SublayerRecord& record, ConstAnyMatrix x, ConstAnyMatrix sum);
};

// Sets every element of ω to `value`.
void FillOmega(const Stream& stream, Vector omega, double value);

// Whether the ω of a stack's sublayers are profiled; in the second form, of any stack.
bool IsProfiled(const ModelPlan& plan, Stack stack);
bool IsProfiled(const ModelPlan& plan);

}  // namespace hadal

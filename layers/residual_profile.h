// Admin's profile (Liu et al. 2020; the recursion of its code): where the learned vectors ω on the residual stream start from.
//
//   ω of a stack's first sublayer = 1;   ω_{i+1} = sqrt(Var(r·ω_i·x_i) + Var(s_i − r·ω_i·x_i))
//
// with x_i the stream in front of sublayer i and s_i its sum, of one micro-batch, dropout on: the variance that the sum would have if
// the stream and the branch were independent. The model is as initialised; a segment that meets a profile in its context sets each ω
// just before it is used.
// Shapes: x, s [R, d]; packed rows are real tokens, all of them count.
// Numerics: variances over all elements in double, in row order, on one thread: a function of the bits of x and s alone.
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
  double omega = 1;  // of the next sublayer of the stack under way; it travels with the activation

  struct Entry {
    int32_t parameter = 0;
    double omega = 0;
  };
  std::vector<Entry> found;  // in the order of the sublayers that ran here

  // Sets the vector of plan.sublayers[sublayer], whose branch has run.  REQUIRES: its parameter ω is held here.
  void Begin(const Stream& stream, const ParameterStore& parameters, int32_t sublayer);
  // Takes the variances of the sublayer just begun.
  void End(const Stream& stream, const SublayerRecord& record, ConstAnyMatrix x, ConstAnyMatrix sum);
};

// Every element of ω becomes `value`.
void FillOmega(const Stream& stream, Vector omega, double value);

// Whether the ω of a stack's sublayers, or of any, are profiled.
bool IsProfiled(const ModelPlan& plan, Stack stack);
bool IsProfiled(const ModelPlan& plan);

}  // namespace hadal

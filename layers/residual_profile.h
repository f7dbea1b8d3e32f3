// Admin's profile (Liu et al. 2020; the recursion of its code): the initial values of the learned vectors ω on the
// residual stream.
//
//   ω of a stack's first sublayer = 1;   ω_{i+1} = sqrt(Var(r·ω_i·x_i) + Var(s_i − r·ω_i·x_i))
//
// where x_i is the residual stream before sublayer i, r the residual gain, and s_i = r·ω_i·x_i + branch, in one
// micro-batch with dropout on. ω_{i+1} is the standard deviation that s_i would have if residual and branch were
// independent. The model is as initialised.
// The profile is an observer of the forward pass. It sets each ω when it receives the sublayer's branch (kBranch), just
// before the residual connection reads ω.
// Shapes: x, s [R, d]; all packed rows are real tokens and count.
// Numerics: variances over all elements in double, in row order, on one thread: a function of the bits of x and s
// alone.
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/depth_observer.h"
#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

class ResidualProfile : public DepthObserver {
 public:
  // An initial value that was found.
  struct Entry {
    int32_t parameter = 0;
    double omega = 0;
  };

  // `stream`: of the kernels. Both must outlive the profile.
  ResidualProfile(const Stream& stream, const ParameterStore& parameters) : stream_(stream), parameters_(parameters) {}
  void Observe(const Stream& stream, int32_t micro_batch, const DepthObservation& observation) override;

  double omega = 1;          // for the next sublayer of the current stack; sent from stage to stage with the activation
  std::vector<Entry> found;  // in the order of the sublayers that ran here

 private:
  void SetOmega(const SublayerRecord& record, int32_t parameter);
  // Measures the variances of a sublayer from the values of x and s.
  void Measure(const SublayerRecord& record, const std::vector<float>& x, const std::vector<float>& sum);

  const Stream& stream_;
  const ParameterStore& parameters_;
  std::vector<float> sum_;  // s of the current sublayer, if a norm follows it
};

// Sets every element of ω to `value`.
void FillOmega(const Stream& stream, Vector omega, double value);

// Whether the ω of a stack's sublayers are profiled; the second form: of any stack.
bool IsProfiled(const ModelPlan& plan, Stack stack);
bool IsProfiled(const ModelPlan& plan);

}  // namespace hadal

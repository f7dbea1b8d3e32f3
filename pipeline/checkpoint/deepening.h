// Starts a deeper model from the weights of a trained one by repeating its layers.
//
//   layer i of n starts as layer floor(i m / n) of the checkpoint's m; the copies of a layer follow one another
// A layer is seen as one step of Euler's method; each of its c copies is a step of 1/c of its length: with branch and
// residual gains b, r of the checkpoint and b', r' of the model,
//
//   F' = b·r' / (c·b'·r) · F              the weight and bias of a branch's last product, or of the norm after it
//   γ' = s·sign(γ)·|γ/s|^(1/c), β' = β/c   a norm on the residual stream (post-norm); s: root mean square of γ, which
//                                         the next norm removes
//
// so that the deeper model begins near the checkpoint's loss. All other parameters start as themselves. Source: Chang
// et al., "Multi-level residual networks from dynamical systems view", ICLR 2018, for plain residuals; the gains and
// norms are ours.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "runtime/tensor.h"

namespace hadal {

// How a parameter starts: factor · s·sign(w)·|w/s|^power of the checkpoint's parameter `source` (s: root mean square).
struct DeepenedParameter {
  int32_t source = 0;
  float factor = 1;
  float power = 1;

  void Apply(Vector w) const;  // REQUIRES: all of w, if power is not 1
};

// Returns how each parameter of `to` starts from a checkpoint of `from`.
// Errors: FailedPrecondition, naming the first parameter of either for which the other has none or one of another shape
// (so it is for methods with a table over all layers, dlcl), or the stack of which `from` has more layers.
absl::StatusOr<std::vector<DeepenedParameter>> DeepenedParameters(const ModelPlan& from, const ModelPlan& to);

}  // namespace hadal

// Starts a deeper model from the weights of a trained one by repeating its layers, near the checkpoint's loss or at it.
//
//   layer i of n starts as layer floor(i m / n) of the checkpoint's m; the copies of a layer follow one another
// Branch gains are b, residual gains r and norm gains k; in the model b', r', k'. All else starts as itself.
//
// kSplit: a layer is seen as one step of Euler's method; each of its c copies is a step of 1/c of its length:
//   F' = b·r' / (c·b'·r) · F              the weight and bias of a branch's last product, or of the norm after it
//   γ' = s·sign(γ)·|γ/s|^(1/c), β' = β/c   scale and shift of a norm on the residual stream (post-norm); s: root mean
//                                         square of γ, a factor that the next norm removes
// kZero: the first copy is the layer itself, for the new depth; the others are added so that they change nothing, up to
// the norms' epsilon:
//   first copy   F' = b·r' / (b'·r) · F; a norm in front of a branch γ' = k/k'·γ, β' = k/k'·β
//   others       F' = 0; if the sublayer has a learned gain, that is 0 and F' = F. All elements of Admin's ω' are
//                equal: its initial constant (post-norm), else 1
//   post-norm    γ' = 1, β' = 0 of all norms behind the first copy's last branch but the last, which has γ, β
// Source: of kSplit, for plain residuals, Chang et al., "Multi-level residual networks from dynamical systems view",
// ICLR 2018; the gains and norms are ours. Of kZero, adding layers that are the identity, Chen et al., "Net2Net", ICLR
// 2016.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "runtime/tensor.h"

namespace hadal {

enum class DeepeningRule { kSplit, kZero };

// How a parameter starts from w, the checkpoint's parameter `source`, of root mean square s:
//   factor · s·sign(w)·|w/s|^power + offset
struct DeepenedParameter {
  int32_t source = 0;
  float factor = 1;
  float power = 1;
  float offset = 0;

  void Apply(Vector w) const;  // REQUIRES: all of w, if power is not 1
};

// Returns how each parameter of `to` starts from a checkpoint of `from`.
// Errors: FailedPrecondition, naming the first parameter of either for which the other has none or one of another shape
// (so it is for methods with a table over all layers, dlcl), or the stack of which `from` has more layers; by kZero
// also the first sublayer that would change the loss (of mhc, attn_res and b2t_no_ln any; of mix_ln one whose layer has
// its norms elsewhere than in the checkpoint). In attn_res the first self-attention
// reads no history and has no query w; its copies, which do, take the w of its layer's feed-forward.
absl::StatusOr<std::vector<DeepenedParameter>> DeepenedParameters(const ModelPlan& from, const ModelPlan& to,
                                                                  DeepeningRule rule);

}  // namespace hadal

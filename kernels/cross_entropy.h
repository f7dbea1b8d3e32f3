// Cross-entropy with fairseq's label smoothing over rows of logits, and its gradient, which overwrites the logits.
//
//   nll_i  = logsumexp(z_i) − z_i[t_i]
//   loss_i = (1 − eps − eps_v)·nll_i + eps_v·Σ_v (logsumexp(z_i) − z_i[v]) + zeta·logsumexp(z_i)²,
//            eps_v = eps / (V − 1)
//   dz_i   = gradient_scale · ((1 + 2·zeta·logsumexp(z_i))·softmax(z_i) − q_i),
//            q_i[v] = eps_v + (1 − eps − eps_v)·[v = t_i]
// (q sums to 1: (1 − eps − eps_v) + V·eps_v = 1.)  Sources: fairseq label_smoothed_cross_entropy; for zeta the z-loss
// of PaLM (Chowdhery et al. 2022, arXiv 2204.02311, section 5).
//
// The logits are the largest tensor of a step. They are read twice (maximum and sum of exponentials online, then the
// gradient in place); probabilities are not stored.
// Shapes: R rows, V vocabulary, any V ≥ 1 (V = 1 needs eps = 0). Storage: logits are fp32, or on a device bf16; losses
// are fp32.
// Numerics: fp32 lanes combined in a fixed order, row totals in double. One thread computes a row; the number of
// threads and other rows do not change any bit. A NaN among the logits makes its row's loss, nll and gradient NaN. A
// logit of -inf has probability 0 (and, with eps > 0, makes the loss infinite).
// REQUIRES: 0 ≤ targets[i] < V; 0 ≤ eps < 1; zeta ≥ 0; sizes as stated (aborts otherwise). Blocking on the CPU,
// asynchronous on a device; allocates nothing.
#pragma once

#include "runtime/tensor.h"

namespace hadal {

class Stream;

struct CrossEntropyArgs {
  AnyMatrix logits;           // z [R, V]; overwritten by dz when gradient_scale ≠ 0, else unchanged
  ConstTokens targets;        // t [R] in host memory; may be empty if device_targets is set
  float label_smoothing = 0;  // eps
  float z_loss = 0;           // zeta
  float gradient_scale = 0;   // 1 / (target tokens of the step); 0: loss only
  // On a device: the addresses of the targets and of gradient_scale there; null: the host's values are copied.
  // A target there may be −1, a padding row: its loss, nll, hit and dz are then 0.
  const int32_t* device_targets = nullptr;
  const float* device_gradient_scale = nullptr;
  Vector loss, nll;  // [R] (=): written; natural logarithms
  Vector hits;       // [R] (=) 1 where no logit is larger than the target's, else 0; may be empty
};
void CrossEntropy(const Stream& stream, const CrossEntropyArgs& args);

}  // namespace hadal

// Cross-entropy with fairseq's label smoothing over rows of logits, and its gradient written over the logits.
//
//   nll_i  = logsumexp(z_i) − z_i[t_i]
//   loss_i = (1 − eps − eps_v)·nll_i + eps_v·Σ_v (logsumexp(z_i) − z_i[v]),   eps_v = eps / (V − 1)
//   dz_i   = gradient_scale · (softmax(z_i) − q_i),  q_i[v] = eps_v + (1 − eps − eps_v)·[v = t_i]
// (q sums to 1: (1 − eps − eps_v) + V·eps_v = 1.)  Source: fairseq label_smoothed_cross_entropy.
// Two reads of the logits (max and sum of exponentials online, then the gradient); probabilities are never stored apart.
// Shapes: R rows, V vocabulary.  Numerics: fp32 lanes combined in a fixed order, one thread a row. Blocking; allocates nothing.
#pragma once

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct CrossEntropyArgs {
  Matrix logits;              // [R, V]; overwritten by dz when gradient_scale ≠ 0, else left
  ConstTokens targets;        // [R]
  float label_smoothing = 0;  // eps
  float gradient_scale = 0;   // 1 / (target tokens of the step); 0: loss only
  Vector loss, nll;           // [R] (=) natural logarithms
};
void CrossEntropy(const Stream& stream, const CrossEntropyArgs& args);

}  // namespace hadal

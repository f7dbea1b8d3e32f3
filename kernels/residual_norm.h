// The residual connection of every training method (Post-LN, Pre-LN, DeepNorm, …), in one pass over memory.
//
//   s = r·ω ⊙ x + b·g·dropout(y + bias) + a·e                           [R, W]
//   n = k·(scale ⊙ (s − mean(s)) / sqrt(var(s) + ε) + shift)            [R, W]  LayerNorm
//   n = k·(scale ⊙ s / sqrt(mean(s²) + ε) + shift)                      [R, W]  RMSNorm
//   d' = d + c·b·g·dropout(y + bias)                                    [R, W], only with a second residual stream d
//
// Post-norm: n is the next residual (x' = n). Pre-norm: s is the next residual and n is the next sublayer's input, so
// one kernel computes the sum and the next sublayer's norm. At the start of a segment (consecutive sublayers that run,
// and are recomputed, together) the norm runs alone (no branch, s = x) and gives the same bits.
// Source: residual_norm.md has the derivation. DeepNorm: DeepNet (arXiv 2203.00555) figure 2, r = alpha. BranchNorm
// (arXiv 2305.02790) eq. 7, b = alpha_t. ReZero (Bachlechner et al. 2020), g learned. Admin (Liu et al. 2020), ω
// learned. B2T (arXiv 2206.00330), e the layer's input. LayerNorm Scaling (arXiv 2502.05795), k. ResiDual (arXiv
// 2304.14802), d. LayerNorm: biased variance. RMSNorm: Zhang and Sennrich 2019 (arXiv 1910.07467); its mean is stored
// as 0.
// Shapes: R packed rows, W width (d_model). (=): written; (+=): added to.
// Storage: x, e, s, d_residual and d_sum share one type. y, n and their gradients, which products read or write, share
// another. On the CPU both types are fp32; on a device either may be bf16 (cuda/residual_norm.h lists the pairs).
// Everything else is fp32, also d_skip, the second stream d and its gradient.
// Memory traffic of a second stream: the same pass also reads d and writes d' (forward), and reads ∂L/∂d (backward).
// Numerics: sums and statistics in fp32. Mean and variance of a row take two passes over the row, which stays in cache;
// the sums of the vector lanes are combined in a fixed order. Column sums (d_bias, d_scale, d_shift, d_ω) and d_g run
// over blocks of rows (on the CPU kResidualNormRowBlock), and blocks are merged in ascending order, so the number of
// threads does not change any bit.
// Dropout: element (row, column) uses random number row·W + column (runtime/random.h). On the CPU blocking; on a device
// asynchronous. Allocates nothing.
#pragma once

#include "runtime/random.h"
#include "runtime/tensor.h"

namespace hadal {

class Stream;

class GradientBatch;  // gradient_batch.h

// Which norm a kernel computes.
struct NormForm {
  bool centred = true;    // LayerNorm; false: RMSNorm
  float epsilon = 1e-5f;  // ε
};
inline constexpr int64_t kResidualNormRowBlock = 32;

// `residual` is the tensor of the residual stream; the argument `stream` is where the kernel runs.
struct ResidualNormForwardArgs {
  ConstAnyMatrix residual;     // x [R, W]
  ConstAnyMatrix branch;       // y [R, W]; empty: the norm alone (s = x; gains, bias, dropout and skip are unused)
  ConstVector bias;            // [W] added to y, or empty
  ConstAnyMatrix skip;         // e [R, W], or empty
  float residual_gain = 1.0f;  // r
  float branch_gain = 1.0f;    // b
  const float* device_branch_gain = nullptr;  // address of b on a device, for graphs; null: branch_gain
  float skip_gain = 1.0f;                     // a
  ConstVector learned_residual_gain;          // ω [W], or empty: 1
  ConstVector learned_branch_gain;            // g [1], or empty: 1
  Dropout dropout;
  ConstVector scale, shift;  // [W]; `scale` empty: no norm; `shift` may be empty: 0
  NormForm form;
  float norm_gain = 1.0f;    // k; 1 changes no bit
  AnyMatrix sum;             // s [R, W] (=); empty if only n is needed; may alias `branch` or `residual`
  AnyMatrix normed;          // n [R, W] (=); empty without norm; must not alias residual, branch or sum
  Vector mean, rstd;         // [R] (=), for backward; empty without norm
  float second_gain = 1.0f;  // c
  ConstMatrix second;        // d [R, W]; empty: c·x, with which a second stream starts
  Matrix second_sum;         // d' [R, W] (=), with a branch; empty: no second stream; may alias `second`
};
void ResidualNormForward(const Stream& stream, const ResidualNormForwardArgs& args);

// With ds = LayerNorm'(k·d_normed) + d_sum and df = ds + c·d_second:
//   d_residual = r·ω ⊙ ds    d_branch = b·g·mask·df    d_skip += a·ds    d_bias += Σ_rows d_branch
//   d_ω += Σ_rows r·ds ⊙ x    d_g += Σ b·mask·df ⊙ (y + bias)           d_scale, d_shift as LayerNorm's of k·d_normed
// The gradient of d is d_second itself; where the second stream starts, d_residual also gets c·d_second.
struct ResidualNormBackwardArgs {
  ConstAnyMatrix d_normed;  // [R, W]; empty without norm
  ConstAnyMatrix d_sum;     // [R, W] direct gradient of s (pre-norm's residual stream), or empty
  ConstAnyMatrix sum;       // s of the forward; with mean, rstd, scale: empty without norm
  ConstVector mean, rstd;   // [R]
  ConstVector scale;        // [W]
  NormForm form;            // the forward's
  float norm_gain = 1.0f;
  float residual_gain = 1.0f;
  float branch_gain = 1.0f;
  const float* device_branch_gain = nullptr;
  float skip_gain = 1.0f;
  ConstVector learned_residual_gain, learned_branch_gain;
  ConstAnyMatrix residual;  // x of the forward; read for d_learned_residual_gain
  ConstAnyMatrix branch;    // y and bias of the forward; read for d_learned_branch_gain
  ConstVector bias;         // may be empty
  float second_gain = 1.0f;
  ConstMatrix d_second;        // [R, W] gradient of d', with d_branch; empty: no second stream
  bool second_starts = false;  // d was c·x
  Dropout dropout;
  AnyMatrix d_residual;            // [R, W] (=); may alias d_normed or d_sum
  AnyMatrix d_branch;              // [R, W] (=), or empty: the norm alone (d_residual = ds); may not alias d_residual
  Matrix d_skip;                   // [R, W] (+=), or empty
  Vector d_bias;                   // [W] (+=), or empty
  Vector d_learned_residual_gain;  // [W] (+=), with learned_residual_gain
  Vector d_learned_branch_gain;    // [1] (+=), with learned_branch_gain
  Vector d_scale, d_shift;         // [W] (+=); empty without norm, d_shift also without a shift
  Vector partials;                 // scratch, ResidualNormPartials(R, W) floats
  GradientBatch* batch = nullptr;  // on a device: the vectors' gradients are complete after its Launch; null: at once
};
void ResidualNormBackward(const Stream& stream, const ResidualNormBackwardArgs& args);

// Floats of scratch of the backward for `rows` rows of `width`, enough for blocks of kResidualNormLeastBlock rows, the
// smallest on a device.
inline constexpr int64_t kResidualNormSums = 5;  // sums of a block of rows: d_bias, d_scale, d_shift, d_ω, d_g
inline constexpr int64_t kResidualNormLeastBlock = 16;
constexpr int64_t ResidualNormPartials(int64_t rows, int64_t width) {
  return (rows + kResidualNormLeastBlock - 1) / kResidualNormLeastBlock * kResidualNormSums * width;
}

}  // namespace hadal

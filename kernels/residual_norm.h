// The residual connection of every method, in one trip over memory.
//
//   s = r·x + b·dropout(y + bias) + e                                   [R, W]
//   n = scale ⊙ (s − mean(s)) / sqrt(var(s) + 1e-5) + shift             [R, W]
//
// Post-norm: n is the next stream (x' = n). Pre-norm: s is the next stream and n the next sublayer's input, so the next
// sublayer's norm rides along; where a segment or chunk starts, the same norm runs alone (no branch: s = x) with the same bits.
// Source: methods.md section 0; DeepNorm: DeepNet (arXiv 2203.00555) figure 2, r = alpha; BranchNorm (arXiv 2305.02790) eq. 7,
// b = alpha_t. LayerNorm: biased variance, eps 1e-5.
// Shapes: R packed rows, W width (d_model).
// Numerics: fp32; mean and variance of a row in two passes over the row held in cache, lane sums combined in a fixed order.
// Column sums (d_bias, d_scale, d_shift) run over blocks of kResidualNormRowBlock rows, blocks merged in ascending order, so
// neither threads nor their number change a bit.
// Dropout element = row·W + column. Blocking; allocates nothing.
#pragma once

#include "runtime/random.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

inline constexpr float kLayerNormEpsilon = 1e-5f;
inline constexpr int64_t kResidualNormRowBlock = 32;

struct ResidualNormForwardArgs {
  ConstMatrix stream;          // x [R, W]
  ConstMatrix branch;          // y [R, W], or empty: the norm alone (s = x; gains, bias, dropout and skip are not used)
  ConstVector bias;            // [W] added to y, or empty
  ConstMatrix skip;            // e [R, W], or empty
  float residual_gain = 1.0f;  // r
  float branch_gain = 1.0f;    // b
  Dropout dropout;
  ConstVector scale, shift;  // [W] both, or both empty: no norm
  Matrix sum;                // s [R, W] (=); may be empty where only n is wanted, may alias `branch` or `stream`
  Matrix normed;             // n [R, W] (=); empty without norm; must not alias stream, branch or sum
  Vector mean, rstd;         // [R] (=), kept for backward; empty without norm
};
void ResidualNormForward(const Stream& stream, const ResidualNormForwardArgs& args);

// With ds = LayerNorm'(d_normed) + d_sum:
//   d_stream = r·ds    d_branch = b·mask·ds    d_skip += ds    d_bias += Σ_rows d_branch    d_scale, d_shift as LayerNorm's
struct ResidualNormBackwardArgs {
  ConstMatrix d_normed;    // [R, W]; empty without norm
  ConstMatrix d_sum;       // [R, W] gradient that arrives at s directly (pre-norm's stream), or empty
  ConstMatrix sum;         // s of the forward; with mean, rstd, scale: empty without norm
  ConstVector mean, rstd;  // [R]
  ConstVector scale;       // [W]
  float residual_gain = 1.0f;
  float branch_gain = 1.0f;
  Dropout dropout;
  Matrix d_stream;          // [R, W] (=); may alias d_normed or d_sum
  Matrix d_branch;          // [R, W] (=), or empty: the norm alone (d_stream = ds); may not alias d_stream
  Matrix d_skip;            // [R, W] (+=), or empty
  Vector d_bias;            // [W] (+=), or empty
  Vector d_scale, d_shift;  // [W] (+=); empty without norm
  Vector partials;          // scratch, ResidualNormPartials(R, W) floats
};
void ResidualNormBackward(const Stream& stream, const ResidualNormBackwardArgs& args);

// Floats of scratch that the backward needs for `rows` rows of `width`.
constexpr int64_t ResidualNormPartials(int64_t rows, int64_t width) {
  return (rows + kResidualNormRowBlock - 1) / kResidualNormRowBlock * 3 * width;
}

}  // namespace hadal

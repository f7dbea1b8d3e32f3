// The residual connection on the device: the rules of kernels/residual_norm.h, with these differences.
//
//   s = r·ω ⊙ x + b·g·dropout(y + bias) + a·e,  n = k·LayerNorm(s),  d' = d + c·b·g·dropout(y + bias)
// Types: Residual is the stored type of x, s, e and their gradients, Compute that of y, n and their gradients.
//   <float, float>        fp32
//   <BFloat16, BFloat16>  bf16 post-norm
//   <float, BFloat16>     bf16 with an fp32 residual stream (pre-norm, no norm)
//   <BFloat16, float>     forward only: adds an fp32 gradient (of a skip) to the residual stream's gradient
// Bias, gains, statistics and sums are fp32; so is d_skip, because several readers add to it. s is rounded to Residual
// before the norm even if it is not stored, so a norm of the stored s has the same bits.
// Layout: a team of threads holds a row in registers, eight columns per thread (row_team.h). 16-byte accesses if every
// row is 16-byte aligned and the width is a multiple of 8, else single elements.
// Numerics: sums along a row as in row_team.h; mean and variance in two passes over the registers. Column sums in two
// stages: a block adds DeviceRowBlock(R) rows, each team its rows in ascending order, then teams in ascending order; a
// second kernel adds the blocks (column_merge.h). g's gradient is one number: a block adds the eight columns of a
// thread in ascending order, a warp as a butterfly, warps in ascending order; then the blocks in the same way. All
// orders depend only on shapes; no atomics: deterministic.
// Learned gains (ω, g) and a second stream (d) have their own kernels, so that other methods do not use registers for
// them.
// Values that change between steps (dropout's position, the branch gain) are read from device memory, for graphs.
// REQUIRES: 1 ≤ width ≤ kMaxTeamWidth; arguments present and absent as in kernels/residual_norm.h (aborts otherwise).
// Asynchronous.
#pragma once

#include <vector>

#include "kernels/column_merge.h"
#include "kernels/cuda/device_view.h"
#include "kernels/cuda/dropout.h"
#include "kernels/residual_norm.h"

namespace hadal::cuda {

// Rows that a block of the backward adds before it writes its sums. A multiprocessor holds three blocks, so an A100
// (108 multiprocessors) holds 324 at once and an H100 (132) holds 396. No round of blocks should be nearly empty, and
// many rows should write few sums: a block's sums are 9% of its bf16 traffic with 32 rows, 2% with 128.
//   up to 4,096 rows    16: 256 blocks, one round
//   up to 8,192 rows    28: 293 blocks, one round
//   more                at most 1,584 blocks: four whole rounds on an H100, nearly five on an A100; a multiple of
//                       eight, the most teams of a block
constexpr int64_t DeviceRowBlock(int64_t rows) {
  constexpr int64_t kMostBlocks = 1584, kTeams = 8;
  if (rows <= 8192) return rows <= 4096 ? 16 : 28;
  const int64_t block = kTeams * ((rows + kTeams * kMostBlocks - 1) / (kTeams * kMostBlocks));
  return block < 32 ? 32 : block;
}
inline constexpr int64_t kWidestRow = 3072;  // kMaxTeamWidth of row_team.h

template <typename Residual, typename Compute>
struct ResidualNormForwardArgs {
  int64_t rows = 0, width = 0;                                            // R, W
  DeviceMatrix<const Residual> residual;                                  // x [R, W]
  DeviceMatrix<const Compute> branch;                                     // y [R, W], or null: the norm alone
  DevicePointer<const float> bias;                                        // [W], or null
  DeviceMatrix<const Residual> skip;                                      // e [R, W], or null
  float residual_gain = 1.0f;                                             // r
  float skip_gain = 1.0f;                                                 // a
  DevicePointer<const float> branch_gain;                                 // b, one number; null: 1
  DevicePointer<const float> learned_residual_gain, learned_branch_gain;  // ω [W], g [1], or null: 1
  DeviceDropout dropout;
  DevicePointer<const float> scale, shift;  // [W] both, or both null: no norm
  float norm_gain = 1.0f;                   // k
  DeviceMatrix<Residual> sum;               // s [R, W] (=), or null; may alias branch or residual
  DeviceMatrix<Compute> normed;             // n [R, W] (=), null without norm
  DevicePointer<float> mean, rstd;          // [R] (=), null without norm
  float second_gain = 1.0f;                 // c
  DeviceMatrix<const float> second;         // d [R, W], or null: c·x
  DeviceMatrix<float> second_sum;           // d' [R, W] (=), with a branch, or null; may alias `second`
};
template <typename Residual, typename Compute>
void ResidualNormForward(StreamHandle stream, const ResidualNormForwardArgs<Residual, Compute>& args);

template <typename Residual, typename Compute>
struct ResidualNormBackwardArgs {
  int64_t rows = 0, width = 0;
  DeviceMatrix<const Compute> d_normed;   // [R, W], null without norm
  DeviceMatrix<const Residual> d_sum;     // [R, W], or null
  DeviceMatrix<const Residual> sum;       // s, null without norm
  DevicePointer<const float> mean, rstd;  // [R]
  DevicePointer<const float> scale;       // [W]
  float norm_gain = 1.0f;                 // k
  float residual_gain = 1.0f, skip_gain = 1.0f;
  DevicePointer<const float> branch_gain;
  DevicePointer<const float> learned_residual_gain, learned_branch_gain;
  DeviceMatrix<const Residual> residual;  // x of the forward, with ω
  DeviceMatrix<const Compute> branch;     // y of the forward, with g
  DevicePointer<const float> bias;        // of the forward, with g, or null
  float second_gain = 1.0f;
  DeviceMatrix<const float> d_second;  // [R, W] gradient of d', with d_branch, or null
  bool second_starts = false;
  DeviceDropout dropout;
  DeviceMatrix<Residual> d_residual;                                    // [R, W] (=); may alias d_normed or d_sum
  DeviceMatrix<Compute> d_branch;                                       // [R, W] (=), or null: the norm alone
  DeviceMatrix<float> d_skip;                                           // [R, W] (+=) a·ds, or null
  DevicePointer<float> d_bias, d_scale, d_shift;                        // [W] (+=), or null
  DevicePointer<float> d_learned_residual_gain, d_learned_branch_gain;  // [W], [1] (+=), with the gains
  DevicePointer<float> partials;                                        // scratch, ResidualNormPartials(R, W) floats
};
// `later`: receives the second stage of d_bias, d_scale, d_shift and d_ω instead of a launch (column_merge.h); or null.
template <typename Residual, typename Compute>
void ResidualNormBackward(StreamHandle stream, const ResidualNormBackwardArgs<Residual, Compute>& args,
                          std::vector<ColumnMerge>* later = nullptr);

// Floats of scratch for the backward: d_bias, d_scale, d_shift and, with a learned gain or a second stream (`more`),
// d_ω and d_g (one number), for each block of rows.
constexpr int64_t ResidualNormPartials(int64_t rows, int64_t width, bool more = true) {
  return (rows + DeviceRowBlock(rows) - 1) / DeviceRowBlock(rows) * (more ? 4 * width + 1 : 3 * width);
}

}  // namespace hadal::cuda

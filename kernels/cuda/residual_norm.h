// The residual connection on the device: the rules of kernels/residual_norm.h, and these differences.
//
//   s = r·ω ⊙ x + b·g·dropout(y + bias) + a·e,  n = LayerNorm(s)
// Types: Residual is the stored type of the stream (x, s, e and their gradients), Compute that of what touches a matrix product (y, n).
//   fp32 runs <float, float>; bf16 post-norm <BFloat16, BFloat16>; bf16 with an fp32 stream (pre-norm, no norm) <float, BFloat16>.
//   <BFloat16, float>, forward only, adds an fp32 gradient (a skip's) to the stream's.
//   Bias, gains, statistics and sums are fp32. s is rounded to Residual before it is normalised, whether it is stored or not, so that
//   the norm alone on a stored s has the same bits; d_skip is fp32, because several readers add to it.
// Why one trip: with bf16 the forward reads x and y and writes s and n, 8 bytes an element, and there is nothing else to do.
// Layout: a team of threads holds a row in registers, eight columns a thread (row_team.h), 16-byte accesses where every row
//   starts on 16 bytes and the width is a multiple of 8, single elements otherwise.
// Numerics: sums along a row as in row_team.h, mean and variance in two passes over the registers. Column sums in two stages: a block
//   adds rows of DeviceRowBlock(R), each team its rows in ascending order, teams in ascending order; a second kernel adds the blocks,
//   in runs of ascending order merged in ascending order (column_merge.h). A function of shapes alone: no atomics, the same bits every time.
// Learned gains (ω, g) have kernels of their own, so that methods without them keep their registers; g's gradient is one number: a block
//   adds its threads' eight columns in ascending order, a warp as a butterfly, warps in ascending order; then the blocks likewise.
// What changes between steps (dropout's place, the branch gain) is read from device memory, so a captured graph can be replayed.
// REQUIRES: 1 ≤ width ≤ kMaxTeamWidth; as kernels/residual_norm.h for what is given with what (aborts otherwise). Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/cuda/dropout.h"
#include "kernels/residual_norm.h"

namespace hadal::cuda {

// Rows that a block of the backward adds up before its sums go to memory. 4,096 rows must give every multiprocessor (132 at most) two
// blocks, or it waits for memory half its time; and many rows should cost few sums: those of a block of 32 rows are 9% of its bf16
// traffic, of 128 rows 2%. At most 1,584 blocks: a multiprocessor holds three, so that they are four whole rounds of an H100's 132 and nearly
// five of an A100's 108, and no round is nearly empty. A multiple of eight rows, the teams of a block at most.
constexpr int64_t DeviceRowBlock(int64_t rows) {
  constexpr int64_t kMostBlocks = 1584, kTeams = 8;
  if (rows <= 8192) return 16;
  const int64_t block = kTeams * ((rows + kTeams * kMostBlocks - 1) / (kTeams * kMostBlocks));
  return block < 32 ? 32 : block;
}
inline constexpr int64_t kWidestRow = 3072;  // kMaxTeamWidth of row_team.h

template <typename Residual, typename Compute>
struct ResidualNormForwardArgs {
  int64_t rows = 0, width = 0;                                            // R, W
  DeviceMatrix<const Residual> stream;                                    // x [R, W]
  DeviceMatrix<const Compute> branch;                                     // y [R, W], or null: the norm alone
  DevicePointer<const float> bias;                                        // [W], or null
  DeviceMatrix<const Residual> skip;                                      // e [R, W], or null
  float residual_gain = 1.0f;                                             // r
  float skip_gain = 1.0f;                                                 // a
  DevicePointer<const float> branch_gain;                                 // b, one number; null: 1
  DevicePointer<const float> learned_residual_gain, learned_branch_gain;  // ω [W], g [1], or null: 1
  DeviceDropout dropout;
  DevicePointer<const float> scale, shift;  // [W] both, or both null: no norm
  DeviceMatrix<Residual> sum;               // s [R, W] (=), or null; may alias branch or stream
  DeviceMatrix<Compute> normed;             // n [R, W] (=), null without norm
  DevicePointer<float> mean, rstd;          // [R] (=), null without norm
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
  float residual_gain = 1.0f, skip_gain = 1.0f;
  DevicePointer<const float> branch_gain;
  DevicePointer<const float> learned_residual_gain, learned_branch_gain;
  DeviceMatrix<const Residual> stream;  // x of the forward, with ω
  DeviceMatrix<const Compute> branch;   // y of the forward, with g
  DevicePointer<const float> bias;      // of the forward, with g, or null
  DeviceDropout dropout;
  DeviceMatrix<Residual> d_stream;                                      // [R, W] (=); may alias d_normed or d_sum
  DeviceMatrix<Compute> d_branch;                                       // [R, W] (=), or null: the norm alone
  DeviceMatrix<float> d_skip;                                           // [R, W] (+=) a·ds, or null
  DevicePointer<float> d_bias, d_scale, d_shift;                        // [W] (+=), or null
  DevicePointer<float> d_learned_residual_gain, d_learned_branch_gain;  // [W], [1] (+=), with the gains
  DevicePointer<float> partials;                                        // scratch, ResidualNormPartials(R, W) floats
};
template <typename Residual, typename Compute>
void ResidualNormBackward(StreamHandle stream, const ResidualNormBackwardArgs<Residual, Compute>& args);

// Floats of scratch that the backward needs: of each block of rows d_bias, d_scale, d_shift and d_ω, and d_g, one number.
constexpr int64_t ResidualNormPartials(int64_t rows, int64_t width) {
  return (rows + DeviceRowBlock(rows) - 1) / DeviceRowBlock(rows) * (4 * width + 1);
}

}  // namespace hadal::cuda

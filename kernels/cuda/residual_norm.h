// The residual connection on the device: the rules of kernels/residual_norm.h, with these differences.
//
//   s = r·ω ⊙ x + b·g·dropout(y + bias) + a·e,  n = k·norm(s),  d' = d + c·b·g·dropout(y + bias)
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
// REQUIRES: width ≤ kWidestRow (aborts otherwise); arguments that kernels/residual_norm.cc has checked.
// Asynchronous.
#pragma once

#include <vector>

#include "kernels/column_merge.h"
#include "kernels/cuda/device_view.h"
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

// REQUIRES (both): if dropout is active, its device_position. Without device_branch_gain, branch_gain is a kernel
// argument.
void ResidualNormForward(StreamHandle stream, const ResidualNormForwardArgs& args);
// `later`: receives the second stage of d_bias, d_scale, d_shift and d_ω instead of a launch (column_merge.h); or null.
// args.batch is not used.
void ResidualNormBackward(StreamHandle stream, const ResidualNormBackwardArgs& args,
                          std::vector<ColumnMerge>* later = nullptr);

// Floats of scratch for the backward: d_bias, d_scale, d_shift and, with a learned gain or a second stream (`more`),
// d_ω and d_g (one number), for each block of rows.
constexpr int64_t ResidualNormPartials(int64_t rows, int64_t width, bool more = true) {
  return (rows + DeviceRowBlock(rows) - 1) / DeviceRowBlock(rows) * (more ? 4 * width + 1 : 3 * width);
}

}  // namespace hadal::cuda

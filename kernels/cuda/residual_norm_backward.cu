#include "kernels/cuda/residual_norm.h"

#include "kernels/cuda/column_merge.h"
#include "kernels/cuda/column_parts.h"
#include "kernels/cuda/dropout_draws.h"
#include "kernels/cuda/row_team.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kColumnSums = 3;  // d_bias, d_scale, d_shift
constexpr int kMoreSums = 4;    // and d_ω

// The sums of one thread over its rows.
struct ColumnSums {
  Eight bias, scale, shift;
  Eight residual_gain;  // for learned gains
  float branch_gain = 0.0f;
};

// Values of a row that a thread keeps from the computation of the two means to the gradient.
struct NormTerms {
  Eight gradient;    // dh = k·dn ⊙ scale
  Eight normalised;  // h = (s − mean)·rstd
};

// Loads a row's dn and s; adds the row to d_scale and d_shift.
template <bool kAligned, typename Args>
HADAL_DEVICE NormTerms LoadNormTerms(const Args& args, const RowTeam& team, int64_t row, float rstd, ColumnSums& sums) {
  NormTerms terms;
  const Eight dn = LoadEight<kAligned>(args.d_normed.row(row) + team.column, team.columns);
  const Eight s = LoadEight<kAligned>(args.sum.row(row) + team.column, team.columns);
  const Eight scale = LoadEight<kAligned>(args.scale + team.column, team.columns);
  const float mean = Load(args.mean + row);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) {
    const float gradient = args.norm_gain * dn.v[c];
    terms.normalised.v[c] = (s.v[c] - mean) * rstd;
    terms.gradient.v[c] = gradient * scale.v[c];
    sums.scale.v[c] = MulAdd(gradient, terms.normalised.v[c], sums.scale.v[c]);
    sums.shift.v[c] += gradient;
  }
  return terms;
}

// Adds a row to d_g: Σ b·mask·ds·(y + bias). `masked` is b·mask·ds.
template <bool kAligned, typename Args>
HADAL_DEVICE void AddBranchGain(const Args& args, const RowTeam& team, int64_t row, const Eight& masked,
                                ColumnSums& sums) {
  const Eight y = LoadEight<kAligned>(args.branch.row(row) + team.column, team.columns);
  Eight bias;
  if (args.bias) bias = LoadEight<kAligned>(args.bias + team.column, team.columns);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) {
    sums.branch_gain = MulAdd(masked.v[c], y.v[c] + bias.v[c], sums.branch_gain);
  }
}

// `scaled` is r·ds of a row. Adds r·ds ⊙ x to d_ω and replaces `scaled` by r·ω ⊙ ds.
template <bool kAligned, typename Args>
HADAL_DEVICE void ApplyResidualGain(const Args& args, const RowTeam& team, int64_t row, Eight& scaled,
                                    ColumnSums& sums) {
  const Eight x = LoadEight<kAligned>(args.residual.row(row) + team.column, team.columns);
  const Eight omega = LoadEight<kAligned>(args.learned_residual_gain + team.column, team.columns);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) {
    sums.residual_gain.v[c] = MulAdd(scaled.v[c], x.v[c], sums.residual_gain.v[c]);
    scaled.v[c] *= omega.v[c];
  }
}

// Computes from ds of a row d_residual, d_branch, d_skip, and the thread's part of d_bias and of the learned gains'
// gradients.
template <bool kAligned, bool kMore, typename Residual, typename Compute>
HADAL_DEVICE void StoreGradients(const ResidualNormBackwardArgs<Residual, Compute>& args, const RowTeam& team,
                                 int64_t row, Eight ds, float branch_gain, const RandomPosition& position,
                                 ColumnSums& sums) {
  if (args.d_skip) {
    Eight d_skip = LoadEight<kAligned>(args.d_skip.row(row) + team.column, team.columns);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) d_skip.v[c] = MulAdd(args.skip_gain, ds.v[c], d_skip.v[c]);
    StoreEight<kAligned>(args.d_skip.row(row) + team.column, d_skip, team.columns);
  }
  if (args.d_branch) {
    Eight d_branch = ds;
    if (kMore && args.d_second) {
      const Eight d_second = LoadEight<kAligned>(args.d_second.row(row) + team.column, team.columns);
      HADAL_UNROLL for (int c = 0; c < 8; ++c) {
        d_branch.v[c] = MulAdd(args.second_gain, d_second.v[c], d_branch.v[c]);
      }
    }
    HADAL_UNROLL for (int c = 0; c < 8; ++c) d_branch.v[c] *= branch_gain;
    if (args.dropout.active()) ApplyDropout<kAligned>(args.dropout, position, row * args.width + team.column, d_branch);
    if (kMore && args.learned_branch_gain) {
      AddBranchGain<kAligned>(args, team, row, d_branch, sums);
      const float gain = Load(args.learned_branch_gain);
      HADAL_UNROLL for (int c = 0; c < 8; ++c) d_branch.v[c] *= gain;
    }
    StoreEight<kAligned>(args.d_branch.row(row) + team.column, d_branch, team.columns);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) {
      sums.bias.v[c] += d_branch.v[c];  // also for columns that do not exist; never read
      ds.v[c] *= args.residual_gain;
    }
    if (kMore && args.learned_residual_gain) ApplyResidualGain<kAligned>(args, team, row, ds, sums);
    if (kMore && args.second_starts) {
      const Eight d_second = LoadEight<kAligned>(args.d_second.row(row) + team.column, team.columns);
      HADAL_UNROLL for (int c = 0; c < 8; ++c) ds.v[c] = MulAdd(args.second_gain, d_second.v[c], ds.v[c]);
    }
  }
  StoreEight<kAligned>(args.d_residual.row(row) + team.column, ds, team.columns);
}

// Adds the teams' sums in ascending order and stores the block's part. Every thread of the block must call it.
HADAL_DEVICE void StoreColumnSums(const Eight& sums, const RowTeam& team, int64_t width, Shared<float> exchange,
                                  DevicePointer<float> part) {
  const int team_columns = 8 * team.warps * kWarp;
  Barrier();  // the previous sums may still be read
  StoreEightShared(exchange + 8 * ThreadIndex(), sums);
  Barrier();
  for (int64_t column = ThreadIndex(); column < width; column += ThreadsInBlock()) {
    float total = exchange[column];
    for (int t = 1; t < team.teams; ++t) total += exchange[t * team_columns + column];
    Store(part + column, total);
  }
}

// Adds one number per thread: a warp as a butterfly, warps in ascending order; thread 0 stores the sum. Every thread
// must call it.
HADAL_DEVICE void StoreBlockSum(float x, Shared<float> exchange, DevicePointer<float> to) {
  x = SumOfWarp(x);
  Barrier();  // `exchange` may still be read
  if (ThreadIndex() % kWarp == 0) exchange[ThreadIndex() / kWarp] = x;
  Barrier();
  if (ThreadIndex() != 0) return;
  for (int w = 1; w < ThreadsInBlock() / kWarp; ++w) x += exchange[w];
  Store(to, x);
}

// Floats of one block's sums in `partials`.
HADAL_HOST_DEVICE int64_t PartOfBlock(bool more, int64_t width) {
  return more ? kMoreSums * width + 1 : kColumnSums * width;
}

template <typename Residual, typename Compute, bool kAligned, bool kMore>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kMaxTeamBlockThreads, kMore ? 1 : 2)
    ResidualNormBackwardKernel(ResidualNormBackwardArgs<Residual, Compute> args, int team_threads, int64_t row_block) {
  HADAL_SHARED(float, slots, TeamSums<2>::kSlots);
  HADAL_SHARED(float, exchange, 8 * kMaxTeamBlockThreads);
  TeamSums<2> row_sums = {slots};
  const RowTeam team = ThisRowTeam(args.width, team_threads);
  const bool norm = static_cast<bool>(args.d_normed);
  const float branch_gain = args.branch_gain ? Load(args.branch_gain) : 1.0f;
  RandomPosition position;
  if (args.dropout.active()) position = Load(args.dropout.position);
  const float share = 1.0f / static_cast<float>(args.width);
  ColumnSums sums;
  for (int64_t i = 0; i < row_block; i += team.teams) {
    const int64_t row = BlockX() * row_block + i + team.index;
    const bool mine = i + team.index < row_block && row < args.rows && team.columns > 0;
    Eight ds, d_sum;
    if (mine && args.d_sum) d_sum = LoadEight<kAligned>(args.d_sum.row(row) + team.column, team.columns);
    if (norm) {
      NormTerms terms;
      const float rstd = mine ? Load(args.rstd + row) : 0.0f;
      if (mine) terms = LoadNormTerms<kAligned>(args, team, row, rstd, sums);
      float means[2] = {0.0f, 0.0f};  // of dh, and of dh ⊙ h
      HADAL_UNROLL for (int c = 0; c < 8; ++c) {
        means[0] += terms.gradient.v[c];  // 0 where there is no column
        means[1] = MulAdd(terms.gradient.v[c], terms.normalised.v[c], means[1]);
      }
      row_sums.Add(team, means);
      means[0] *= share;
      means[1] *= share;
      HADAL_UNROLL for (int c = 0; c < 8; ++c) {
        ds.v[c] = MulAdd(-terms.normalised.v[c], means[1], terms.gradient.v[c] - means[0]) * rstd;
      }
    }
    if (!mine) continue;
    HADAL_UNROLL for (int c = 0; c < 8; ++c) ds.v[c] += d_sum.v[c];
    StoreGradients<kAligned, kMore>(args, team, row, ds, branch_gain, position, sums);
  }
  const DevicePointer<float> part = args.partials + BlockX() * PartOfBlock(kMore, args.width);
  if (args.d_bias) StoreColumnSums(sums.bias, team, args.width, exchange, part);
  if (args.d_scale) StoreColumnSums(sums.scale, team, args.width, exchange, part + args.width);
  if (args.d_shift) StoreColumnSums(sums.shift, team, args.width, exchange, part + 2 * args.width);
  if constexpr (kMore) {
    if (args.learned_residual_gain) {
      StoreColumnSums(sums.residual_gain, team, args.width, exchange, part + 3 * args.width);
    }
    if (args.learned_branch_gain) StoreBlockSum(sums.branch_gain, exchange, part + kMoreSums * args.width);
  }
}

// One block: adds the last number of each block of rows to d_g. Thread t adds run t.
constexpr int kGainThreads = 256;
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kGainThreads)
    SumBranchGainKernel(ColumnParts parts, DevicePointer<float> d_gain) {
  HADAL_SHARED(float, warps, kGainThreads / kWarp);
  float sum = SumOfWarp(parts.SumOfRun(ThreadIndex(), kGainThreads));
  if (ThreadIndex() % kWarp == 0) warps[ThreadIndex() / kWarp] = sum;
  Barrier();
  if (ThreadIndex() != 0) return;
  for (int w = 1; w < kGainThreads / kWarp; ++w) sum += warps[w];
  Store(d_gain, Load(d_gain) + sum);
}

template <typename Residual, typename Compute>
void CheckArguments(const ResidualNormBackwardArgs<Residual, Compute>& args) {
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK_LE(args.width, kMaxTeamWidth);
  const bool norm = static_cast<bool>(args.d_normed);
  HADAL_CHECK(norm || args.d_sum);
  HADAL_CHECK_EQ(args.sum && args.mean && args.rstd && args.scale, norm);
  HADAL_CHECK_EQ(args.d_scale && args.d_shift, norm);
  HADAL_CHECK(args.d_residual);
  HADAL_CHECK(!args.d_bias || args.d_branch);
  const bool omega = static_cast<bool>(args.learned_residual_gain), gain = static_cast<bool>(args.learned_branch_gain);
  HADAL_CHECK_EQ(static_cast<bool>(args.d_learned_residual_gain), omega);
  HADAL_CHECK_EQ(static_cast<bool>(args.d_learned_branch_gain), gain);
  HADAL_CHECK(!(omega || gain || args.d_second) || args.d_branch);
  HADAL_CHECK(!args.second_starts || args.d_second);
  HADAL_CHECK(!omega || args.residual);
  HADAL_CHECK(!gain || args.branch);
  HADAL_CHECK(!(norm || args.d_bias || omega || gain) || args.partials);
  HADAL_CHECK(!args.dropout.active() || args.dropout.position);
}

}  // namespace

template <typename Residual, typename Compute>
void ResidualNormBackward(StreamHandle stream, const ResidualNormBackwardArgs<Residual, Compute>& args,
                          std::vector<ColumnMerge>* later) {
  if (args.rows == 0) return;
  CheckArguments(args);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.d_normed) && RowsOn16Bytes(args.d_sum) &&
                       RowsOn16Bytes(args.sum) && RowsOn16Bytes(args.d_residual) && RowsOn16Bytes(args.d_branch) &&
                       RowsOn16Bytes(args.d_skip) && On16Bytes(args.scale) && RowsOn16Bytes(args.residual) &&
                       RowsOn16Bytes(args.branch) && RowsOn16Bytes(args.d_second) && On16Bytes(args.bias) &&
                       On16Bytes(args.learned_residual_gain);
  const bool more = args.learned_residual_gain || args.learned_branch_gain || args.d_second;
  const RowTeamShape team = RowTeamShapeOf(args.width);
  const int64_t row_block = DeviceRowBlock(args.rows), blocks = (args.rows + row_block - 1) / row_block;
  Launch(stream, {.blocks_x = blocks, .threads = team.block_threads()},
         more ? (aligned ? ResidualNormBackwardKernel<Residual, Compute, true, true>
                         : ResidualNormBackwardKernel<Residual, Compute, false, true>)
              : (aligned ? ResidualNormBackwardKernel<Residual, Compute, true, false>
                         : ResidualNormBackwardKernel<Residual, Compute, false, false>),
         args, team.team_threads, row_block);
  const int64_t part = PartOfBlock(more, args.width);
  ColumnMerge merges[kMoreSums];
  size_t count = 0;
  const DevicePointer<float> sums[] = {args.d_bias, args.d_scale, args.d_shift, args.d_learned_residual_gain};
  for (int64_t sum = 0; sum < kMoreSums; ++sum) {
    if (!sums[sum]) continue;
    merges[count++] = {.parts = args.partials.address + sum * args.width,
                       .count = blocks,
                       .stride = part,
                       .width = args.width,
                       .sums = sums[sum].address};
  }
  MergeColumns(stream, std::span(merges, count), later);
  if (!args.d_learned_branch_gain) return;
  Launch(stream, {.threads = kGainThreads}, SumBranchGainKernel, ColumnParts{args.partials + (part - 1), blocks, part},
         args.d_learned_branch_gain);
}

template void ResidualNormBackward(StreamHandle, const ResidualNormBackwardArgs<float, float>&,
                                   std::vector<ColumnMerge>*);
template void ResidualNormBackward(StreamHandle, const ResidualNormBackwardArgs<BFloat16, BFloat16>&,
                                   std::vector<ColumnMerge>*);
template void ResidualNormBackward(StreamHandle, const ResidualNormBackwardArgs<float, BFloat16>&,
                                   std::vector<ColumnMerge>*);

}  // namespace hadal::cuda

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
template <bool kAligned, typename Residual, typename Compute>
HADAL_DEVICE NormTerms LoadNormTerms(const ResidualNormBackwardArgs& args, const RowTeam& team, int64_t row, float rstd,
                                     ColumnSums& sums) {
  NormTerms terms;
  const Eight dn = LoadEight<kAligned>(ViewOf<Compute>(args.d_normed).row(row) + team.column, team.columns);
  const Eight s = LoadEight<kAligned>(ViewOf<Residual>(args.sum).row(row) + team.column, team.columns);
  const Eight scale = LoadEight<kAligned>(ViewOf(args.scale) + team.column, team.columns);
  const float mean = Load(ViewOf(args.mean) + row);
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
template <bool kAligned, typename Compute>
HADAL_DEVICE void AddBranchGain(const ResidualNormBackwardArgs& args, const RowTeam& team, int64_t row,
                                const Eight& masked, ColumnSums& sums) {
  const Eight y = LoadEight<kAligned>(ViewOf<Compute>(args.branch).row(row) + team.column, team.columns);
  Eight bias;
  if (Given(args.bias)) bias = LoadEight<kAligned>(ViewOf(args.bias) + team.column, team.columns);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) {
    sums.branch_gain = MulAdd(masked.v[c], y.v[c] + bias.v[c], sums.branch_gain);
  }
}

// `scaled` is r·ds of a row. Adds r·ds ⊙ x to d_ω and replaces `scaled` by r·ω ⊙ ds.
template <bool kAligned, typename Residual>
HADAL_DEVICE void ApplyResidualGain(const ResidualNormBackwardArgs& args, const RowTeam& team, int64_t row,
                                    Eight& scaled, ColumnSums& sums) {
  const Eight x = LoadEight<kAligned>(ViewOf<Residual>(args.residual).row(row) + team.column, team.columns);
  const Eight omega = LoadEight<kAligned>(ViewOf(args.learned_residual_gain) + team.column, team.columns);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) {
    sums.residual_gain.v[c] = MulAdd(scaled.v[c], x.v[c], sums.residual_gain.v[c]);
    scaled.v[c] *= omega.v[c];
  }
}

// Computes from ds of a row d_residual, d_branch, d_skip, and the thread's part of d_bias and of the learned gains'
// gradients.
template <bool kAligned, bool kMore, typename Residual, typename Compute>
HADAL_DEVICE void StoreGradients(const ResidualNormBackwardArgs& args, const DeviceDropout& dropout,
                                 const RowTeam& team, int64_t row, Eight ds, float branch_gain,
                                 const RandomPosition& position, ColumnSums& sums) {
  if (Given(args.d_skip)) {
    Eight d_skip = LoadEight<kAligned>(ViewOf(args.d_skip).row(row) + team.column, team.columns);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) d_skip.v[c] = MulAdd(args.skip_gain, ds.v[c], d_skip.v[c]);
    StoreEight<kAligned>(ViewOf(args.d_skip).row(row) + team.column, d_skip, team.columns);
  }
  if (Given(args.d_branch)) {
    Eight d_branch = ds;
    if (kMore && Given(args.d_second)) {
      const Eight d_second = LoadEight<kAligned>(ViewOf(args.d_second).row(row) + team.column, team.columns);
      HADAL_UNROLL for (int c = 0; c < 8; ++c) {
        d_branch.v[c] = MulAdd(args.second_gain, d_second.v[c], d_branch.v[c]);
      }
    }
    HADAL_UNROLL for (int c = 0; c < 8; ++c) d_branch.v[c] *= branch_gain;
    if (dropout.active())
      ApplyDropout<kAligned>(dropout, position, row * args.d_residual.columns + team.column, d_branch);
    if (kMore && Given(args.learned_branch_gain)) {
      AddBranchGain<kAligned, Compute>(args, team, row, d_branch, sums);
      const float gain = Load(ViewOf(args.learned_branch_gain));
      HADAL_UNROLL for (int c = 0; c < 8; ++c) d_branch.v[c] *= gain;
    }
    StoreEight<kAligned>(ViewOf<Compute>(args.d_branch).row(row) + team.column, d_branch, team.columns);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) {
      sums.bias.v[c] += d_branch.v[c];  // also for columns that do not exist; never read
      ds.v[c] *= args.residual_gain;
    }
    if (kMore && Given(args.learned_residual_gain)) ApplyResidualGain<kAligned, Residual>(args, team, row, ds, sums);
    if (kMore && args.second_starts) {
      const Eight d_second = LoadEight<kAligned>(ViewOf(args.d_second).row(row) + team.column, team.columns);
      HADAL_UNROLL for (int c = 0; c < 8; ++c) ds.v[c] = MulAdd(args.second_gain, d_second.v[c], ds.v[c]);
    }
  }
  StoreEight<kAligned>(ViewOf<Residual>(args.d_residual).row(row) + team.column, ds, team.columns);
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

// Floats of one block's sums in `partials`.
HADAL_HOST_DEVICE int64_t PartOfBlock(bool more, int64_t width) {
  return more ? kMoreSums * width + 1 : kColumnSums * width;
}

template <typename Residual, typename Compute, bool kAligned, bool kMore>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kMaxTeamBlockThreads, kMore ? 1 : 2)
    ResidualNormBackwardKernel(ResidualNormBackwardArgs args, DeviceDropout dropout, int team_threads,
                               int64_t row_block) {
  HADAL_SHARED(float, slots, TeamSums<2>::kSlots);
  HADAL_SHARED(float, exchange, 8 * kMaxTeamBlockThreads);
  TeamSums<2> row_sums = {slots};
  const RowTeam team = ThisRowTeam(args.d_residual.columns, team_threads);
  const bool norm = Given(args.d_normed);
  const float branch_gain =
      args.device_branch_gain == nullptr ? args.branch_gain : Load(ViewOf(args.device_branch_gain));
  RandomPosition position;
  if (dropout.active()) position = Load(dropout.position);
  const float share = 1.0f / static_cast<float>(args.d_residual.columns);
  ColumnSums sums;
  for (int64_t i = 0; i < row_block; i += team.teams) {
    const int64_t row = BlockX() * row_block + i + team.index;
    const bool mine = i + team.index < row_block && row < args.d_residual.rows && team.columns > 0;
    Eight ds, d_sum;
    if (mine && Given(args.d_sum))
      d_sum = LoadEight<kAligned>(ViewOf<Residual>(args.d_sum).row(row) + team.column, team.columns);
    if (norm) {
      NormTerms terms;
      const float rstd = mine ? Load(ViewOf(args.rstd) + row) : 0.0f;
      if (mine) terms = LoadNormTerms<kAligned, Residual, Compute>(args, team, row, rstd, sums);
      float means[2] = {0.0f, 0.0f};  // of dh, and of dh ⊙ h
      HADAL_UNROLL for (int c = 0; c < 8; ++c) {
        means[0] += terms.gradient.v[c];  // 0 where there is no column
        means[1] = MulAdd(terms.gradient.v[c], terms.normalised.v[c], means[1]);
      }
      row_sums.Add(team, means);
      means[0] = args.form.centred ? means[0] * share : 0.0f;
      means[1] *= share;
      HADAL_UNROLL for (int c = 0; c < 8; ++c) {
        ds.v[c] = MulAdd(-terms.normalised.v[c], means[1], terms.gradient.v[c] - means[0]) * rstd;
      }
    }
    if (!mine) continue;
    HADAL_UNROLL for (int c = 0; c < 8; ++c) ds.v[c] += d_sum.v[c];
    StoreGradients<kAligned, kMore, Residual, Compute>(args, dropout, team, row, ds, branch_gain, position, sums);
  }
  const DevicePointer<float> part = ViewOf(args.partials) + BlockX() * PartOfBlock(kMore, args.d_residual.columns);
  if (Given(args.d_bias)) StoreColumnSums(sums.bias, team, args.d_residual.columns, exchange, part);
  if (Given(args.d_scale))
    StoreColumnSums(sums.scale, team, args.d_residual.columns, exchange, part + args.d_residual.columns);
  if (Given(args.d_shift))
    StoreColumnSums(sums.shift, team, args.d_residual.columns, exchange, part + 2 * args.d_residual.columns);
  if constexpr (kMore) {
    if (Given(args.learned_residual_gain)) {
      StoreColumnSums(sums.residual_gain, team, args.d_residual.columns, exchange, part + 3 * args.d_residual.columns);
    }
    if (Given(args.learned_branch_gain)) {
      Barrier();  // `exchange` may still be read
      const float sum = SumOfBlock<float>(sums.branch_gain, exchange, ThreadsInBlock() / kWarp);
      if (ThreadIndex() == 0) Store(part + kMoreSums * args.d_residual.columns, sum);
    }
  }
}

// One block: adds the last number of each block of rows to d_g. Thread t adds run t.
constexpr int kGainThreads = 256;
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kGainThreads)
    SumBranchGainKernel(ColumnParts parts, DevicePointer<float> d_gain) {
  HADAL_SHARED(float, warps, kGainThreads / kWarp);
  const float sum = SumOfBlock<float>(parts.SumOfRun(ThreadIndex(), kGainThreads), warps, kGainThreads / kWarp);
  if (ThreadIndex() == 0) Store(d_gain, Load(d_gain) + sum);
}

}  // namespace

void ResidualNormBackward(StreamHandle stream, const ResidualNormBackwardArgs& args, std::vector<ColumnMerge>* later) {
  const int64_t rows = args.d_residual.rows, width = args.d_residual.columns;
  if (rows == 0) return;
  HADAL_CHECK_LE(width, kMaxTeamWidth);
  const bool aligned = InAlignedEights(width, {args.d_normed, args.d_sum, args.sum, args.d_residual, args.d_branch,
                                               args.d_skip, args.residual, args.branch, args.d_second}) &&
                       On16Bytes(args.scale, args.bias, args.learned_residual_gain);
  const bool more = Given(args.learned_residual_gain) || Given(args.learned_branch_gain) || Given(args.d_second);
  const RowTeamShape team = RowTeamShapeOf(width);
  const int64_t row_block = DeviceRowBlock(rows), blocks = (rows + row_block - 1) / row_block;
  const auto launch = [&]<typename Residual, typename Compute>(Residual, Compute) {
    Launch(stream, {.blocks_x = blocks, .threads = team.block_threads()},
           more ? (aligned ? ResidualNormBackwardKernel<Residual, Compute, true, true>
                           : ResidualNormBackwardKernel<Residual, Compute, false, true>)
                : (aligned ? ResidualNormBackwardKernel<Residual, Compute, true, false>
                           : ResidualNormBackwardKernel<Residual, Compute, false, false>),
           args, DeviceDropoutOf(args.dropout), team.team_threads, row_block);
  };
  if (args.d_residual.storage == Storage::kBFloat16) {
    launch(BFloat16(), BFloat16());
  } else {
    // Without norm and branch there is no tensor of the second type.
    WithElement(Given(args.d_normed) ? args.d_normed.storage : args.d_branch.storage,
                [&]<typename Compute>(Compute) { launch(float(), Compute()); });
  }
  const int64_t part = PartOfBlock(more, width);
  ColumnMerge merges[kMoreSums];
  size_t count = 0;
  const Vector sums[] = {args.d_bias, args.d_scale, args.d_shift, args.d_learned_residual_gain};
  for (int64_t sum = 0; sum < kMoreSums; ++sum) {
    if (!Given(sums[sum])) continue;
    merges[count++] = {.parts = args.partials.data + sum * width,
                       .count = blocks,
                       .stride = part,
                       .width = width,
                       .sums = sums[sum].data};
  }
  MergeColumns(stream, std::span(merges, count), later);
  if (!Given(args.d_learned_branch_gain)) return;
  Launch(stream, {.threads = kGainThreads}, SumBranchGainKernel,
         ColumnParts{ViewOf(args.partials) + (part - 1), blocks, part}, ViewOf(args.d_learned_branch_gain));
}

}  // namespace hadal::cuda

#include "kernels/cuda/residual_norm.h"

#include "kernels/cuda/dropout_draws.h"
#include "kernels/cuda/row_team.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int64_t kRowsOfBlock = 8;  // so that 4,096 rows fill a device
static_assert(kWidestRow == kMaxTeamWidth);

// Returns s of a thread's columns in one row, rounded to the residual stream's type: fma(b·g, f·(y + bias), fma(a, e,
// r·x·ω)). With a second stream stores d' = fma(c, b·g·f·(y + bias), d). kMore: learned gains or a second stream.
template <bool kAligned, bool kMore, typename Residual, typename Compute>
HADAL_DEVICE Eight ResidualSum(const ResidualNormForwardArgs<Residual, Compute>& args, const RowTeam& team, int64_t row,
                               float branch_gain, const RandomPosition& position) {
  // All loads come before the first use and the first branch, so that they overlap.
  Eight y, skip, bias;
  Eight s = LoadEight<kAligned>(args.residual.row(row) + team.column, team.columns);
  if (args.branch) y = LoadEight<kAligned>(args.branch.row(row) + team.column, team.columns);
  if (args.skip) skip = LoadEight<kAligned>(args.skip.row(row) + team.column, team.columns);
  if (args.bias) bias = LoadEight<kAligned>(args.bias + team.column, team.columns);
  if (!args.branch) return s;
  HADAL_UNROLL for (int i = 0; i < 8; ++i) y.v[i] += bias.v[i];
  if (args.dropout.active()) ApplyDropout<kAligned>(args.dropout, position, row * args.width + team.column, y);
  if (kMore && args.second_sum) {
    Eight second;
    if (args.second) second = LoadEight<kAligned>(args.second.row(row) + team.column, team.columns);
    HADAL_UNROLL for (int i = 0; i < 8; ++i) {
      const float before = args.second ? second.v[i] : args.second_gain * s.v[i];
      second.v[i] = MulAdd(args.second_gain, branch_gain * y.v[i], before);
    }
    StoreEight<kAligned>(args.second_sum.row(row) + team.column, second, team.columns);
  }
  HADAL_UNROLL for (int i = 0; i < 8; ++i) s.v[i] *= args.residual_gain;
  if (kMore && args.learned_residual_gain) {
    const Eight omega = LoadEight<kAligned>(args.learned_residual_gain + team.column, team.columns);
    HADAL_UNROLL for (int i = 0; i < 8; ++i) s.v[i] *= omega.v[i];
  }
  HADAL_UNROLL for (int i = 0; i < 8; ++i) {
    s.v[i] = MulAdd(branch_gain, y.v[i], MulAdd(args.skip_gain, skip.v[i], s.v[i]));
  }
  RoundTo<Residual>(s);
  return s;
}

// Mean and 1 / sqrt(variance + epsilon) of a row whose threads hold s; columns that do not exist hold 0. `share`: 1 /
// W.
struct Statistics {
  float mean, rstd;
};
template <bool kAligned>
HADAL_DEVICE Statistics StatisticsOf(const Eight& s, const RowTeam& team, float share, TeamSums<1>& sums) {
  float sum[1] = {0.0f};
  HADAL_UNROLL for (int i = 0; i < 8; ++i) sum[0] += s.v[i];
  sums.Add(team, sum);
  const float mean = sum[0] * share;
  float squares[1] = {0.0f};
  HADAL_UNROLL for (int i = 0; i < 8; ++i) {
    const float centred = kAligned || i < team.columns ? s.v[i] - mean : 0.0f;
    squares[0] = MulAdd(centred, centred, squares[0]);
  }
  if (kAligned && team.columns == 0) squares[0] = 0.0f;  // with kAligned all eight columns exist, or none
  sums.Add(team, squares);
  return {mean, 1.0f / SquareRoot(MulAdd(squares[0], share, kLayerNormEpsilon))};
}

template <typename Residual, typename Compute, bool kAligned, bool kMore>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kMaxTeamBlockThreads)
    ResidualNormForwardKernel(ResidualNormForwardArgs<Residual, Compute> args, int team_threads) {
  HADAL_SHARED(float, slots, TeamSums<1>::kSlots);
  TeamSums<1> sums = {slots};
  const RowTeam team = ThisRowTeam(args.width, team_threads);
  float branch_gain = args.branch_gain ? Load(args.branch_gain) : 1.0f;
  if (kMore && args.learned_branch_gain) branch_gain *= Load(args.learned_branch_gain);
  RandomPosition position;
  if (args.dropout.active()) position = Load(args.dropout.position);
  const float share = 1.0f / static_cast<float>(args.width);
  for (int64_t i = 0; i < kRowsOfBlock; i += team.teams) {
    // Every team does the same number of iterations, because of the barriers; a team without a row has zeros and stores
    // nothing.
    const int64_t row = BlockX() * kRowsOfBlock + i + team.index;
    const bool mine = i + team.index < kRowsOfBlock && row < args.rows && team.columns > 0;
    Eight s;
    if (mine) s = ResidualSum<kAligned, kMore>(args, team, row, branch_gain, position);
    if (mine && args.sum) StoreEight<kAligned>(args.sum.row(row) + team.column, s, team.columns);
    if (!args.normed) continue;
    const Statistics of_row = StatisticsOf<kAligned>(s, team, share, sums);
    if (!mine) continue;
    const Eight scale = LoadEight<kAligned>(args.scale + team.column, team.columns);
    const Eight shift = LoadEight<kAligned>(args.shift + team.column, team.columns);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) {
      s.v[c] = args.norm_gain * MulAdd((s.v[c] - of_row.mean) * of_row.rstd, scale.v[c], shift.v[c]);
    }
    StoreEight<kAligned>(args.normed.row(row) + team.column, s, team.columns);
    if (team.column == 0) {
      Store(args.mean + row, of_row.mean);
      Store(args.rstd + row, of_row.rstd);
    }
  }
}

}  // namespace

template <typename Residual, typename Compute>
void ResidualNormForward(StreamHandle stream, const ResidualNormForwardArgs<Residual, Compute>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK_LE(args.width, kMaxTeamWidth);
  HADAL_CHECK(args.residual);
  const bool norm = static_cast<bool>(args.scale);
  HADAL_CHECK_EQ(static_cast<bool>(args.shift), norm);
  HADAL_CHECK_EQ(static_cast<bool>(args.normed), norm);
  HADAL_CHECK_EQ(args.mean && args.rstd, norm);
  HADAL_CHECK(norm || args.sum);
  HADAL_CHECK(!args.second_sum || args.branch);
  HADAL_CHECK(!args.second || args.second_sum);
  HADAL_CHECK(!args.dropout.active() || args.dropout.position);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.residual) && RowsOn16Bytes(args.branch) &&
                       RowsOn16Bytes(args.skip) && RowsOn16Bytes(args.sum) && RowsOn16Bytes(args.normed) &&
                       RowsOn16Bytes(args.second) && RowsOn16Bytes(args.second_sum) && On16Bytes(args.bias) &&
                       On16Bytes(args.learned_residual_gain) && On16Bytes(args.scale) && On16Bytes(args.shift);
  const bool more = args.learned_residual_gain || args.learned_branch_gain || args.second_sum;
  const RowTeamShape team = RowTeamShapeOf(args.width);
  const LaunchShape shape = {.blocks_x = (args.rows + kRowsOfBlock - 1) / kRowsOfBlock,
                             .threads = team.block_threads()};
  Launch(stream, shape,
         more ? (aligned ? ResidualNormForwardKernel<Residual, Compute, true, true>
                         : ResidualNormForwardKernel<Residual, Compute, false, true>)
              : (aligned ? ResidualNormForwardKernel<Residual, Compute, true, false>
                         : ResidualNormForwardKernel<Residual, Compute, false, false>),
         args, team.team_threads);
}

template void ResidualNormForward(StreamHandle, const ResidualNormForwardArgs<float, float>&);
template void ResidualNormForward(StreamHandle, const ResidualNormForwardArgs<BFloat16, BFloat16>&);
template void ResidualNormForward(StreamHandle, const ResidualNormForwardArgs<float, BFloat16>&);
template void ResidualNormForward(StreamHandle, const ResidualNormForwardArgs<BFloat16, float>&);

}  // namespace hadal::cuda

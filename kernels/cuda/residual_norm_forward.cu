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
HADAL_DEVICE Eight ResidualSum(const ResidualNormForwardArgs& args, const DeviceDropout& dropout, const RowTeam& team,
                               int64_t row, float branch_gain, const RandomPosition& position) {
  // All loads come before the first use and the first branch, so that they overlap.
  Eight y, skip, bias;
  Eight s = LoadEight<kAligned>(ViewOf<Residual>(args.residual).row(row) + team.column, team.columns);
  if (Given(args.branch)) y = LoadEight<kAligned>(ViewOf<Compute>(args.branch).row(row) + team.column, team.columns);
  if (Given(args.skip)) skip = LoadEight<kAligned>(ViewOf<Residual>(args.skip).row(row) + team.column, team.columns);
  if (Given(args.bias)) bias = LoadEight<kAligned>(ViewOf(args.bias) + team.column, team.columns);
  if (!Given(args.branch)) return s;
  HADAL_UNROLL for (int i = 0; i < 8; ++i) y.v[i] += bias.v[i];
  if (dropout.active()) ApplyDropout<kAligned>(dropout, position, row * args.residual.columns + team.column, y);
  if (kMore && Given(args.second_sum)) {
    Eight second;
    if (Given(args.second)) second = LoadEight<kAligned>(ViewOf(args.second).row(row) + team.column, team.columns);
    HADAL_UNROLL for (int i = 0; i < 8; ++i) {
      const float before = Given(args.second) ? second.v[i] : args.second_gain * s.v[i];
      second.v[i] = MulAdd(args.second_gain, branch_gain * y.v[i], before);
    }
    StoreEight<kAligned>(ViewOf(args.second_sum).row(row) + team.column, second, team.columns);
  }
  HADAL_UNROLL for (int i = 0; i < 8; ++i) s.v[i] *= args.residual_gain;
  if (kMore && Given(args.learned_residual_gain)) {
    const Eight omega = LoadEight<kAligned>(ViewOf(args.learned_residual_gain) + team.column, team.columns);
    HADAL_UNROLL for (int i = 0; i < 8; ++i) s.v[i] *= omega.v[i];
  }
  HADAL_UNROLL for (int i = 0; i < 8; ++i) {
    s.v[i] = MulAdd(branch_gain, y.v[i], MulAdd(args.skip_gain, skip.v[i], s.v[i]));
  }
  RoundTo<Residual>(s);
  return s;
}

// Mean (RMSNorm: 0) and 1 / sqrt(mean((s − mean)²) + epsilon) of a row whose threads hold s; columns that do not exist
// hold 0. `share`: 1 / W.
struct Statistics {
  float mean, rstd;
};
template <bool kAligned>
HADAL_DEVICE Statistics StatisticsOf(const Eight& s, const NormForm& form, const RowTeam& team, float share,
                                     TeamSums<1>& sums) {
  float sum[1] = {0.0f};
  if (form.centred) {  // the same for every thread
    HADAL_UNROLL for (int i = 0; i < 8; ++i) sum[0] += s.v[i];
    sums.Add(team, sum);
  }
  const float mean = sum[0] * share;
  float squares[1] = {0.0f};
  HADAL_UNROLL for (int i = 0; i < 8; ++i) {
    const float centred = kAligned || i < team.columns ? s.v[i] - mean : 0.0f;
    squares[0] = MulAdd(centred, centred, squares[0]);
  }
  if (kAligned && team.columns == 0) squares[0] = 0.0f;  // with kAligned all eight columns exist, or none
  sums.Add(team, squares);
  return {mean, InverseRoot(MulAdd(squares[0], share, form.epsilon))};
}

template <typename Residual, typename Compute, bool kAligned, bool kMore>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kMaxTeamBlockThreads)
    ResidualNormForwardKernel(ResidualNormForwardArgs args, DeviceDropout dropout, int team_threads) {
  HADAL_SHARED(float, slots, TeamSums<1>::kSlots);
  TeamSums<1> sums = {slots};
  const RowTeam team = ThisRowTeam(args.residual.columns, team_threads);
  float branch_gain = args.device_branch_gain == nullptr ? args.branch_gain : Load(ViewOf(args.device_branch_gain));
  if (kMore && Given(args.learned_branch_gain)) branch_gain *= Load(ViewOf(args.learned_branch_gain));
  RandomPosition position;
  if (dropout.active()) position = Load(dropout.position);
  const float share = 1.0f / static_cast<float>(args.residual.columns);
  for (int64_t i = 0; i < kRowsOfBlock; i += team.teams) {
    // Every team does the same number of iterations, because of the barriers; a team without a row has zeros and stores
    // nothing.
    const int64_t row = BlockX() * kRowsOfBlock + i + team.index;
    const bool mine = i + team.index < kRowsOfBlock && row < args.residual.rows && team.columns > 0;
    Eight s;
    if (mine) s = ResidualSum<kAligned, kMore, Residual, Compute>(args, dropout, team, row, branch_gain, position);
    if (mine && Given(args.sum))
      StoreEight<kAligned>(ViewOf<Residual>(args.sum).row(row) + team.column, s, team.columns);
    if (!Given(args.normed)) continue;
    const Statistics of_row = StatisticsOf<kAligned>(s, args.form, team, share, sums);
    if (!mine) continue;
    const Eight scale = LoadEight<kAligned>(ViewOf(args.scale) + team.column, team.columns);
    Eight shift;
    if (Given(args.shift)) shift = LoadEight<kAligned>(ViewOf(args.shift) + team.column, team.columns);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) {
      s.v[c] = args.norm_gain * MulAdd((s.v[c] - of_row.mean) * of_row.rstd, scale.v[c], shift.v[c]);
    }
    StoreEight<kAligned>(ViewOf<Compute>(args.normed).row(row) + team.column, s, team.columns);
    if (team.column == 0) {
      Store(ViewOf(args.mean) + row, of_row.mean);
      Store(ViewOf(args.rstd) + row, of_row.rstd);
    }
  }
}

}  // namespace

void ResidualNormForward(StreamHandle stream, const ResidualNormForwardArgs& args) {
  const int64_t rows = args.residual.rows, width = args.residual.columns;
  if (rows == 0) return;
  HADAL_CHECK_LE(width, kMaxTeamWidth);
  const bool aligned = InAlignedEights(width, {args.residual, args.branch, args.skip, args.sum, args.normed,
                                               args.second, args.second_sum}) &&
                       On16Bytes(args.bias, args.learned_residual_gain, args.scale, args.shift);
  const bool more = Given(args.learned_residual_gain) || Given(args.learned_branch_gain) || Given(args.second_sum);
  const RowTeamShape team = RowTeamShapeOf(width);
  const LaunchShape shape = {.blocks_x = (rows + kRowsOfBlock - 1) / kRowsOfBlock, .threads = team.block_threads()};
  // Without branch and norm there is no tensor of the second type.
  const Storage compute = Given(args.branch)   ? args.branch.storage
                          : Given(args.normed) ? args.normed.storage
                                               : args.residual.storage;
  WithElement(args.residual.storage, [&]<typename Residual>(Residual) {
    WithElement(compute, [&]<typename Compute>(Compute) {
      Launch(stream, shape,
             more ? (aligned ? ResidualNormForwardKernel<Residual, Compute, true, true>
                             : ResidualNormForwardKernel<Residual, Compute, false, true>)
                  : (aligned ? ResidualNormForwardKernel<Residual, Compute, true, false>
                             : ResidualNormForwardKernel<Residual, Compute, false, false>),
             args, DeviceDropoutOf(args.dropout), team.team_threads);
    });
  });
}

}  // namespace hadal::cuda

#include "kernels/cuda/embedding.h"

#include <algorithm>

#include "kernels/cuda/dropout_draws.h"
#include "kernels/cuda/row_team.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int64_t kRowsOfBlock = 8;

// Rows that a team of the backward kernel loads before it adds the first one. One block adds all rows of a frequent
// token; one row at a time would wait for memory twice per row.
constexpr int kRowsAhead = 4;

constexpr int kPositionThreads = 64;

template <typename Table, typename Stream, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kMaxTeamBlockThreads)
    EmbeddingForwardKernel(EmbeddingForwardArgs args, DeviceDropout dropout, int team_threads) {
  const RowTeam team = ThisRowTeam(args.x.columns, team_threads);
  if (team.columns == 0) return;
  RandomPosition position;
  if (dropout.active()) position = Load(dropout.position);
  for (int64_t i = team.index; i < kRowsOfBlock; i += team.teams) {
    const int64_t row = BlockX() * kRowsOfBlock + i;
    if (row >= args.x.rows) return;
    const int64_t token = Load(ViewOf(args.device_tokens.tokens) + row),
                  place = Load(ViewOf(args.device_tokens.positions) + row);
    Eight x;
    if (token >= 0 && place >= 0) {
      const Eight e = LoadEight<kAligned>(ViewOf<Table>(args.table).row(token) + team.column, team.columns);
      Eight p;
      if (Given(args.positions)) {
        p = LoadEight<kAligned>(ViewOf(args.positions).row(place) + team.column, team.columns);
      }
      HADAL_UNROLL for (int c = 0; c < 8; ++c) x.v[c] = MulAdd(args.multiplier, e.v[c], p.v[c]);
      if (dropout.active()) ApplyDropout<kAligned>(dropout, position, row * args.x.columns + team.column, x);
    }
    StoreEight<kAligned>(ViewOf<Stream>(args.x).row(row) + team.column, x, team.columns);
  }
}

// Block x: the rows of group x. `exchange` passes the teams' sums to the first team.
template <typename Stream, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kMaxTeamBlockThreads)
    EmbeddingBackwardKernel(EmbeddingBackwardArgs args, DeviceDropout dropout, int team_threads) {
  HADAL_SHARED(float, exchange, 8 * kMaxTeamBlockThreads);
  const int64_t group = BlockX();
  if (group >= Load(ViewOf(args.device_tokens.group_count))) return;
  const RowTeam team = ThisRowTeam(args.dx.columns, team_threads);
  RandomPosition position;
  if (dropout.active()) position = Load(dropout.position);
  const int64_t end = Load(ViewOf(args.device_tokens.group_starts) + group + 1);
  Eight sum;
  for (int64_t i = Load(ViewOf(args.device_tokens.group_starts) + group) + team.index; i < end && team.columns > 0;
       i += kRowsAhead * team.teams) {
    int32_t rows[kRowsAhead];
    Eight dx[kRowsAhead];
    HADAL_UNROLL for (int u = 0; u < kRowsAhead; ++u) {
      const int64_t at = i + u * team.teams;
      rows[u] = at < end ? Load(ViewOf(args.device_tokens.sorted_rows) + at) : -1;
    }
    HADAL_UNROLL for (int u = 0; u < kRowsAhead; ++u) {
      if (rows[u] >= 0) dx[u] = LoadEight<kAligned>(ViewOf<Stream>(args.dx).row(rows[u]) + team.column, team.columns);
    }
    HADAL_UNROLL for (int u = 0; u < kRowsAhead; ++u) {
      if (rows[u] < 0) break;
      if (dropout.active()) {
        ApplyDropout<kAligned>(dropout, position, rows[u] * args.dx.columns + team.column, dx[u]);
      }
      HADAL_UNROLL for (int c = 0; c < 8; ++c) sum.v[c] += dx[u].v[c];
    }
  }
  StoreEightShared(exchange + 8 * ThreadIndex(), sum);
  Barrier();
  if (team.index != 0 || team.columns == 0) return;
  HADAL_UNROLL_BY(1) for (int t = 1; t < team.teams; ++t) {
    const Eight of_team = LoadEightShared(exchange + 8 * (t * team_threads + ThreadIndex()));
    HADAL_UNROLL for (int c = 0; c < 8; ++c) sum.v[c] += of_team.v[c];
  }
  const DevicePointer<float> to =
      ViewOf(args.d_table).row(Load(ViewOf(args.device_tokens.group_tokens) + group)) + team.column;
  Eight total = LoadEight<kAligned>(to, team.columns);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) total.v[c] = MulAdd(args.multiplier, sum.v[c], total.v[c]);
  StoreEight<kAligned>(to, total, team.columns);
}

// Block x: position x; a thread adds eight columns of all rows there, ascending.
template <typename Stream, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kPositionThreads)
    PositionGradientKernel(EmbeddingBackwardArgs args, DeviceDropout dropout) {
  const int64_t column = 8 * (BlockY() * kPositionThreads + ThreadIndex()), left = args.dx.columns - column;
  if (left <= 0) return;
  const int count = left < 8 ? static_cast<int>(left) : 8;
  RandomPosition position;
  if (dropout.active()) position = Load(dropout.position);
  const DevicePointer<float> to = ViewOf(args.d_positions).row(BlockX()) + column;
  Eight sum = LoadEight<kAligned>(to, count);
  for (int64_t row = 0; row < args.tokens.size; ++row) {
    if (Load(ViewOf(args.device_tokens.positions) + row) != BlockX()) continue;
    Eight dx = LoadEight<kAligned>(ViewOf<Stream>(args.dx).row(row) + column, count);
    if (dropout.active()) ApplyDropout<kAligned>(dropout, position, row * args.dx.columns + column, dx);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) sum.v[c] += dx.v[c];
  }
  StoreEight<kAligned>(to, sum, count);
}

}  // namespace

void EmbeddingForward(StreamHandle stream, const EmbeddingForwardArgs& args) {
  if (args.x.rows == 0) return;
  HADAL_CHECK_LE(args.x.columns, kMaxTeamWidth);
  HADAL_CHECK(args.device_tokens.tokens != nullptr && args.device_tokens.positions != nullptr);
  const bool aligned = InAlignedEights(args.x.columns, {args.table, args.positions, args.x});
  const RowTeamShape team = RowTeamShapeOf(args.x.columns);
  const auto launch = [&]<typename Table, typename Stream>(Table, Stream) {
    Launch(stream, {.blocks_x = (args.x.rows + kRowsOfBlock - 1) / kRowsOfBlock, .threads = team.block_threads()},
           aligned ? EmbeddingForwardKernel<Table, Stream, true> : EmbeddingForwardKernel<Table, Stream, false>, args,
           DeviceDropoutOf(args.dropout), team.team_threads);
  };
  if (args.table.storage == Storage::kFloat32) return launch(float(), float());
  WithElement(args.x.storage, [&]<typename Stream>(Stream) { launch(BFloat16(), Stream()); });
}

TokenGroups GroupRowsByToken(const std::vector<int32_t>& tokens) {
  TokenGroups groups;
  for (size_t row = 0; row < tokens.size(); ++row) {
    if (tokens[row] >= 0) groups.sorted_rows.push_back(static_cast<int32_t>(row));
  }
  std::stable_sort(groups.sorted_rows.begin(), groups.sorted_rows.end(),
                   [&](int32_t a, int32_t b) { return tokens[a] < tokens[b]; });
  for (size_t i = 0; i < groups.sorted_rows.size(); ++i) {
    const int32_t token = tokens[groups.sorted_rows[i]];
    if (!groups.tokens.empty() && groups.tokens.back() == token) continue;
    groups.tokens.push_back(token);
    groups.starts.push_back(static_cast<int32_t>(i));
  }
  groups.starts.push_back(static_cast<int32_t>(groups.sorted_rows.size()));
  return groups;
}

void EmbeddingBackward(StreamHandle stream, const EmbeddingBackwardArgs& args) {
  if (args.tokens.size == 0) return;
  HADAL_CHECK_LE(args.dx.columns, kMaxTeamWidth);
  HADAL_CHECK(args.device_tokens.group_count != nullptr);
  HADAL_CHECK(args.d_positions.empty() || args.device_tokens.positions != nullptr);
  const bool aligned = InAlignedEights(args.dx.columns, {args.dx, args.d_table});
  const bool positions_aligned = InAlignedEights(args.dx.columns, {args.dx, args.d_positions});
  const RowTeamShape team = RowTeamShapeOf(args.dx.columns);
  WithElement(args.dx.storage, [&]<typename Stream>(Stream) {
    Launch(stream, {.blocks_x = args.tokens.size, .threads = team.block_threads()},
           aligned ? EmbeddingBackwardKernel<Stream, true> : EmbeddingBackwardKernel<Stream, false>, args,
           DeviceDropoutOf(args.dropout), team.team_threads);
    if (args.d_positions.empty()) return;
    const int64_t eights = (args.dx.columns + 7) / 8;
    Launch(stream,
           {.blocks_x = args.d_positions.rows,
            .blocks_y = (eights + kPositionThreads - 1) / kPositionThreads,
            .threads = kPositionThreads},
           positions_aligned ? PositionGradientKernel<Stream, true> : PositionGradientKernel<Stream, false>, args,
           DeviceDropoutOf(args.dropout));
  });
}

}  // namespace hadal::cuda

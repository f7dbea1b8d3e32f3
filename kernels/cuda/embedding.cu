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

template <typename Table, typename Stream, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kMaxTeamBlockThreads)
    EmbeddingForwardKernel(EmbeddingForwardArgs<Table, Stream> args, int team_threads) {
  const RowTeam team = ThisRowTeam(args.width, team_threads);
  if (team.columns == 0) return;
  RandomPosition position;
  if (args.dropout.active()) position = Load(args.dropout.position);
  for (int64_t i = team.index; i < kRowsOfBlock; i += team.teams) {
    const int64_t row = BlockX() * kRowsOfBlock + i;
    if (row >= args.rows) return;
    const int64_t token = Load(args.tokens + row), place = Load(args.row_positions + row);
    Eight x;
    if (token >= 0 && place >= 0) {
      const Eight e = LoadEight<kAligned>(args.table.row(token) + team.column, team.columns);
      const Eight p = LoadEight<kAligned>(args.positions.row(place) + team.column, team.columns);
      HADAL_UNROLL for (int c = 0; c < 8; ++c) x.v[c] = MulAdd(args.multiplier, e.v[c], p.v[c]);
      if (args.dropout.active()) ApplyDropout<kAligned>(args.dropout, position, row * args.width + team.column, x);
    }
    StoreEight<kAligned>(args.x.row(row) + team.column, x, team.columns);
  }
}

// Block x: the rows of group x. `exchange` passes the teams' sums to the first team.
template <typename Stream, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kMaxTeamBlockThreads)
    EmbeddingBackwardKernel(EmbeddingBackwardArgs<Stream> args, int team_threads) {
  HADAL_SHARED(float, exchange, 8 * kMaxTeamBlockThreads);
  const int64_t group = BlockX();
  if (group >= Load(args.group_count)) return;
  const RowTeam team = ThisRowTeam(args.width, team_threads);
  RandomPosition position;
  if (args.dropout.active()) position = Load(args.dropout.position);
  const int64_t end = Load(args.group_starts + group + 1);
  Eight sum;
  for (int64_t i = Load(args.group_starts + group) + team.index; i < end && team.columns > 0;
       i += kRowsAhead * team.teams) {
    int32_t rows[kRowsAhead];
    Eight dx[kRowsAhead];
    HADAL_UNROLL for (int u = 0; u < kRowsAhead; ++u) {
      const int64_t at = i + u * team.teams;
      rows[u] = at < end ? Load(args.sorted_rows + at) : -1;
    }
    HADAL_UNROLL for (int u = 0; u < kRowsAhead; ++u) {
      if (rows[u] >= 0) dx[u] = LoadEight<kAligned>(args.dx.row(rows[u]) + team.column, team.columns);
    }
    HADAL_UNROLL for (int u = 0; u < kRowsAhead; ++u) {
      if (rows[u] < 0) break;
      if (args.dropout.active()) {
        ApplyDropout<kAligned>(args.dropout, position, rows[u] * args.width + team.column, dx[u]);
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
  const DevicePointer<float> to = args.d_table.row(Load(args.group_tokens + group)) + team.column;
  Eight total = LoadEight<kAligned>(to, team.columns);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) total.v[c] = MulAdd(args.multiplier, sum.v[c], total.v[c]);
  StoreEight<kAligned>(to, total, team.columns);
}

}  // namespace

template <typename Table, typename Stream>
void EmbeddingForward(StreamHandle stream, const EmbeddingForwardArgs<Table, Stream>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK_LE(args.width, kMaxTeamWidth);
  HADAL_CHECK(args.tokens && args.row_positions && args.table && args.positions && args.x);
  HADAL_CHECK(!args.dropout.active() || args.dropout.position);
  const bool aligned =
      args.width % 8 == 0 && RowsOn16Bytes(args.table) && RowsOn16Bytes(args.positions) && RowsOn16Bytes(args.x);
  const RowTeamShape team = RowTeamShapeOf(args.width);
  Launch(stream, {.blocks_x = (args.rows + kRowsOfBlock - 1) / kRowsOfBlock, .threads = team.block_threads()},
         aligned ? EmbeddingForwardKernel<Table, Stream, true> : EmbeddingForwardKernel<Table, Stream, false>, args,
         team.team_threads);
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

template <typename Stream>
void EmbeddingBackward(StreamHandle stream, const EmbeddingBackwardArgs<Stream>& args) {
  if (args.max_groups == 0) return;
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK_LE(args.width, kMaxTeamWidth);
  HADAL_CHECK(args.group_count && args.group_starts && args.group_tokens && args.sorted_rows && args.dx &&
              args.d_table);
  HADAL_CHECK(!args.dropout.active() || args.dropout.position);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.dx) && RowsOn16Bytes(args.d_table);
  const RowTeamShape team = RowTeamShapeOf(args.width);
  Launch(stream, {.blocks_x = args.max_groups, .threads = team.block_threads()},
         aligned ? EmbeddingBackwardKernel<Stream, true> : EmbeddingBackwardKernel<Stream, false>, args,
         team.team_threads);
}

template void EmbeddingForward(StreamHandle, const EmbeddingForwardArgs<float, float>&);
template void EmbeddingForward(StreamHandle, const EmbeddingForwardArgs<BFloat16, BFloat16>&);
template void EmbeddingForward(StreamHandle, const EmbeddingForwardArgs<BFloat16, float>&);
template void EmbeddingBackward(StreamHandle, const EmbeddingBackwardArgs<float>&);
template void EmbeddingBackward(StreamHandle, const EmbeddingBackwardArgs<BFloat16>&);

}  // namespace hadal::cuda

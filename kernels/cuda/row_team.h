// A team of threads that holds one row of a tensor, eight columns per thread, and sums along the row.
//
// A block is divided into teams of whole warps: as many teams as fit into kTeamBlockThreads threads, or one team of up
// to kMaxTeamBlockThreads. Of the block's rows, team t processes rows t, t + teams, t + 2·teams and so on.
// Every sum along a row has one order, which depends only on the width: the eight columns of a thread in ascending
// order, the lanes of a warp as a butterfly (each lane ends with the same bits, because a + b = b + a), the warps of a
// team in ascending order. REQUIRES: 1 ≤ width ≤ kMaxTeamWidth.
#pragma once

#include <cstdint>

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {

// 1 / √x; NaN for infinity, so that a sum that overflows does not norm to zeros.
HADAL_DEVICE float InverseRoot(float x) { return 1.0f / SquareRoot(x) + 0 * x; }

inline constexpr int kTeamBlockThreads = 256;     // at most, for rows of up to 8 · 256 columns
inline constexpr int kMaxTeamBlockThreads = 384;  // at most, for wider rows: one team
inline constexpr int kMaxTeamWarps = kMaxTeamBlockThreads / kWarp;
inline constexpr int64_t kMaxTeamWidth = 8 * kMaxTeamBlockThreads;

struct RowTeamShape {
  int team_threads = kWarp;
  int teams = 1;  // per block
  int block_threads() const { return team_threads * teams; }
};

// Returns the shape for rows of `width` columns.
inline RowTeamShape RowTeamShapeOf(int64_t width) {
  RowTeamShape shape;
  shape.team_threads = static_cast<int>((width + 8 * kWarp - 1) / (8 * kWarp)) * kWarp;
  if (shape.team_threads < kTeamBlockThreads) shape.teams = kTeamBlockThreads / shape.team_threads;
  return shape;
}

// A thread's place in its team and block.
struct RowTeam {
  int index;       // of the team in the block
  int teams;       // per block
  int first_warp;  // of the team
  int warps;       // per team
  int64_t column;  // the thread's first column
  int columns;     // the thread's columns: 8, fewer at the end of a row, 0 behind it
};

HADAL_DEVICE RowTeam ThisRowTeam(int64_t width, int team_threads) {
  RowTeam team;
  team.index = ThreadIndex() / team_threads;
  team.teams = ThreadsInBlock() / team_threads;
  team.warps = team_threads / kWarp;
  team.first_warp = team.index * team.warps;
  team.column = 8 * static_cast<int64_t>(ThreadIndex() % team_threads);
  const int64_t left = width - team.column;
  team.columns = left >= 8 ? 8 : left > 0 ? static_cast<int>(left) : 0;
  return team;
}

// Returns the sum of x over the warp, on every lane.
template <typename T>
HADAL_DEVICE T SumOfWarp(T x) {
  HADAL_UNROLL for (int mask = kWarp / 2; mask > 0; mask /= 2) x += ShuffleXor(x, mask);
  return x;
}

// Returns on thread 0 the sum of x over the block's `count` warps, in ascending order. `warps`: [count]. Every thread
// of the block must call it.
template <typename T>
HADAL_DEVICE T SumOfBlock(T x, const Shared<T>& warps, int count) {
  x = SumOfWarp(x);
  if (ThreadIndex() % kWarp == 0) warps[ThreadIndex() / kWarp] = x;
  Barrier();
  if (ThreadIndex() != 0) return x;
  for (int w = 1; w < count; ++w) x += warps[w];
  return x;
}

// Add sums each of kSums values over the team; every thread of the team receives the totals. REQUIRES: every thread of
// the block calls Add, equally often. Two sets of `slots` are used alternately, so that one barrier per call suffices:
// a thread writes to a set again only after the barrier that follows the last read of that set.
template <int kSums>
struct TeamSums {
  Shared<float> slots;  // [2 · kMaxTeamWarps · kSums]
  int turn = 0;

  static constexpr int kSlots = 2 * kMaxTeamWarps * kSums;

  HADAL_DEVICE void Add(const RowTeam& team, float (&x)[kSums]) {
    HADAL_UNROLL for (int k = 0; k < kSums; ++k) x[k] = SumOfWarp(x[k]);
    if (team.warps == 1) return;  // the same for every thread of the block
    const int warp = ThreadIndex() / kWarp, set = turn * kMaxTeamWarps;
    turn ^= 1;
    if (ThreadIndex() % kWarp == 0) {
      HADAL_UNROLL for (int k = 0; k < kSums; ++k) slots[(set + warp) * kSums + k] = x[k];
    }
    Barrier();
    HADAL_UNROLL for (int k = 0; k < kSums; ++k) {
      x[k] = slots[(set + team.first_warp) * kSums + k];
      for (int w = 1; w < team.warps; ++w) x[k] += slots[(set + team.first_warp + w) * kSums + k];
    }
  }
};

}  // namespace hadal::cuda
